"""Checks as operators of a step: what they add, where they hide, and what is refused."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from foretrace import api
from foretrace.analyze import selection_of
from foretrace.api.estimates import EditableEstimate
from foretrace.base import ScenarioError
from foretrace.graph import ExecutionGraph, NodeKind, verify
from foretrace.whatif import Check, Prediction, Speed, edits_of
from foretrace.workload import PlanDraft


@cache
def estimated(stages: int = 1) -> EditableEstimate:
    stated = {"global_batch": 2, "micro_batch": 1, "sequence": 2048, "parallelism.pp": stages}
    draft = PlanDraft().with_keys({**stated, "parallelism.dp": 1})
    found = api.estimate("llama3.2-1b", draft, "dgx-h100")
    assert isinstance(found, EditableEstimate)
    return found


def is_check(graph: ExecutionGraph) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([name == "check of sums" for name in graph.names])[graph.name]


def checks(found: Prediction) -> int:
    return int((is_check(found.graph) & found.graph.is_device).sum())


def test_checks_are_operators_of_their_own_with_launches() -> None:
    base = estimated()
    found = base.edit(Check("0.5", selection_of("gemm"))).predict()
    verify(found.graph)
    is_mine = is_check(found.graph) & found.graph.is_device
    before_ns = base.timeline.duration_ns[np.flatnonzero(is_product(base.graph))]
    assert checks(found) == len(before_ns)
    assert found.timeline.duration_ns[is_mine].sum() == pytest.approx(
        0.5 * before_ns.sum(), abs=len(before_ns)
    )
    num_launches = (base.graph.kind == NodeKind.LAUNCH).sum()
    assert (found.graph.kind == NodeKind.LAUNCH).sum() == num_launches + checks(found)
    assert found.change_ns >= 0.5 * before_ns.sum() * 0.99
    assert "none of it hides" in found.notes[-1]


def is_product(graph: ExecutionGraph) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    products = ("mm", "addmm", "linear", "bmm")
    base = [name.rsplit("::", 1)[-1] in products for name in (*graph.names, "")]
    return np.array(base)[graph.operator] & graph.is_device


def test_what_a_check_reads_says_what_it_takes() -> None:
    steps = {
        how: estimated().edit(Check(how)).predict().step_ns for how in ("column", "sums", "twice")
    }
    assert estimated().step_ns < steps["column"] < steps["sums"] < steps["twice"]


def test_checks_of_a_stage_that_waits_hide() -> None:
    slow = Speed(0.4, selection_of("ranks:1"))
    base = estimated(2)
    checked = Check("0.3", selection_of("ranks:0 phase:backward"))
    found = base.edit(slow, checked).predict()
    effect = found.effects[1]
    work_ns = found.timeline.duration_ns[is_check(found.graph) & found.graph.is_device].sum()
    assert effect.change_ns < 0.6 * work_ns  # the last microbatch's
    assert "hides where the device waited" in found.notes[-1]
    alone = base.edit(checked, slow).predict()
    assert alone.step_ns == found.step_ns


def test_what_cannot_be_checked_is_said() -> None:
    with pytest.raises(ScenarioError, match="no check is called 'parity'"):
        Check("parity")
    [nothing] = edits_of({"check": ["sums=elementwise"]}, "a test")
    with pytest.raises(ScenarioError, match="nothing that a check is for"):
        estimated().edit(nothing).predict()

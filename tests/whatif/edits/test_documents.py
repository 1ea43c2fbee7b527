"""Documents in a recorded run's microbatches: the array of an estimate, on the recorded graph."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np
import pytest

import foretrace as ft
from foretrace.balance import DocumentWork, document_work, documents_of
from foretrace.base import ScenarioError
from foretrace.cost import Inflation, step_costs
from foretrace.estimate import Follows, drawn_mix, uneven_step
from foretrace.machine import load_machine
from foretrace.whatif import Edit
from foretrace.whatif.arrange.arranged import unchanged
from foretrace.whatif.edits.changed import changed
from foretrace.workload import Plan, Transformer, load_model, replica_of_rank
from tests.truth import JobConfig, make_job, write
from tests.whatif.made import costs_of

LAW = "lognormal:5,1.2"
MACHINE = load_machine("dgx-h100")
COSTS = step_costs(MACHINE)
ALONE = Inflation(otherwise=1.0)
PLAN = {"tp": 2, "pp": 2, "dp": 1, "global_batch": 4, "micro_batch": 1, "batch.sequence": 8192}


@cache
def job() -> ft.Job:
    config = JobConfig(
        tp=1, dp=2, pp=2, num_layers=2, num_steps=2, num_microbatches=4, contention=1.0
    )
    with TemporaryDirectory() as folder:
        write(make_job(config), Path(folder))
        return ft.load(folder, cache=False)


def equal(folder: Path, length: int) -> ft.UnevenDocuments:
    path = folder / "lengths.txt"
    path.write_text("\n".join([str(length)] * 32))
    return ft.UnevenDocuments(str(path))


def test_an_estimate_is_the_uneven_step_of_the_same_array() -> None:
    found = ft.estimate("llama3.2-1b", PLAN, MACHINE, costs=COSTS, inflation=ALONE)
    model, plan = cast("Transformer", load_model("llama3.2-1b")), found.plan
    step = uneven_step(model, plan, MACHINE, costs=COSTS, inflation=ALONE)
    work = document_work(model, plan, COSTS)
    tokens, attention = drawn_mix(plan, work, documents=documents_of(LAW), num_copies=1)

    predicted = found.edit(ft.UnevenDocuments(LAW)).prediction

    expected = float(step.step_ns(tokens[None], attention[None])[0])
    assert attention.mean() < 1
    assert predicted.step_ns == pytest.approx(expected, rel=1e-6)


def test_copies_of_the_model_have_documents_of_their_own() -> None:
    plan = {**PLAN, "dp": 2, "pp": 1, "global_batch": 8}
    found = ft.estimate("llama3.2-1b", plan, MACHINE, costs=COSTS)

    predicted = found.edit(ft.UnevenDocuments(LAW)).prediction

    lasts = predicted.timeline.duration_ns[predicted.graph.is_device]
    assert len(predicted.graph.ranks) == 4
    assert predicted.step_ns < found.step_ns
    assert len(np.unique(lasts)) > len(np.unique(found.timeline.duration_ns))


def test_documents_as_long_as_sequences_change_nothing(tmp_path: Path) -> None:
    predicted = job().edit(equal(tmp_path, job().edit().prediction.before.plan.sequence)).prediction

    assert predicted.step_ns == predicted.replayed_step_ns


def test_a_recording_takes_the_array_by_step_copy_and_microbatch() -> None:
    predicted = job().edit(ft.UnevenDocuments(LAW)).prediction
    graph, plan = predicted.graph, predicted.before.plan
    tokens, attention = drawn_mix(
        plan, DocumentWork.of_share(plan.sequence, 0.5), documents=documents_of(LAW),
        num_copies=2 * plan.data,
    )  # fmt: skip
    factor = Follows.of(graph).factors(tokens, attention)
    row = np.maximum(graph.step, 0) * plan.data
    row += np.where(graph.rank >= 0, replica_of_rank(plan)[graph.rank], 0)

    expected = factor[row, Follows.of(graph).label]
    is_attention = Follows.of(graph).is_attention
    ratio = predicted.costs.duration_ns / np.maximum(graph.measured_ns, 1)
    assert (plan.data, plan.num_microbatches) == (2, 4)
    assert is_attention.sum() == 2 * 4 * 4 * 2  # steps, ranks, microbatches, both passes
    # Communication beside kernels moves with them, and a little of their time with it.
    assert ratio[is_attention] == pytest.approx(expected[is_attention], rel=0.01)
    others = graph.is_device & ~is_attention
    assert ratio[others] == pytest.approx(np.ones(others.sum()), rel=0.02)
    assert predicted.step_ns < predicted.replayed_step_ns


def test_edits_commute() -> None:
    first: list[Edit] = [ft.UnevenDocuments(LAW), ft.Speed(1.5, ft.Selection(named="gemm"))]

    one, other = (job().edit(*edits).prediction.step_ns for edits in (first, first[::-1]))

    assert one == other


def test_a_recording_without_microbatches_is_refused() -> None:
    recording = job().recording
    bare = replace(recording.graph, microbatch=np.full_like(recording.graph.microbatch, -1))
    timeline = replace(recording.measured, graph=bare)

    with pytest.raises(ScenarioError, match="no work here is known to belong to a microbatch"):
        changed(unchanged(bare), costs_of(timeline), [ft.UnevenDocuments(LAW)], plan=Plan())

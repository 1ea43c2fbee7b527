"""Other kernels in a job: what they are worth, what they hold, and what is refused."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from foretrace import api
from foretrace.api.estimates import EditableEstimate
from foretrace.base import MachineError, ScenarioError
from foretrace.cost import Substituted, rule_named, step_costs
from foretrace.whatif import Substitute, edits_of
from foretrace.workload import PlanDraft


@cache
def estimated(products: str) -> EditableEstimate:
    stated = {"global_batch": 8, "micro_batch": 1, "sequence": 4096, "sharding.level": "none"}
    formats = {"precision.products": products, "precision.activations": products}
    draft = PlanDraft().with_keys(stated | formats)
    found = api.estimate("llama3.2-1b", draft, "dgx-a100")
    assert isinstance(found, EditableEstimate)
    return found


def test_what_a_rule_is_worth_is_a_full_simulation() -> None:
    base = estimated("fp32")
    found = api.substitute(base)

    best = found.rows[0]
    edited = base.edit(Substitute(best.rule, dtype=best.family.split()[-1])).predict()
    assert best.worth_ns > 0.02 * base.step_ns
    assert best.worth_ns == pytest.approx(base.step_ns - edited.step_ns, rel=1e-6)
    assert best.rank_hours == pytest.approx(best.worth_share * base.plan.num_ranks)
    # Nothing runs beside this step's products, so that its path stays what it is.
    assert best.path_ns == pytest.approx(best.worth_ns, rel=0.01)
    for row in found.rows:
        assert row.worth_share <= row.most_share + 1e-9
        assert row.num_paying <= row.num_shapes


def test_costs_under_a_rule_make_the_same_step_as_the_edit() -> None:
    base = estimated("fp32")
    chip = base.machine.chip
    under = Substituted(step_costs(base.machine), (rule_named("winograd:1"),), chip)
    draft = PlanDraft().with_keys(
        {"global_batch": 8, "micro_batch": 1, "sequence": 4096, "sharding.level": "none"}
        | {"precision.products": "fp32", "precision.activations": "fp32"}
    )
    estimate = api.estimate("llama3.2-1b", draft, "dgx-a100", costs=under)
    edited = base.edit(Substitute("winograd:1")).predict()
    assert estimate.step_ns == pytest.approx(edited.step_ns, rel=1e-6)


def test_workspace_is_in_the_footprint() -> None:
    prediction = estimated("fp32").edit(Substitute("winograd:1")).predict()
    fused = estimated("fp32").edit(Substitute("strassen:1")).predict()
    assert prediction.memory is not None
    assert fused.memory is not None
    # The loss's: products of 4,096 x 128,256 in seven quarters, and sums of both operands.
    held = 4 * (7 / 4 * 4_096 * 128_256 + 4_096 * 2_048 + 128_256 * 2_048)
    assert prediction.memory.change_bytes == pytest.approx(held, rel=1e-6)
    assert fused.memory.change_bytes == 0


def test_rules_that_pay_nowhere_leave_every_duration() -> None:
    base = estimated("bf16")
    prediction = base.edit(Substitute("strassen:2")).predict()
    assert np.array_equal(prediction.costs.duration_ns, base.costs.duration_ns)
    assert prediction.step_ns == base.step_ns
    worth_ns = {row.rule: row.worth_ns for row in api.substitute(base).rows}
    assert worth_ns["strassen:2"] == 0 < worth_ns["int8"]


def test_two_rules_on_the_same_kernels_are_refused() -> None:
    twice = estimated("fp32").edit(Substitute("strassen:1"), Substitute("winograd:1"))
    with pytest.raises(ScenarioError, match="two rules are about"):
        twice.predict()
    forward, backward = edits_of(
        {"substitute": ["strassen:1=phase:forward", "winograd:1=phase:backward"]}, "a test"
    )
    assert estimated("fp32").edit(forward, backward).predict().change_ns < 0


def test_what_it_is_not_for_is_refused() -> None:
    with pytest.raises(MachineError, match="no rule of substitution"):
        Substitute("gemm")
    nothing = edits_of({"substitute": ["strassen:1=attention"]}, "a test")
    with pytest.raises(ScenarioError, match="takes the place of nothing"):
        estimated("fp32").edit(*nothing).predict()

"""Spaces of plans, and constraints on them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, product

import pytest

from foretrace.base import WorkloadError
from foretrace.search import MORE_VARIABLES, SpaceLimits, plan_space
from foretrace.search.constraints import Constraint
from foretrace.search.space import Listing, columns_of, promising_last
from foretrace.workload import Plan, PlanDraft, Recompute, Sharding, Transformer
from tests.models import transformer

ROW: dict[str, object] = {
    "tp": 4, "cp": 1, "pp": 8, "dp": 2, "ep": 1, "micro_batch": 1, "microbatches": 16,
    "schedule": "1f1b", "chunks": 1, "sharding": "zero1", "recompute": "none", "gpus": 64,
    "peak_gb": 60.5,
}  # fmt: skip


def llama() -> Transformer:
    return transformer("llama3-8b")


def draft(**keys: object) -> PlanDraft:
    return PlanDraft().with_keys({"global_batch": 64, "batch.sequence": 4096, **keys})


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ("tp <= 8", True),
        ("tp <= 8 and peak_gb < 60", False),
        ("schedule in ('1f1b', 'gpipe')", True),
        ("not sharding == 'zero1' or pp * tp == 32", True),
        ("2 < tp < 4", False),
        ("microbatches % pp == 0", True),
    ],
)
def test_constraints_are_expressions_of_columns(text: str, is_met: bool) -> None:
    assert Constraint.of(text).holds(ROW) is is_met


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tp <=", "invalid syntax"),
        ("gpu_count > 3", "no column is called 'gpu_count'"),
        ("tp < 'eight'", "not supported"),
        ("__import__('os')", "no column is called '__import__'"),
        ("(lambda: 1)()", "is no comparison"),
        ("tp.real > 1", "is no comparison"),
        ("days >= 3", "a shorter step keeps"),
        ("tp < 4 or step_s < 3", "a shorter step keeps"),
        ("step_s < tp", "a shorter step keeps"),
    ],
)
def test_what_is_no_constraint_is_one_sentence(text: str, why: str) -> None:
    with pytest.raises(WorkloadError, match=why):
        Constraint.of(text)


def test_a_listing_goes_on_where_it_was_left_and_has_the_assumed_plan_first() -> None:
    space = plan_space(draft(), SpaceLimits.of(llama()), 8)
    plans = list(space.plans())
    listing = Listing((space,), lambda _: 1, capacity=2, assumed=plans[7])

    first = listing.more(lambda _: False)
    whole = listing.more()

    assert 0 < first.num_seen < len(plans)
    assert not first.is_whole
    assert whole.is_whole
    assert whole.num_seen == len(plans)
    assert whole.plans == (plans[7], *plans[:7], *plans[8:])
    assert whole.plans[: len(first.plans)] == first.plans


def test_the_first_of_very_many_plans_are_of_every_kind() -> None:
    model = transformer("qwen3-235b-a22b")
    space = plan_space(draft(), SpaceLimits.of(model), 256)

    first = list(islice(space.plans(), 2_000))

    assert space.num_combinations > 100_000
    assert len(set(first)) == len(first)
    assert {one.tensor for one in first} == {1, 2, 4, 8, 16}
    assert {one.expert for one in first} == {1, 2, 4, 8, 16, 32, 64, 128}
    assert {one.schedule for one in first} == {
        "1f1b", "gpipe", "zb-h1", "dualpipe", "interleaved",
    }  # fmt: skip
    assert {(one.sharding, one.recompute) for one in first} == set(product(Sharding, Recompute))


def test_a_space_holds_every_plan_once_on_all_ranks() -> None:
    space = plan_space(draft(), SpaceLimits.of(llama()), 8)

    plans = list(space.plans())

    assert len(plans) == len(set(plans))
    assert {plan.num_ranks for plan in plans} == {8}
    assert {plan.schedule for plan in plans if plan.pipeline == 1} == {"1f1b"}
    assert all(plan.sequence_parallel is (plan.tensor > 1) for plan in plans)


def test_what_is_stated_is_not_searched() -> None:
    space = plan_space(
        draft(tp=2, pp=2, schedule="1f1b", recompute="none"), SpaceLimits.of(llama()), 8
    )

    names = {variable.name for variable in space.variables}

    assert names == {"cp", "micro_batch", "sharding"}
    assert {(plan.tensor, plan.pipeline, plan.schedule) for plan in space.plans()} == {
        (2, 2, "1f1b")
    }


def test_a_batch_has_to_be_stated_and_dp_follows() -> None:
    with pytest.raises(WorkloadError, match="state global_batch"):
        plan_space(PlanDraft(), SpaceLimits.of(llama()), 8)
    with pytest.raises(WorkloadError, match="dp follows"):
        plan_space(draft(dp=4), SpaceLimits.of(llama()), 8)


def test_more_variables_are_searched_where_that_is_asked_for() -> None:
    model = transformer("llama3-8b")
    limits = SpaceLimits.of(model)
    keys = {"global_batch": 32, "batch.sequence": 2048, "recompute": "none", "tp": 2, "pp": 4}
    draft = PlanDraft().with_keys({**keys, "schedule": "1f1b", "chunks": 1, "micro_batch": 1})
    alone = list(plan_space(draft, limits, 16).plans())

    def values(name: str) -> set[object]:
        plans = plan_space(draft, limits, 16, vary=(name,)).plans()
        return {columns_of(plan)[name] for plan in plans}

    for name in {*MORE_VARIABLES} - {"experts"}:
        assert {columns_of(plan)[name] for plan in alone} < values(name)
    assert values("precision") == {"bf16", "fp8"}
    assert values("order") == {"tp-cp-dp-pp", "tp-cp-pp-dp", "tp-pp-dp-cp"}
    assert {1, 2} < values("outer_dp")
    assert values("layers") == {"even", "8..9..7", "7..9..8", "7..9..7", "8..9..6", "6..9..8"}
    with pytest.raises(WorkloadError, match="no variable is called 'colour'"):
        plan_space(draft, limits, 16, vary=("colour",))
    stated = draft.with_keys({"overlap.gradients": False})
    with pytest.raises(WorkloadError, match="overlap is stated"):
        plan_space(stated, limits, 16, vary=("overlap",))


@pytest.mark.parametrize("tensor", [1, 2])
def test_sequences_are_parallel_where_tp_is_whoever_chose_it(tensor: int) -> None:
    stated, limits = draft(tp=tensor), SpaceLimits.of(llama())
    off = stated.with_keys({"sequence_parallel": False})

    plans, others = (list(plan_space(one, limits, 8).plans()) for one in (stated, off))

    assert {plan.sequence_parallel for plan in plans} == {tensor > 1}
    assert not any(plan.sequence_parallel for plan in others)


def test_plans_that_idle_and_repeat_least_come_last_and_others_are_spread() -> None:
    base = Plan(global_batch=64, sequence=1024, micro_batch=1, data=1)
    piped = replace(base, pipeline=8, data=1, schedule="1f1b")
    plans = [
        replace(piped, global_batch=8, recompute=Recompute.FULL),
        replace(piped, global_batch=8),
        *(replace(base, sequence=1024 * at) for at in range(1, 9)),
        replace(base, recompute=Recompute.FULL),
    ]
    found = promising_last(plans, range(len(plans)))
    assert sorted(found) == list(range(len(plans)))
    assert found[:3] == [0, 1, 10]
    assert found[3:] != sorted(found[3:])
    assert promising_last(plans, []) == []

"""A search finds what looking at every plan finds, and goes on where it was killed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import foretrace as ft
from foretrace.base import MachineError, WorkloadError
from foretrace.cost import Inflation, Substituted, SubstitutionRule, rule_named
from foretrace.estimate import estimate, run_units, software_costs
from foretrace.machine import load_machine
from foretrace.risk import Scheme, load_campaign, renewal_ettr, with_interval
from foretrace.search import (
    Limits,
    Objective,
    PlanSearch,
    Progress,
    SearchOptions,
    SpaceLimits,
    Stopped,
    Target,
    best_recovery,
    plan_space,
    searched,
)
from foretrace.search.progress import SearchClock
from foretrace.workload import (
    Norm,
    Plan,
    PlanDraft,
    PlanMemory,
    Transformer,
    blocks_of_model,
    check_plan,
    unit_layout,
)
from tests.models import transformer

NO_LIMIT = Limits(time_s=None, gap=0.0)


def draft(**keys: object) -> PlanDraft:
    sizes = {"global_batch": 16, "batch.sequence": 2048, "recompute": "none"}
    return PlanDraft().with_keys({**sizes, **keys})


def exhaustive(
    model: Transformer, stated: PlanDraft, machine: str, num_ranks: int
) -> list[tuple[int, int, Plan]]:
    """Every plan that can run and fits, simulated unit by unit; the best first."""
    hardware = load_machine(machine)
    costs, memory = software_costs(hardware), PlanMemory(model, chip=hardware.chip)
    found = []
    for at, plan in enumerate(plan_space(stated, SpaceLimits.of(model), num_ranks).plans()):
        try:
            check_plan(plan, model)
        except WorkloadError:
            continue
        if memory.stage_bytes(plan).max() <= hardware.chip.memory_bytes:
            layout = unit_layout(blocks_of_model(model, plan), plan)
            found.append((run_units(layout, costs, Inflation()).step_ns, at, plan))
    return sorted(found, key=lambda row: row[:2])


def small(
    *,
    num_ranks: int | tuple[int, ...] = 8,
    rules: Sequence[SubstitutionRule] = (),
    beside: PlanDraft | None = None,
    **options: Any,
) -> PlanSearch:
    """A space of a few dozen plans."""
    return searched(
        transformer("llama3.2-1b"),
        draft(micro_batch=1, schedule="1f1b"),
        load_machine("dgx-h100"),
        num_ranks=num_ranks,
        options=SearchOptions(**{"limits": NO_LIMIT, **options}),
        rules=rules,
        beside=beside,
    )


def test_without_time_for_all_plans_the_assumed_one_is_among_them() -> None:
    found = searched(
        transformer("qwen3-235b-a22b"),
        PlanDraft().with_keys({"global_batch": 256, "batch.sequence": 4096}),
        load_machine("dgx-b200"),
        num_ranks=64,
        options=SearchOptions(limits=Limits(time_s=0.0)),
    )

    assert not found.evaluated.is_whole
    assert found.evaluated.listed < 1_000
    assert found.gap is None
    assert "not every plan was looked at" in found.headline
    assert found.stopped is Stopped.TIME
    assert found.default is not None
    assert found.best.step_ns <= found.default.step_ns


@pytest.mark.parametrize(
    ("name", "machine", "num_ranks", "keys"),
    [
        ("llama3.2-1b", "dgx-h100", 8, {"micro_batch": 1, "schedule": "1f1b"}),
        ("llama3-8b", "dgx-a100", 8, {"micro_batch": 1, "cp": 1, "sharding.level": "zero1"}),
        ("mixtral-8x7b", "h100-24k", 16, {"micro_batch": 1, "cp": 1, "schedule": "1f1b", "tp": 4}),
        ("gpt2", "dgx-h100", 4, {"micro_batch": 1, "cp": 1, "tp": 1, "batch.sequence": 1024}),
    ],
)
def test_the_best_is_that_of_looking_at_every_plan(
    name: str, machine: str, num_ranks: int, keys: dict[str, object]
) -> None:
    model, stated = transformer(name), draft(**keys)

    found = searched(
        model,
        stated,
        load_machine(machine),
        num_ranks=num_ranks,
        options=SearchOptions(limits=NO_LIMIT),
    )

    every = exhaustive(model, stated, machine, num_ranks)
    assert found.gap == 0
    assert found.stopped is Stopped.EXHAUSTED
    assert found.evaluated.fit == len(every)
    assert min(one.unit_ns or 0 for one in found.leaders) == every[0][0]
    assert every[0][2] in [one.plan for one in found.leaders]
    assert found.evaluated.units < len(every)


def test_the_best_under_rules_of_substitution_is_costed_under_them() -> None:
    plain, found = (small(rules=tuple(map(rule_named, names))) for names in ((), ("fp8",)))
    assert found.gap == 0
    assert found.best.step_ns < plain.best.step_ns
    hardware = load_machine("dgx-h100")
    costs = Substituted(software_costs(hardware), (rule_named("fp8"),), hardware.chip)
    again = estimate(transformer("llama3.2-1b"), found.best.plan, hardware, costs=costs)
    assert again.step_ns == found.best.step_ns


def test_kernels_of_rules_hold_as_much_memory_as_edits_of_the_best_say() -> None:
    found = small(rules=(rule_named("int8"),), limits=Limits(time_s=None, gap=0.5))

    own = ft.estimate("llama3.2-1b", found.best.plan, "dgx-h100")
    edited = own.edit(ft.Substitute("int8")).predict().memory
    assert edited is not None
    assert own.footprint is not None
    assert found.best.peak_bytes == edited.after.peak.total
    assert edited.after.peak.total > own.footprint.peak.total


def test_a_gap_is_kept_to() -> None:
    exact, loose = small(), small(limits=Limits(time_s=None, gap=0.2))

    assert loose.gap is not None
    assert loose.gap <= 0.2
    assert loose.evaluated.units <= exact.evaluated.units
    assert (loose.best.unit_ns or 0) * (1 - loose.gap) <= (exact.best.unit_ns or 0)
    assert "no plan of this space is" in loose.headline


def test_promises_are_kept_by_the_best_that_keeps_them() -> None:
    model, stated = transformer("llama3.2-1b"), draft(micro_batch=1, schedule="1f1b")
    every = {
        size: exhaustive(model, stated, "dgx-h100", size) for size in (2, 4, 8)
    }  # the best first
    limit_s = (every[4][0][0] + every[2][0][0]) / 2e9  # which four GPUs keep, and two do not

    fewest = small(
        num_ranks=(2, 4, 8), where=f"step_s < {limit_s}", target=Target(objective=Objective.GPUS)
    )
    slow = min(ns for rows in every.values() for ns, _, _ in rows) / 1e9
    with pytest.raises(WorkloadError, match=r"it is out of reach: step_s < .* \(at best "):
        small(num_ranks=(2, 4, 8), where=f"step_s < {slow}")

    assert fewest.best.plan.num_ranks == 4
    assert fewest.best.plan == every[4][0][2]
    assert fewest.gap == 0
    assert all(one.step_ns < limit_s * 1e9 for one in fewest.pareto)
    days = small(
        where="days <= 30 and tp == 2", target=Target(num_tokens=1e11, objective=Objective.STEP)
    )
    assert days.best.plan.tensor == 2
    assert days.best.figures is not None
    assert days.best.figures["days"] <= 30


@pytest.mark.parametrize("kept", [1, 20, 60, 90])
def test_a_search_that_was_killed_goes_on_to_the_same_answer(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "search.jsonl"
    whole = small(resume=path)
    lines = path.read_text().splitlines(keepends=True)
    cut = "".join(lines[:kept]) + lines[min(kept, len(lines) - 1)][:7]
    path.write_text(cut)

    again = small(resume=path)

    assert again.best == whole.best
    assert (again.gap, again.evaluated.units) == (whole.gap, whole.evaluated.units)
    assert sorted(path.read_text().splitlines()[1:]) == sorted(
        line.rstrip("\n") for line in lines[1:]
    )


def test_two_processes_find_what_one_does() -> None:
    alone, beside = small(), small(workers=2)

    assert beside.best == alone.best
    assert beside.gap == alone.gap
    assert beside.evaluated.bounded == alone.evaluated.bounded
    assert beside.evaluated.rank_works == alone.evaluated.rank_works


def test_a_file_of_another_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search.jsonl"
    small(resume=path)
    (tmp_path / "other").write_text("notes\n")

    with pytest.raises(WorkloadError, match="is of another search, with other where"):
        small(resume=path, where="tp <= 2")
    with pytest.raises(WorkloadError, match="is no file of a search"):
        small(resume=tmp_path / "other")


def test_a_file_of_another_machine_model_or_cost_by_the_same_name_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "search.jsonl"
    small(resume=path)
    machine, model = load_machine("dgx-h100"), transformer("llama3.2-1b")
    chip = replace(machine.chip, memory_bytes_per_ns=1_000.0)
    slower = replace(machine, host=replace(machine.host, chip=chip))

    def again(**others: Any) -> None:
        given: dict[str, Any] = {"model": model, "machine": machine, **others}
        options = SearchOptions(limits=NO_LIMIT, resume=path, version=given.pop("version", ""))
        searched(
            given.pop("model"),
            draft(micro_batch=1, schedule="1f1b"),
            given.pop("machine"),
            num_ranks=8,
            **given,
            options=options,
        )

    with pytest.raises(WorkloadError, match="with other machine, costs"):
        again(machine=slower)
    with pytest.raises(WorkloadError, match="with other model"):
        again(model=replace(model, norm=Norm.LAYER))
    with pytest.raises(WorkloadError, match="with other costs"):
        again(costs=software_costs(slower))
    with pytest.raises(WorkloadError, match="with other inflation"):
        again(inflation=Inflation(otherwise=1.5))
    with pytest.raises(WorkloadError, match="with other version"):
        again(version="9.9")


@pytest.mark.parametrize(
    "damage", ["{}", "[1]", "}{", '{"unit_ns": 1.5, "plan": 0}', '{"guess_ns": 1, "plan": 0}', ""]
)
def test_a_damaged_line_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "search.jsonl"
    small(resume=path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], damage, *lines[3:]]) + "\n")

    with pytest.raises(WorkloadError, match=r"search\.jsonl, line 4 is damaged: found"):
        small(resume=path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadError, match="is no file of a search"):
        small(resume=path)


def test_an_interrupt_gives_the_best_so_far() -> None:
    def interrupt(progress: Progress) -> None:
        if progress.gap is not None and progress.done >= 2:
            raise KeyboardInterrupt

    found = small(progress=interrupt)

    assert found.stopped is Stopped.INTERRUPTED
    assert found.gap is not None
    assert found.best.step_ns > 0


def test_without_time_for_bounds_there_is_a_plan_and_no_proof() -> None:
    found = small(limits=Limits(time_s=0.0, gap=0.0))

    assert found.stopped is Stopped.TIME
    assert found.gap is None
    assert "a better one may be left" in found.headline
    assert any(one.bound_ns is None for one in found.worth)  # not 0
    assert found.default is not None
    assert found.best.step_ns <= found.default.step_ns


def test_constraints_and_refusals_are_told() -> None:
    found = small(where="tp == 2 and pp > 1")

    assert (found.best.plan.tensor, found.best.plan.pipeline > 1) == (2, True)
    assert any(one.reason == "the constraint does not hold" for one in found.refusals)
    assert sum(one.count for one in found.refusals) + found.evaluated.fit == found.evaluated.listed
    with pytest.raises(WorkloadError, match="no plan of"):
        small(where="tp == 3")


def test_the_fewest_gpus_come_before_a_shorter_step() -> None:
    found = searched(
        transformer("llama3.2-1b"),
        draft(micro_batch=1, schedule="1f1b", cp=1),
        load_machine("dgx-h100"),
        num_ranks=(8, 2, 4),
        options=SearchOptions(target=Target(objective=Objective.GPUS), limits=NO_LIMIT),
    )

    assert found.best.plan.num_ranks == 2


def test_the_cheapest_token_needs_a_price_and_a_machine_its_chips() -> None:
    with pytest.raises(WorkloadError, match="state a price"):
        Target(objective=Objective.COST)
    with pytest.raises(MachineError, match="the plan needs 4,096 chips"):
        searched(transformer("gpt2"), draft(), load_machine("superpod-h100"), num_ranks=4096)


def test_the_cheapest_token_of_few_gpus_is_found_in_no_time_at_all() -> None:
    found = searched(
        transformer("llama3.2-1b"),
        draft(micro_batch=1, schedule="1f1b", cp=1),
        load_machine("dgx-h100"),
        num_ranks=(4, 8),
        options=SearchOptions(
            target=Target(objective=Objective.COST, price_per_hour=2.0),
            limits=Limits(time_s=0.01, gap=0.0),
        ),
    )

    costs = (found.best.figures or {})["cost"]
    assert costs == pytest.approx(_cost(found.best.plan, found.best.step_ns, price=2.0))


def _cost(plan: Plan, step_ns: int, *, price: float) -> float:
    hours = step_ns / 3600e9 * plan.num_ranks
    return price * hours / (plan.global_batch * plan.sequence) * 1e6


def test_hosts_are_joined_where_more_chips_are_asked_for() -> None:
    found = small(num_ranks=16)

    assert found.best.plan.num_ranks == 16
    assert found.machine == "2 x dgx-h100"


def test_the_answer_tells_itself() -> None:
    found = small()

    told = found.as_json()
    assert told["best"]["step_ns"] == found.best.step_ns
    assert {"best", "gap", "evaluated", "pareto", "refusals", "worth"} <= set(told)
    assert found.pareto[0].step_ns == min(one.step_ns for one in found.pareto)
    variables = {one.variable for one in found.worth}
    assert {"tp", "pp", "sharding"} <= variables
    bounds = [one.bound_ns for one in found.worth if one.bound_ns is not None]
    assert len(bounds) == len(found.worth)
    assert all(ns <= (one.step_ns or ns) for ns, one in zip(bounds, found.worth, strict=True))
    assert "kernel by kernel" in found.note


def test_what_plans_lose_to_failures_decides_between_them() -> None:
    campaign = load_campaign("llama3-405b")
    target = Target(objective=Objective.DAYS, campaign=campaign, num_tokens=1e12)
    found = small(target=target)

    best = found.best
    assert best.recovery == best_recovery(campaign, best.plan)
    assert best.recovery is not None
    assert 0 < best.recovery.effective < 1
    tokens = best.plan.global_batch * best.plan.sequence
    days = 1e12 / tokens * best.step_ns / best.recovery.effective / 86_400e9
    assert (best.figures or {})["days"] == pytest.approx(days)
    assert best.plan == small().best.plan  # all are on one host
    assert found.gap == 0


def test_a_campaign_recovers_the_way_that_loses_least() -> None:
    campaign = load_campaign("ft-hsdp-98k")
    plan = Plan(tensor=8, pipeline=4, data=3072, global_batch=3072)

    found = best_recovery(campaign, plan)

    hosts = plan.num_ranks // 8
    sized = replace(campaign, num_hosts=hosts, replicas=None)
    assert found.num_hosts == hosts
    others = [renewal_ettr(with_interval(sized, minutes * 60 * 10**9)) for minutes in range(1, 60)]
    assert found.effective >= max(others)
    assert found.scheme is Scheme.FAULT_TOLERANT
    one_copy = best_recovery(campaign, replace(plan, data=1, global_batch=1))
    assert one_copy.scheme is not Scheme.FAULT_TOLERANT


def test_the_front_of_several_objectives_has_the_best_of_each() -> None:
    several = (Objective.STEP, Objective.GPUS, Objective.COST)
    target = Target(objective=several[0], also=several[1:], price_per_hour=2.0)
    found = searched(
        transformer("llama3.2-1b"),
        draft(micro_batch=1, schedule="1f1b", cp=1),
        load_machine("dgx-h100"),
        num_ranks=(8, 2, 4),
        options=SearchOptions(target=target, limits=NO_LIMIT),
    )

    assert found.objectives == several
    front = found.pareto
    assert {one.plan.num_ranks for one in front} == {2, 4, 8}
    assert min(one.step_ns for one in front) == (found.leaders[0].unit_ns or 0)
    for objective in several[1:]:
        best = searched(
            transformer("llama3.2-1b"),
            draft(micro_batch=1, schedule="1f1b", cp=1),
            load_machine("dgx-h100"),
            num_ranks=(8, 2, 4),
            options=SearchOptions(target=target.first(objective), limits=NO_LIMIT),
        ).best
        assert best.plan in [one.plan for one in front]


def test_the_longest_of_steps_decide_where_they_are_asked_for() -> None:
    target = Target(objective=Objective.P95)
    found = searched(
        transformer("llama3.2-1b"),
        draft(
            micro_batch=1, schedule="1f1b", cp=1, recompute="none", **{"sharding.level": "zero1"}
        ),
        load_machine("dgx-h100"),
        num_ranks=2,
        options=SearchOptions(target=target, limits=NO_LIMIT),
    )

    assert found.gap == 0
    assert found.best.p95_ns is not None
    assert found.best.p95_ns >= found.best.step_ns
    assert found.best.p95_ns == min(one.p95_ns for one in found.leaders if one.p95_ns)


def test_objectives_say_what_they_need() -> None:
    with pytest.raises(WorkloadError, match="name a campaign"):
        Target(objective=Objective.EFFECTIVE)
    with pytest.raises(WorkloadError, match="state them"):
        Target(also=(Objective.DAYS,))


def test_the_best_is_held_beside_a_plan_that_is_named() -> None:
    found = small(beside=draft(tp=8, dp=1, pp=1, micro_batch=1))

    assert found.own is not None
    assert found.own.plan.tensor == 8
    beside = {one.name: one for one in found.beside}
    assert beside["your plan"].difference_ns == found.own.step_ns - found.best.step_ns
    own = beside["your plan"]
    assert abs(sum(own.difference_parts.values()) - own.difference_ns) < 100
    assert own.odds is not None
    assert own.odds > 0.9
    table = found.table("why").to_polars()
    assert table["part"].to_list()[-1] == "step"


def test_plans_leave_a_margin_of_the_memory_free() -> None:
    whole, roomy = small(), small(margin=0.9)
    room = 0.1 * load_machine("dgx-h100").chip.memory_bytes
    assert (whole.best.peak_bytes or 0) > room
    assert (roomy.best.peak_bytes or 0) <= room
    assert 0 < roomy.evaluated.fit < whole.evaluated.fit
    assert roomy.best.step_ns >= whole.best.step_ns


def test_an_answer_says_where_its_best_plan_leaves_little_memory() -> None:
    found = small()
    peak = found.best.peak_bytes or 0
    assert found.best.capacity == load_machine("dgx-h100").chip.memory_bytes
    for share, is_little in ((0.94, False), (0.97, True)):
        tight = replace(found, best=replace(found.best, capacity=round(peak / share)))
        told = " ".join(str(tight).split())
        assert "to spare" in told
        assert ("--margin" in told) == is_little


def test_what_was_found_with_another_margin_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "found.jsonl"
    small(resume=path)
    with pytest.raises(WorkloadError, match="margin"):
        small(resume=path, margin=0.5)


def test_parts_of_the_time_add_up_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    whole = SearchClock(Limits(time_s=40.0))
    first = whole.part(1 / 4)
    now = 10.0
    assert first.is_over
    assert first.spent_s == now
    second, third = whole.part(1 / 3), whole.part(1.0, most_s=5.0)
    now = 15.0
    assert (second.is_over, third.is_over) == (False, True)
    now = 20.0
    assert (second.is_over, third.is_over) == (True, True)
    assert not whole.is_past(0.6)
    assert not SearchClock(Limits(time_s=None)).part(0.5).is_over


def test_steps_of_too_many_kernels_are_told_unit_by_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = small()
    monkeypatch.setattr(import_module("foretrace.search.modelled"), "_MOST_OPERATIONS", 10)
    found = small()
    assert found.best.plan == min(plain.leaders, key=lambda one: one.unit_ns or 0).plan
    assert found.best.step_ns == found.best.unit_ns
    assert found.best.peak_bytes == plain.best.peak_bytes
    assert found.evaluated.kernels == 0 < plain.evaluated.kernels
    assert "unit by unit" in found.note
    assert found.beside[0].difference_parts == {}
    assert found.as_json()

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.workload import (
    Orders,
    Pass,
    Plan,
    Schedule,
    ScheduleUnit,
    check_schedule,
    schedule_of,
)
from tests.workload.schedule.running import Durations, run
from tests.workload.schedule.schedules import schedules


def two_stages() -> Schedule:
    return schedule_of(Plan(pipeline=2, global_batch=2))


def with_order(schedule: Schedule, stage: int, order: tuple[ScheduleUnit, ...]) -> Schedule:
    units = list(schedule.units)
    units[stage] = order
    return replace(schedule, orders=Orders.of_units(units))


@given(schedules())
def test_every_order_known_by_name_can_run(schedule: Schedule) -> None:
    check_schedule(schedule)

    done = run(schedule, Durations(1, 1, 1))

    each = 3 * schedule.num_microbatches * len(schedule.routes[0])
    assert sum(done.work) == each


@given(schedules(), st.data())
def test_an_order_without_one_of_its_units_is_refused(
    schedule: Schedule, data: st.DataObject
) -> None:
    stage = data.draw(st.integers(0, schedule.num_stages - 1))
    order = schedule.units[stage]
    lost = data.draw(st.integers(0, len(order) - 1))

    shorter = with_order(schedule, stage, order[:lost] + order[lost + 1 :])

    with pytest.raises(WorkloadError, match=f"microbatch {order[lost].microbatch} on chunk"):
        check_schedule(shorter)


def test_a_backward_pass_before_its_forward_pass_never_runs() -> None:
    forward, backward = ScheduleUnit(Pass.FORWARD, 0, 1), ScheduleUnit(Pass.BACKWARD, 0, 1)
    others = two_stages().units[1][2:]

    wrong = with_order(two_stages(), 1, (backward, forward, *others))

    with pytest.raises(
        WorkloadError,
        match=r"stage 1 at B of microbatch 0 on chunk 1 for F of microbatch 0 on chunk 1",
    ):
        check_schedule(wrong)


def test_stages_that_wait_for_each_other_are_named() -> None:
    first, second = two_stages().units
    # The first stage wants microbatch 0 back before the second can have seen it twice.
    late = tuple(sorted(second, key=lambda unit: (unit.kind, unit.microbatch)))
    early = tuple(sorted(first, key=lambda unit: (unit.microbatch, unit.kind)))

    wrong = replace(two_stages(), orders=Orders.of_units((early, late)))

    with pytest.raises(WorkloadError, match="wait for each other") as caught:
        check_schedule(wrong, "my order")
    assert str(caught.value).startswith("my order never ends")
    assert "stage 0 at B of microbatch 0 on chunk 0 for I of microbatch 0 on chunk 1" in str(
        caught.value
    )


def test_a_pair_that_needs_its_own_result_never_runs() -> None:
    schedule = schedule_of(Plan(pipeline=1, global_batch=1))
    forward, backward = schedule.units[0]

    joined = with_order(schedule, 0, (replace(forward, is_joined=True), backward))

    with pytest.raises(WorkloadError, match="never ends"):
        check_schedule(joined)


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        (ScheduleUnit(Pass.FORWARD, 2, 0), "its microbatches are 0 to 1"),
        (ScheduleUnit(Pass.FORWARD, 0, 1), "where that chunk is not"),
        (ScheduleUnit(Pass.FORWARD, 0, 0), "2 F, 1 B, 0 I, 0 W of microbatch 0 on chunk 0"),
        (ScheduleUnit(Pass.WEIGHT, 0, 0), "1 F, 1 B, 0 I, 1 W of microbatch 0 on chunk 0"),
    ],
)
def test_a_unit_too_many_is_refused(unit: ScheduleUnit, message: str) -> None:
    schedule = two_stages()

    wrong = with_order(schedule, 0, (*schedule.units[0], unit))

    with pytest.raises(WorkloadError, match=message):
        check_schedule(wrong)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stage_of_chunk": (0, 2)}, "puts chunk 1 on stage 2 of 2"),
        ({"routes": ((0,),)}, "every chunk has to be on one route"),
        ({"routes": ((0, 1), (1,))}, "every chunk has to be on one route"),
        ({"route_of_microbatch": (0, 1)}, "sends microbatch 1 along route 1"),
        (
            {"stage_of_chunk": (0, 1, 0), "routes": ((0, 1), (2,))},
            r"routes of \[1, 2\] chunks",
        ),
    ],
)
def test_a_misshapen_schedule_is_refused(changes: dict[str, object], message: str) -> None:
    wrong = replace(two_stages(), **changes)  # type: ignore[arg-type]

    with pytest.raises(WorkloadError, match=message):
        check_schedule(wrong)

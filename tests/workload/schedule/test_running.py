"""The compiled run of units beside the plain one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.workload import Orders, Pass, Plan, Schedule, UnitTimes, schedule_of, stage_ends_ns
from foretrace.workload.layout.unit_columns import ScheduleColumns
from foretrace.workload.schedule.legality import order_of_turns
from tests.workload.schedule.running import Durations, run
from tests.workload.schedule.schedules import schedules


def times(schedule: Schedule, durations: Durations, *, transfer: int = 0) -> UnitTimes:
    """The same time for every chunk."""
    num_chunks = len(schedule.stage_of_chunk)
    own = [
        durations.forward,
        durations.inputs + durations.weights,
        durations.inputs,
        durations.weights,
    ]
    table = np.repeat(np.array(own, np.int64)[:, None], num_chunks, axis=1)
    begin_ns = np.zeros(schedule.num_stages, np.int64)
    return UnitTimes(table, table, np.full(num_chunks, transfer), begin_ns)


@given(
    schedule=schedules(),
    durations=st.builds(Durations, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
)
def test_units_end_when_a_plain_run_ends_them(schedule: Schedule, durations: Durations) -> None:
    ends_ns = stage_ends_ns(schedule, times(schedule, durations))

    assert ends_ns is not None
    assert ends_ns.max() == run(schedule, durations).total


@given(schedule=schedules())
def test_units_are_put_in_an_order_in_which_they_can_run(schedule: Schedule) -> None:
    units, begin = ScheduleColumns(schedule), schedule.orders.begin
    size = np.zeros(len(units.kind), np.int64)
    size[units.lead] = np.diff(units.lead, append=len(size))

    order = order_of_turns(units.maker, size, begin)

    place = np.argsort(order)
    assert np.sort(order).tolist() == list(range(len(size)))
    assert all((np.diff(place[at:end]) > 0).all() for at, end in pairwise(begin))
    assert (place[units.maker] < place)[units.maker >= 0].all()
    assert (np.diff(place)[units.is_second[1:]] == 1).all()
    late = np.where(units.maker >= 0, np.arange(len(size)), -1)  # everyone waits for itself
    with pytest.raises(WorkloadError, match="for ever"):
        order_of_turns(late, size, begin)


def test_transfers_lengthen_the_way_there_and_back() -> None:
    schedule = schedule_of(Plan(pipeline=3, global_batch=1))

    ends_ns = stage_ends_ns(schedule, times(schedule, Durations(10, 10, 10), transfer=7))

    assert ends_ns is not None
    assert ends_ns.tolist() == [3 * 30 + 4 * 7, 3 * 30 + 3 * 7 - 20, 3 * 30 + 2 * 7 - 40]


def test_stages_that_wait_for_each_other_have_no_end() -> None:
    schedule = schedule_of(Plan(pipeline=2, global_batch=2))
    kind = np.array([Pass.FORWARD, Pass.BACKWARD, Pass.FORWARD, Pass.BACKWARD], np.int64)
    microbatch = np.array([0, 0, 1, 1])
    late = np.argsort(kind, kind="stable")
    stuck = Orders.of_stages(
        [
            (kind, microbatch, np.zeros(4, np.int64)),
            (kind[late], microbatch[late], np.ones(4, np.int64)),
        ]
    )
    schedule = Schedule("stuck", stuck, (0, 1), ((0, 1),), (0, 0))

    assert stage_ends_ns(schedule, times(schedule, Durations(1, 1, 1))) is None

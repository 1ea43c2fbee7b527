from __future__ import annotations

import pytest
from hypothesis import given

from foretrace.analyze import Stillness, breakdown, exposed_transfers, idle, steps
from foretrace.graph import NodeKind, Timeline
from tests.analyze.strategies import timelines
from tests.graphs import GraphBuilder, timeline_of
from tests.oracles import exposed as oracle


def _two_transfers(*, second_ends_ns: int) -> Timeline:
    """Compute 0..10 and 50..60; transfers 10..30 in group tp and 20.. in group dp."""
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN, step="a")
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10, step="a")
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10, step="a")
    build.collective({0: ()}, group="tp", lane="stream 8", transfer_ns=20, step="a")
    build.collective(
        {0: ()}, group="dp", lane="stream 9", transfer_ns=second_ends_ns - 20, step="a"
    )
    build.add(NodeKind.STEP_END, step="a")
    return timeline_of(build.graph(), [0, 0, 50, 10, 10, 10, 20, 20, 20, 80])


def test_a_moment_belongs_to_the_transfer_that_ends_last_before_computation() -> None:
    found = exposed_transfers(_two_transfers(second_ends_ns=50))

    assert found.of_rank(0) == {"dp": 30, "tp": 10}


def test_a_transfer_that_outlasts_the_pause_has_only_what_no_other_does() -> None:
    found = exposed_transfers(_two_transfers(second_ends_ns=70))

    # 10..30 tp; 30..50 dp, which computation did not wait for; 60..70 dp alone
    assert found.of_rank(0) == {"dp": 30, "tp": 20}


def test_rows_name_step_rank_group_and_collective() -> None:
    frame = exposed_transfers(_two_transfers(second_ends_ns=50)).to_polars()

    assert frame.columns == ["step", "rank", "group", "name", "time_ns"]
    assert frame["time_ns"].to_list() == [30, 10]


@given(timelines())
def test_every_moment_goes_to_the_transfer_that_the_rule_names(timeline: Timeline) -> None:
    found = exposed_transfers(timeline)

    assert {
        (row.step_name, row.rank, row.group, row.name): row.time_ns for row in found.rows
    } == oracle.exposed(timeline, steps(timeline))


@given(timelines())
def test_transfers_and_waiting_are_the_exposed_communication(timeline: Timeline) -> None:
    found, lost = exposed_transfers(timeline), idle(timeline)

    for row in breakdown(timeline).rows:
        transfer_ns = sum(
            one.time_ns
            for one in found.rows
            if (one.step_name, one.rank) == (row.step_name, row.rank)
        )
        is_own = (
            (lost.kind == Stillness.WAITING) & (lost.rank == row.rank) & (lost.step == row.step)
        )
        waiting_ns = int(lost.duration_ns[is_own].sum())
        assert transfer_ns + waiting_ns == row.parts.exposed_communication_ns


@pytest.mark.parametrize("as_rows", [True, False])
def test_a_timeline_without_communication_has_no_rows(as_rows: bool) -> None:
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN, step="a")
    build.add(NodeKind.STEP_END, step="a")
    found = exposed_transfers(timeline_of(build.graph(), [0, 5]))

    assert (list(found.rows) if as_rows else found.as_json()["rows"]) == []

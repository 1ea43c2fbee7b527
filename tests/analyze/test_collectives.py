from __future__ import annotations

from hypothesis import given

from foretrace.analyze import RankCollectives, collective_times
from foretrace.graph import NodeKind, Timeline
from foretrace.simulate import simulate
from tests.analyze.strategies import timelines
from tests.graphs import GraphBuilder


def _two_meetings() -> Timeline:
    """Rank 1 is 200 ns late at the first meeting; nobody is at the second."""
    build = GraphBuilder()
    work = {
        rank: [build.add(NodeKind.KERNEL, rank=rank, lane="stream 7", takes_ns=takes_ns)]
        for rank, takes_ns in ((0, 100), (1, 300))
    }
    first = build.collective(work, transfer_ns=40, step="a")
    build.collective({rank: [node] for rank, node in first.items()}, transfer_ns=10, step="a")
    return simulate(build.graph())


def test_wait_transfer_and_last_rank_of_each_meeting() -> None:
    times = collective_times(_two_meetings())

    assert times.wait_ns.tolist() == [200, 0, 0, 0]
    assert times.transfer_ns.tolist() == [40, 40, 10, 10]
    assert times.total_ns.tolist() == [240, 40, 10, 10]
    assert times.arrival.tolist() == [0, 1, 0, 1]
    assert times.last_rank.tolist() == [1, 1, 1, 1]


def test_totals_by_rank() -> None:
    assert collective_times(_two_meetings()).by_rank() == (
        RankCollectives(rank=0, num_collectives=2, num_last=0, wait_ns=200, transfer_ns=50),
        RankCollectives(rank=1, num_collectives=2, num_last=2, wait_ns=0, transfer_ns=50),
    )


def test_frame_names_the_collectives() -> None:
    frame = collective_times(_two_meetings()).to_polars()

    assert frame["name"].to_list() == ["allreduce"] * 4
    assert frame["position"].to_list() == [0, 0, 1, 1]


def test_timeline_without_collectives_has_an_empty_table() -> None:
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10)

    times = collective_times(simulate(build.graph()))

    assert len(times) == 0
    assert times.by_rank() == ()


@given(timeline=timelines())
def test_arrivals_are_numbered_in_order_of_time_then_rank(timeline: Timeline) -> None:
    times = collective_times(timeline)

    for collective in set(times.collective.tolist()):
        rows = [row for row in range(len(times)) if times.collective[row] == collective]
        in_order = sorted(rows, key=lambda row: (times.arrive_ns[row], times.rank[row]))
        assert [int(times.arrival[row]) for row in in_order] == list(range(len(rows)))
        assert {int(times.last_rank[row]) for row in rows} == {int(times.rank[in_order[-1]])}

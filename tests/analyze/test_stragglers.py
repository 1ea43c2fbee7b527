from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given

from foretrace.analyze import IdleCause, collective_times, stragglers
from foretrace.analyze.idle import UNRECORDED_RANK
from foretrace.graph import NodeKind, Timeline
from foretrace.simulate import simulate
from tests.analyze.strategies import timelines
from tests.graphs import Edge, GraphBuilder


def rounds(kernel_ns: dict[int, list[int]], *, name: str = "allreduce") -> Timeline:
    """Each rank runs one kernel per round, then all of them meet."""
    build = GraphBuilder()
    last: dict[int, int] = {}
    for number in range(len(next(iter(kernel_ns.values())))):
        ready = {
            rank: [
                build.add(
                    NodeKind.KERNEL,
                    rank=rank,
                    lane="stream 7",
                    name="gemm",
                    takes_ns=each[number],
                    after=[last[rank]] if last else [],
                    step="s",
                )
            ]
            for rank, each in kernel_ns.items()
        }
        last = build.collective(ready, transfer_ns=10, name=name, step="s")
    return simulate(build.graph())


def test_the_slow_rank_has_all_blame_and_the_others_wait() -> None:
    found = stragglers(rounds({0: [100] * 12, 1: [130] * 12, 2: [90] * 12}))

    first = found.ranks[0]
    assert first.rank == 1
    assert first.blame_ns == 12 * (30 + 40)
    assert (first.num_last, first.num_collectives, first.own_wait_ns) == (12, 12, 0)
    assert first.causes[0].cause == IdleCause.COMPUTE
    assert first.causes[0].subject == "gemm"
    assert found.waiting_ns_of_all == first.blame_ns
    assert sum(rank.own_wait_ns for rank in found.ranks) == first.blame_ns


def test_how_late_a_rank_came_is_against_the_median_of_those_who_waited() -> None:
    found = stragglers(rounds({0: [100], 1: [500], 2: [90], 3: [120]}))

    assert found.late_ns.tolist() == [500 - 100]
    assert found.last_rank.tolist() == [1]
    assert found.waiting_ns.tolist() == [400 + 410 + 380]


def test_always_last_is_systematic_and_taking_turns_is_chance() -> None:
    always = stragglers(rounds({0: [100] * 10, 1: [101] * 10}))
    turns = stragglers(rounds({0: [100, 101] * 5, 1: [101, 100] * 5}))

    assert always.ranks[0].chance == pytest.approx(0.5**10)
    assert always.ranks[0].is_systematic
    assert "it was last systematically (10 of 10 collectives, 5.0 expected)" in (
        always.ranks[0].sentence
    )
    tail = sum(comb(10, times) for times in range(5, 11)) / 2**10
    assert turns.ranks[0].chance == pytest.approx(tail)
    assert not any(rank.is_systematic for rank in turns.ranks)


def test_blame_follows_the_chain_to_the_rank_where_it_began() -> None:
    build = GraphBuilder()
    kernel = {
        rank: build.add(NodeKind.KERNEL, rank=rank, lane="stream 7", takes_ns=takes_ns, step="s")
        for rank, takes_ns in {0: 10, 1: 10, 2: 900}.items()
    }
    right = build.collective({1: [kernel[1]], 2: [kernel[2]]}, transfer_ns=5, group="right")
    build.collective({0: [kernel[0]], 1: [right[1]]}, transfer_ns=5, group="left", lane="stream 9")

    found = stragglers(simulate(build.graph()))

    by_rank = {rank.rank: rank for rank in found.ranks}
    assert by_rank[1].num_last == 1  # it came last in the left group
    assert by_rank[1].blame_ns == 0  # because it was held up in the right one
    assert by_rank[2].blame_ns == 890 + 895
    left = next(group for group in found.groups if group.group == "left")
    assert left.last_by_rank == {1: 1}
    assert left.blame_by_rank == {2: 895}


def test_an_earlier_stall_is_named_behind_later_kernels_that_all_ranks_have() -> None:
    build = GraphBuilder()
    ready: dict[int, list[int]] = {}
    for rank in (0, 1):
        before = [
            build.add(
                NodeKind.HOST_SEGMENT,
                rank=rank,
                name="host",
                operator="time.sleep" if rank else "forward",
                takes_ns=5_000 if rank else 20,
                step="s",
            )
        ]
        for _ in range(4):
            before = [
                build.add(
                    NodeKind.KERNEL,
                    rank=rank,
                    lane="stream 7",
                    name="gemm",
                    takes_ns=10_000,
                    after=before,
                    step="s",
                )
            ]
        ready[rank] = before
    build.collective(ready, transfer_ns=10, step="s")

    late = stragglers(simulate(build.graph())).ranks[0].causes

    assert [(one.rank, one.cause, one.subject) for one in late] == [
        (1, IdleCause.HOST, "time.sleep")
    ]
    assert late[0].waiting_ns == 4_980


def test_a_rank_that_was_not_recorded_can_be_the_last() -> None:
    build = GraphBuilder()
    kernel = build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10, step="s")
    ghost = build.add(NodeKind.GHOST, lane=None, takes_ns=700)
    build.collective({0: [kernel]}, transfer_ns=5, also_after=[Edge(ghost)], step="s")

    found = stragglers(simulate(build.graph()))

    assert found.last_rank.tolist() == [UNRECORDED_RANK]
    assert found.ranks[0].rank == UNRECORDED_RANK
    assert found.ranks[0].blame_ns == 690
    assert found.sentences(1)[0].startswith("a rank that was not recorded makes others wait")


def test_transfers_between_two_are_nobodys_fault() -> None:
    found = stragglers(rounds({0: [100] * 3, 1: [500] * 3}, name="sendrecv"))

    assert len(found) == 0
    assert all(rank.blame_ns == 0 for rank in found.ranks)
    assert found.sentences() == ()


@given(timeline=timelines())
def test_blame_and_own_waits_sum_to_all_waiting(timeline: Timeline) -> None:
    found = stragglers(timeline)

    total_ns = found.waiting_ns_of_all
    assert sum(rank.own_wait_ns for rank in found.ranks) == total_ns
    # shares are rounded once per rank, cause and subject
    num_causes = sum(len(rank.causes) for rank in found.ranks)
    blamed_ns = sum(rank.blame_ns for rank in found.ranks)
    assert blamed_ns <= total_ns + num_causes * (1 + len(found.subjects))
    assert sum(group.waiting_ns for group in found.groups) == total_ns
    assert total_ns <= int(np.maximum(collective_times(timeline).wait_ns, 0).sum())
    assert found.to_polars().height == len(found.ranks)
    assert found.to_polars("arrivals").height == len(found)
    assert isinstance(found.as_json(), dict)

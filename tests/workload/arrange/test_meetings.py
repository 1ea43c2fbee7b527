"""The k-th exchange of a group meets the k-th, and what lets each member go."""

import numpy as np

from foretrace.graph import Collective, EdgeKind
from foretrace.workload import BY_HUB, BY_ITSELF, BY_LEFT, BY_RIGHT, Meetings, meetings_of


def met(group: list[int], rank: list[int]) -> Meetings:
    arrive = 10 * np.arange(len(group))
    return meetings_of(
        arrive, arrive + 1, group=np.array(group, np.int64), rank=np.array(rank, np.int64)
    )


def ring(ranks: tuple[int, ...]) -> Collective:
    return Collective("send_recv", "dp", ranks, ranks, 0, 1, "fp32", is_transfer_estimated=False)


def test_exchanges_meet_by_their_turn_in_their_group() -> None:
    found = met(group=[0, 1, 0, 1, 0, 0], rank=[0, 0, 0, 1, 1, 1])

    assert found.first.tolist() == [0, 2, 4, 6]
    assert found.group.tolist() == [0, 0, 1]
    assert found.position.tolist() == [0, 1, 0]
    assert found.arrive.tolist() == [0, 40, 20, 50, 10, 30]
    assert found.collective.tolist() == [0, 0, 1, 1, 2, 2]


def test_no_exchange_is_no_meeting() -> None:
    found = met(group=[], rank=[])

    assert len(found) == 0
    assert len(found.edges(0, np.zeros(0, np.uint8), ())) == 0


def test_a_send_leaves_its_arrival_and_the_other_the_hub() -> None:
    found = met(group=[7, 7], rank=[0, 3])

    edges = found.edges(100, np.array([BY_ITSELF, BY_HUB], np.uint8), ())

    pairs = list(zip(edges.source.tolist(), edges.target.tolist(), strict=True))
    assert pairs == [(0, 100), (10, 100), (100, 11), (0, 1)]
    assert edges.kind.tolist() == [EdgeKind.ARRIVAL] * 2 + [EdgeKind.TRANSFER] * 2


def test_neighbours_in_a_ring_wait_for_those_that_are_here() -> None:
    found = met(group=[0, 0, 0], rank=[2, 4, 8])
    held_by = np.full(3, BY_LEFT | BY_RIGHT, np.uint8)

    edges = found.edges(100, held_by, [ring((2, 4, 6, 8))])

    is_transfer = edges.kind == EdgeKind.TRANSFER
    pairs = set(
        zip(edges.source[is_transfer].tolist(), edges.target[is_transfer].tolist(), strict=True)
    )
    assert pairs == {(10, 1), (20, 1), (0, 11), (0, 21)}  # rank 6 is not here

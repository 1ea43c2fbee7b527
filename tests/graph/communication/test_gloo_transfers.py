"""Sends and receives on the CPU: whom they name, when they are over, and what waits for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from foretrace.graph import NodeKind, Part, Recording
from foretrace.simulate import simulate
from tests.graph.gloo_files import NUM_BYTES, GlooRank
from tests.graph.recorded import recording_of_files, replayed_step_ns

WORLD = {"0": (0, 1)}
STEP_US = 2_000.0


def a_pair(*, clock_us: float = 0.0, call_us: float = 10.0) -> tuple[GlooRank, GlooRank]:
    """Rank 0 sends at 500 us and waits for it at 1,500; rank 1 waits from 100 and sends back."""
    first = GlooRank(0, WORLD, 2)
    first.work(0, 500)
    first.send(1, (500, 500 + call_us), 1_600)
    first.work(520 + call_us, 900)
    first.receive(1, (910, 920), 1_500)
    first.work(1_610, STEP_US)
    second = GlooRank(1, WORLD, 2, clock_us)
    second.work(0, 90)
    second.receive(0, (100, 110), 600)
    second.work(610, 1_400)
    second.send(0, (1_400, 1_410), 1_510)
    second.work(1_520, STEP_US)
    return first, second


def recorded(ranks: Sequence[GlooRank]) -> Recording:
    return recording_of_files([rank.text(STEP_US) for rank in ranks])


def finishes(recording: Recording, name: str) -> list[int]:
    """Nodes in which transfers of a kind are over, in order of the ranks."""
    graph = recording.graph
    is_named = np.array([text == name for text in graph.names])[graph.name]
    rows = np.flatnonzero(is_named & (graph.kind == NodeKind.FINISH))
    return sorted(rows.tolist(), key=lambda row: int(graph.rank[row]))


def pairs_of(recording: Recording) -> set[tuple[int, ...]]:
    return {each.recorded_ranks for each in recording.graph.collectives}


def test_a_send_meets_the_receive_that_names_it() -> None:
    graph = recorded(a_pair()).graph

    assert [(each.name, each.group, each.recorded_ranks) for each in graph.collectives] == [
        ("sendrecv", "0", (0, 1))
    ] * 2
    assert {each.num_bytes for each in graph.collectives} == {NUM_BYTES}
    assert not any(each.is_transfer_estimated for each in graph.collectives)


def test_a_send_is_over_when_it_was_received_not_when_it_was_waited_for() -> None:
    recording = recorded(a_pair())

    first, second = finishes(recording, "gloo:send")

    # The first went on and waited 1,100 us later; the second waited at once, and saw its own end.
    assert recording.graph.measured_ns[first] == 100_000
    assert recording.graph.measured_ns[second] == 110_000


def test_a_receive_that_is_waited_for_later_takes_no_longer_than_the_fastest() -> None:
    first, second = GlooRank(0, WORLD, 2), GlooRank(1, WORLD, 2)
    second.send(0, (60, 65), 100)
    first.receive(1, (10, 20), 100)
    first.send(1, (200, 210), 1_800)
    second.receive(0, (110, 120), 240)
    first.send(1, (300, 310), 1_801)
    first.work(320, 1_790)
    second.receive(0, (250, 260), 1_800)  # asked for here, awaited at the end
    second.work(270, 1_700)

    graph = recorded((first, second)).graph

    assert graph.measured_ns[graph.kind == NodeKind.FINISH].tolist() == [40_000] * 6


def test_a_late_sender_holds_its_receiver_up() -> None:
    recording = recorded(a_pair())
    graph = recording.graph
    first_work = int(np.flatnonzero((graph.rank == 0) & (graph.kind == NodeKind.OPERATOR))[0])
    slower_ns = graph.measured_ns.copy()
    slower_ns[first_work] += 700_000

    assert replayed_step_ns(recording) == [2_000_000, 2_000_000]
    assert replayed_step_ns(recording, slower_ns) == [2_700_000, 2_700_000]


def test_nobody_waits_for_a_receiver_before_it_asks_for_its_send() -> None:
    recording = recorded(a_pair())
    graph = recording.graph
    rows = np.flatnonzero((graph.rank == 0) & (graph.kind == NodeKind.OPERATOR))
    between = int(rows[1])  # follows the send, precedes all waiting
    base = simulate(graph)
    slower_ns = graph.measured_ns.copy()
    slower_ns[np.flatnonzero((graph.rank == 1) & (graph.kind == NodeKind.OPERATOR))[0]] += 10**6

    later = simulate(graph, slower_ns)

    assert later.end_ns[between] == base.end_ns[between]


def test_what_arrives_before_its_send_returned_is_no_contradiction() -> None:
    recording = recorded(a_pair(call_us=380))  # the call held the sender up, not the receiver

    timeline = simulate(recording.graph)

    receive = finishes(recording, "gloo:recv")[1]
    assert recording.graph.measured_ns[receive] == 100_000
    assert (timeline.end_ns == recording.measured.end_ns).all()


@pytest.mark.parametrize("clock_us", [0.0, 40_000.0, -123_456.0])
def test_transfers_both_ways_align_clocks(clock_us: float) -> None:
    recording = recorded(a_pair(clock_us=clock_us))

    # Both ways took 100 us, so the middle between the bounds is the difference itself.
    assert [clock.offset_ns for clock in recording.clocks] == [0, int(clock_us * 1_000)]


def a_grid() -> list[GlooRank]:
    """Two pipelines of two ranks, whose calls name places in the pipeline's own group."""
    ranks = []
    for rank in range(4):
        pipeline = (rank % 2, rank % 2 + 2)
        groups = {"0": (0, 1, 2, 3), f"pipe {rank % 2}": pipeline}
        own = GlooRank(rank, groups, 4)
        if rank < 2:
            own.work(0, 400)
            own.send(1, (400, 410), 900)
            own.work(420, 880)
        else:
            own.work(0, 100)
            own.receive(0, (110, 120), 500)
        own.work(1_000, STEP_US)
        ranks.append(own)
    return ranks


def test_places_are_those_of_the_group_in_which_peers_answer() -> None:
    recording = recorded(a_grid())

    assert pairs_of(recording) == {(0, 2), (1, 3)}
    assert {each.group for each in recording.graph.collectives} == {"pipe 0", "pipe 1"}


def test_a_peer_that_was_not_recorded_is_not_guessed_among_groups() -> None:
    recording = recorded(a_grid()[:1])

    assert pairs_of(recording) == {(0,)}


def test_tags_meet_their_own() -> None:
    first, second = GlooRank(0, WORLD, 2), GlooRank(1, WORLD, 2)
    first.work(0, 400)
    first.send(1, (400, 410), 1_000, tag="7")
    first.work(420, 600)
    first.send(1, (600, 610), 1_001)
    first.work(1_100, STEP_US)
    second.work(0, 100)
    second.receive(0, (110, 120), 700)  # what is sent second
    second.receive(0, (710, 720), 760, tag="7")
    second.work(1_000, STEP_US)

    recording = recorded((first, second))

    assert {each.group for each in recording.graph.collectives} == {"0", "0 tag 7"}
    assert replayed_step_ns(recording) == [2_000_000, 2_000_000]


def test_the_buffer_of_a_receive_is_part_of_it() -> None:
    first, second = a_pair()
    second.work(92, 98, name="aten::empty")

    graph = recorded((first, second)).graph

    is_buffer = np.array([text == "aten::empty" for text in graph.names])[graph.name]
    is_buffer &= graph.kind == NodeKind.OPERATOR
    assert graph.part[is_buffer].tolist() == [Part.TRANSFER]


def test_spans_of_transfers_enclose_nothing() -> None:
    graph = recorded(a_pair()).graph

    rows = np.flatnonzero((graph.kind == NodeKind.OPERATOR) & (graph.rank == 0))

    assert {graph.names[graph.operator[row]] for row in rows.tolist()} == {"aten::mm"}

"""Packers lose nothing, give nothing twice, keep to their lengths, and balance as published."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from foretrace.balance import (
    Documents,
    DocumentWork,
    Greedy,
    LogNormal,
    OutlierQueues,
    PackedStep,
    Piece,
    Room,
    arrivals,
    imbalance,
    overhead_ms,
    packed_stream,
    tuned_queues,
    work_by_microbatch,
)
from tests.balance.conftest import WINDOW, all_packers

LENGTHS = st.lists(st.integers(1, 2 * WINDOW), min_size=1, max_size=120)
NUM_PACKERS = 8


def tokens_of(pieces: list[Piece]) -> Counter[tuple[int, int]]:
    """Every token of every document, and how often it is there."""
    return Counter(
        (piece.document, token)
        for piece in pieces
        for token in range(piece.begin, piece.begin + piece.length)
    )


def pieces_in(steps: list[PackedStep]) -> list[Piece]:
    return list(chain.from_iterable(chain.from_iterable(steps)))


@pytest.mark.parametrize("number", range(NUM_PACKERS))
@settings(max_examples=25, deadline=None)
@given(lengths=LENGTHS)
def test_every_token_is_packed_once_or_held(number: int, lengths: list[int]) -> None:
    small = 64
    room = Room(small, 4, small * 3 // 2)
    packer = all_packers(room, DocumentWork.of_share(small, 0.7))[number]
    shorter = [1 + length % (2 * small) for length in lengths]
    arrived = list(arrivals(shorter, room))

    steps = [step for each in arrived for step in packer.packed(each)]
    held = list(chain.from_iterable(packer.held()))

    assert tokens_of(pieces_in(steps) + held) == tokens_of(list(chain.from_iterable(arrived)))
    assert tokens_of(pieces_in(packer.emptied())) == tokens_of(held)
    assert not list(chain.from_iterable(packer.held()))


@pytest.mark.parametrize("number", range(NUM_PACKERS))
@settings(max_examples=25, deadline=None)
@given(lengths=LENGTHS)
def test_microbatches_keep_to_their_length_and_none_is_empty(
    number: int, lengths: list[int]
) -> None:
    room = Room(WINDOW, 4, WINDOW * 3 // 2)
    packer = all_packers(room, DocumentWork.of_share(WINDOW, 0.7))[number]

    for arrived in arrivals(lengths, room):
        for step in packer.packed(arrived):
            sizes = [sum(piece.length for piece in microbatch) for microbatch in step]
            assert len(sizes) == room.num_microbatches
            assert min(sizes) > 0
            limit = room.longest if packer.keeps_documents_whole else room.window
            assert max(sizes) <= limit


@pytest.mark.parametrize("number", range(NUM_PACKERS))
@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.integers(1, WINDOW), min_size=20, max_size=120), stop=st.integers(0, 40))
def test_stopping_and_going_on_changes_nothing(number: int, lengths: list[int], stop: int) -> None:
    room = Room(WINDOW, 4, WINDOW * 3 // 2)
    work = DocumentWork.of_share(WINDOW, 0.7)
    whole, first, second = (all_packers(room, work)[number] for _ in range(3))
    arrived = list(arrivals(lengths, room))
    at = min(stop, len(arrived))

    straight = [step for each in arrived for step in whole.packed(each)]
    before = [step for each in arrived[:at] for step in first.packed(each)]
    second.restore(first.held())
    after = [step for each in arrived[at:] for step in second.packed(each)]

    assert before + after == straight


@settings(max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(1, WINDOW), min_size=40, max_size=300))
def test_outliers_of_a_queue_leave_it_in_the_order_of_their_arrival(lengths: list[int]) -> None:
    room = Room(WINDOW, 4, WINDOW * 3 // 2)
    queues = OutlierQueues(room, DocumentWork.of_share(WINDOW, 0.7), (WINDOW // 2,))
    steps = [step for each in arrivals(lengths, room) for step in queues.packed(each)]
    left = {piece.document for piece in queues.held()[0]}

    place = {
        piece.document: number
        for number, step in enumerate(steps)
        for piece in chain.from_iterable(step)
        if piece.length >= WINDOW // 2
    }
    gone = sorted(place)
    waiting = {piece.document for piece in queues.held()[1]}

    assert not [one for one in waiting if gone and one < max(gone) and one not in left]


def test_balance_comes_in_the_published_order(room: Room, work: DocumentWork) -> None:
    documents = Documents("law", law=LogNormal(4.8, 1.4))
    lengths = documents.arriving(400 * room.step_tokens, seed=1)
    queues = tuned_queues(room, work, documents, num_queues=2, seed=1)
    found = {}
    for packer in [*all_packers(room, work), queues]:
        stream = packed_stream(packer, arrivals(lengths.tolist(), room))
        found[packer.name] = imbalance(work_by_microbatch(stream, work))

    greedy = [found[f"greedy over {count}"] for count in (1, 2, 4, 8)]
    assert [found["as it comes"], *greedy] == sorted([found["as it comes"], *greedy], reverse=True)
    assert found["2 outlier queues"] <= 1.10


def test_packers_take_a_small_part_of_a_step() -> None:
    window = 131_072
    room = Room(window, 4, window * 3 // 2)
    work = DocumentWork.of_share(window, 0.8)
    lengths = Documents("law", law=LogNormal(8.3, 1.4)).arriving(50 * room.step_tokens)

    streams = [
        packed_stream(packer, arrivals(lengths.tolist(), room))
        for packer in (*all_packers(room, work)[:3], *all_packers(room, work)[-2:])
    ]

    # Counts, not times: pieces looked at for each step stay those of about one step's documents.
    per_step = len(lengths) / 50
    assert all(len(pieces_in(list(one.steps))) <= 2 * per_step * len(one.steps) for one in streams)
    assert all(overhead_ms(one) > 0 for one in streams)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1000))
def test_a_solver_is_at_most_a_tenth_better(seed: int) -> None:
    room = Room(WINDOW, 4, WINDOW * 3 // 2)
    work = DocumentWork.of_share(WINDOW, 0.7)
    generator = np.random.default_rng(seed)
    lengths = np.clip(generator.lognormal(5.9, 0.9, 24), 1, WINDOW).astype(np.int64)
    assume(lengths.sum() <= 3 * WINDOW)
    pieces = [Piece(at, 0, int(length), 0) for at, length in enumerate(lengths)]

    (step,) = OutlierQueues(room, work, ()).packed(pieces)
    packed = max(
        float(work.work_of(np.array([piece.length for piece in one])).sum()) for one in step
    )

    assert packed <= 1.10 * least_possible(lengths, room, work)


def least_possible(lengths: np.ndarray, room: Room, work: DocumentWork) -> float:
    """The smallest largest work of a microbatch, by integer programming (HiGHS)."""
    count, bins = len(lengths), room.num_microbatches
    own = work.work_of(lengths)
    cost = np.append(np.zeros(count * bins), 1.0)
    once = np.hstack([np.kron(np.eye(count), np.ones((1, bins))), np.zeros((count, 1))])
    load = np.hstack([np.kron(own[None], np.eye(bins)), -np.ones((bins, 1))])
    fits = np.hstack([np.kron(lengths[None], np.eye(bins)), np.zeros((bins, 1))])
    integral = np.append(np.ones(count * bins), 0)
    # A bound, not the optimum, where time runs out: only ever too strict.
    found = milp(
        cost,
        constraints=[
            LinearConstraint(once, 1, 1),
            LinearConstraint(load, -np.inf, 0),
            LinearConstraint(fits, -np.inf, room.longest),
        ],
        integrality=integral,
        bounds=Bounds(0, np.append(np.ones(count * bins), np.inf)),
        options={"time_limit": 5.0, "mip_rel_gap": 0.01},
    )
    return float(found.mip_dual_bound)


@pytest.mark.parametrize("number", range(NUM_PACKERS))
@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 3 * WINDOW), min_size=10, max_size=120))
def test_no_token_is_trained_before_it_comes_but_among_steps_packed_together(
    number: int, lengths: list[int]
) -> None:
    room = Room(WINDOW, 4, WINDOW * 3 // 2)
    packer = all_packers(room, DocumentWork.of_share(WINDOW, 0.7))[number]

    stream = packed_stream(packer, arrivals(lengths, room))

    together = packer.num_steps if isinstance(packer, Greedy) else 1
    assert list(stream.numbers) == sorted(set(stream.numbers))
    assert stream.delays()[0].min(initial=0) > -together


def test_equal_documents_one_giant_and_single_tokens_stay_balanced(
    room: Room, work: DocumentWork
) -> None:
    small = Room(64, 4, 96)
    mixes = [(room, [WINDOW] * 64), (room, [16 * room.step_tokens]), (small, [1] * 4_096)]
    for size, lengths in mixes:
        own = work if size is room else DocumentWork.of_share(64, 0.7)
        for packer in all_packers(size, own):
            stream = packed_stream(packer, arrivals(lengths, size))
            assert imbalance(work_by_microbatch(stream, own)) == pytest.approx(1.0)

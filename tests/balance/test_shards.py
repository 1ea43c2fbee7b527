"""Shards of context parallelism: all tokens once, and work as even as can be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.balance import (
    ContextShards,
    DocumentWork,
    context_places,
    slowest_attention_ns,
    slowest_rank,
)

WINDOW = 65_536
SQUARE = DocumentWork.of_share(WINDOW, 1.0)


@given(length=st.integers(1, 500), num_ranks=st.integers(1, 8), offset=st.integers(0, 7))
def test_ranks_share_every_token_once(length: int, num_ranks: int, offset: int) -> None:
    shared = [context_places(length, num_ranks, rank, offset=offset) for rank in range(num_ranks)]

    assert sorted(np.concatenate(shared).tolist()) == list(range(length))
    sizes = [len(each) for each in shared]
    assert max(sizes) - min(sizes) <= 1


def test_one_document_is_shared_alike_either_way() -> None:
    whole = np.array([WINDOW])

    by_sequence = slowest_attention_ns(whole, SQUARE, 4, shards=ContextShards.BY_SEQUENCE)
    by_document = slowest_attention_ns(whole, SQUARE, 4, shards=ContextShards.BY_DOCUMENT)

    assert by_sequence == pytest.approx(by_document)


def test_one_rank_has_all_the_work() -> None:
    lengths = np.array([100, 5000, 40_000])

    for shards in ContextShards:
        found = slowest_attention_ns(lengths, SQUARE, 1, shards=shards)
        assert found == pytest.approx(float(SQUARE.attention_of(lengths).sum()))


def test_documents_are_shared_more_evenly_than_the_sequence() -> None:
    lengths = np.array([WINDOW // 2, WINDOW // 4, WINDOW // 4])
    even = float(SQUARE.attention_of(lengths).sum()) / 4

    by_sequence = slowest_attention_ns(lengths, SQUARE, 4, shards=ContextShards.BY_SEQUENCE)
    by_document = slowest_attention_ns(lengths, SQUARE, 4, shards=ContextShards.BY_DOCUMENT)

    assert by_document == pytest.approx(even, rel=0.01)
    assert by_sequence > 1.2 * even


def test_short_documents_are_better_left_whole() -> None:
    lengths = np.full(64, 200)

    by_sequence = slowest_attention_ns(lengths, SQUARE, 8, shards=ContextShards.BY_SEQUENCE)
    by_document = slowest_attention_ns(lengths, SQUARE, 8, shards=ContextShards.BY_DOCUMENT)
    adaptive = slowest_attention_ns(lengths, SQUARE, 8, shards=ContextShards.ADAPTIVE)

    assert by_sequence < by_document
    assert adaptive == by_sequence


def test_groups_of_ranks_suit_what_a_microbatch_holds() -> None:
    short, one = np.full(64, 512), np.array([WINDOW])
    linear = DocumentWork.of_share(WINDOW, 0.5)

    of_short = slowest_rank(short, linear, 8, shards=ContextShards.DYNAMIC, longest=WINDOW)
    of_one = slowest_rank(one, linear, 8, shards=ContextShards.DYNAMIC, longest=WINDOW)

    assert of_short.group < of_one.group == 8
    assert of_short.tokens == pytest.approx(float(short.sum()))


@pytest.mark.parametrize("shortest_ns", [100.0, 150.0])
def test_work_that_was_measured_is_given_back(shortest_ns: float) -> None:
    lengths = np.array([64, 256, 1024])
    packed_ns = np.array([shortest_ns, 130.0, 400.0])  # 150: many documents cost time of their own

    work = DocumentWork.of_measured(1024, lengths, packed_ns)

    found = [float(work.work_of(np.full(1024 // each, each)).sum()) for each in lengths.tolist()]
    assert found == pytest.approx(packed_ns.tolist())

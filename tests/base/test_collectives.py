"""Kinds of communication, their names and their traffic."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import CollectiveKind, collective_kind_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce_coalesced", "allreduce"),
        ("_allgather_base", "allgather"),
        ("ALLGATHER_coalesced", "allgather"),
        ("_reduce_scatter_base", "reducescatter"),
        ("reduce_scatter_tensor_coalesced", "reducescatter"),
        ("all_to_allv", "alltoall"),
        ("c10d::alltoall_base_", "alltoall"),
        ("recv", "recv"),
        ("scatter", "scatter"),
        ("gather", "gather"),
        ("all-reduce", "allreduce"),
        ("send/recv", "sendrecv"),
        ("wait", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_words_of_metadata_and_people_give_kinds(name: str, kind: str) -> None:
    assert collective_kind_of(name) == kind


@pytest.mark.parametrize("kind", CollectiveKind)
def test_every_spelling_of_a_kind_is_read_as_it(kind: CollectiveKind) -> None:
    assert collective_kind_of(kind.value) is kind
    assert collective_kind_of(kind.in_tables) is kind


def test_bus_traffic_is_nccl_tests_own_count() -> None:
    ranks = np.array([2.0, 8.0])

    assert CollectiveKind.ALL_REDUCE.bus_share(ranks).tolist() == [1.0, 1.75]
    assert CollectiveKind.ALL_GATHER.bus_share(ranks).tolist() == [0.5, 0.875]
    assert CollectiveKind.SEND_RECV.bus_share(ranks).tolist() == [1.0, 1.0]


def test_messages_quote_a_kind_as_its_text() -> None:
    assert f"{CollectiveKind.ALL_REDUCE!r}" == "'allreduce'"

"""Exchanges by DeepEP and Hybrid-EP take what the libraries published."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import CollectiveKind, Dispatched, Library, collective_kind_of, distinct
from foretrace.cost import CollectiveRequests, Source, collective_costs
from foretrace.machine import Machine, load_machine

TOKENS, HIDDEN, TOP = 4096, 7168, 8


def exchange_ns(library: Library, machine: Machine, num_ranks: int, *, most: int = 0) -> float:
    """4,096 tokens of 7,168 numbers in 16 bits, top 8."""
    name = Dispatched(library, TOP, most_hosts=most).name
    copies = float(distinct(num_ranks, TOP))
    one = np.zeros(1, np.int32)
    num_bytes = np.array([round(TOKENS * copies * HIDDEN * 2)], np.int64)
    group = tuple(range(num_ranks))
    requests = CollectiveRequests(one, num_bytes, one, one, (name,), ("bf16",), (group,))
    found = collective_costs(requests, machine)
    assert found.source[0] == Source.TRANSFERRED
    assert found.low_ns[0] < found.duration_ns[0] < found.high_ns[0]
    return float(found.duration_ns[0])


@pytest.mark.parametrize(
    ("machine", "num_ranks", "published"),
    [
        ("gb200-nvl72", 8, (545.71, 568.94)),
        ("gb200-nvl72", 16, (523.48, 521.55)),
        ("gb200-nvl72", 36, (479.02, 447.89)),
        ("dgx-b200", 8, (535.94, 530.86)),
    ],
)
def test_hybrid_ep_inside_a_domain_takes_what_its_table_says(
    machine: str, num_ranks: int, published: tuple[float, float]
) -> None:
    taken_ns = exchange_ns(Library.HYBRID_EP, load_machine(machine), num_ranks)

    sent = TOKENS * float(distinct(num_ranks, TOP)) * HIDDEN * 2
    assert sent / taken_ns == pytest.approx(sum(published) / 2, rel=0.08)


@pytest.mark.parametrize(("num_ranks", "published"), [(16, 53.9), (32, 49.9), (64, 43.9)])
def test_hybrid_ep_between_hosts_takes_what_its_table_says(
    num_ranks: int, published: float
) -> None:
    machine = load_machine("superpod-h100")

    taken_ns = exchange_ns(Library.HYBRID_EP, machine, num_ranks)

    sent = TOKENS * float(distinct(num_ranks // 8, TOP)) * HIDDEN * 2
    assert sent / taken_ns == pytest.approx(published, rel=0.25)


def test_deep_ep_takes_what_its_processors_copy() -> None:
    taken_ns = exchange_ns(Library.DEEP_EP, load_machine("dgx-b200"), 8)

    away = TOKENS * float(distinct(8, TOP)) * HIDDEN * 2 * 7 / 8
    assert away / taken_ns == pytest.approx(20 * 17.0, rel=0.01)


def test_a_router_that_limits_hosts_sends_less_between_them() -> None:
    machine = load_machine("superpod-h100")

    limited = exchange_ns(Library.DEEP_EP, machine, 64, most=4)

    assert limited < exchange_ns(Library.DEEP_EP, machine, 64)


def test_neighbouring_experts_of_few_ranks_are_few_copies() -> None:
    neighbours = Dispatched(Library.DEEP_EP, 8, most_ranks=2)

    assert neighbours.copies(64) == 2
    assert neighbours.copies(1) == 1
    assert neighbours.hosts_reached(8) == 2
    assert Dispatched(Library.DEEP_EP, 8, most_hosts=1, most_ranks=2).hosts_reached(8) == 1


def test_names_say_library_choices_and_hosts_and_are_all_to_all() -> None:
    for what in (
        Dispatched(Library.DEEP_EP, 8, 8, 4),
        Dispatched(Library.HYBRID_EP, 4),
        Dispatched(Library.DEEP_EP, 8, 8, 0, 2),
    ):
        assert Dispatched.named(what.name) == what
        assert collective_kind_of(what.name) is CollectiveKind.ALL_TO_ALL
    assert Dispatched.named("alltoall") is None

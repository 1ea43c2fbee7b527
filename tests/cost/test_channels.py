"""Channels of NCCL: what they carry, which cards they leave idle, what kernels beside them lose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.base import MachineError, channels_of, collective_kind_of, in_channels
from foretrace.cost import CollectiveRequests, Inflation, collective_costs, collective_loads
from foretrace.cost.inflation import inflated
from foretrace.graph import NodeKind
from foretrace.machine import links_of, load_machine, with_hosts
from tests.graphs import GraphBuilder, timeline_of

LONG = 8 << 30
HOSTS = with_hosts(load_machine("dgx-h100"), 32)
CARD, CHANNEL = 50.0, 36.7  # GB/s


def bus_bytes_per_ns(name: str, group: tuple[int, ...]) -> float:
    """Bus bandwidth of a long message."""
    one = np.zeros(1, np.int32)
    size = np.array([LONG], np.int64)
    requests = CollectiveRequests(one, size, one, one, (name,), ("bf16",), (group,))
    taken_ns = int(collective_costs(requests, HOSTS).duration_ns[0])
    return LONG * (len(group) - 1) / len(group) / taken_ns


def test_a_name_says_how_many_channels_a_collective_takes() -> None:
    name = in_channels("allgather", 8)

    assert channels_of(name) == 8
    assert channels_of("allgather") == 0
    assert collective_kind_of(name) == "allgather"


def test_a_few_channels_carry_so_much_each_and_many_as_much_as_links_do() -> None:
    host = tuple(range(8))
    alone = bus_bytes_per_ns("allgather", host)

    for count in (1, 2, 4, 8):
        found = bus_bytes_per_ns(in_channels("allgather", count), host)
        # A rank copies its own part beside what it sends.
        assert 0.9 * count * CHANNEL < found < count * CHANNEL
    assert bus_bytes_per_ns(in_channels("allgather", 24), host) == alone


def test_a_ring_leaves_a_host_by_one_card() -> None:
    group = tuple(range(32))
    alone = bus_bytes_per_ns("allgather", group)

    for count in (1, 2, 4):
        found = bus_bytes_per_ns(in_channels("allgather", count), group)
        # Below a card's; the same channels pass the message on inside the host.
        assert 0.8 * count * CHANNEL < found < count * CHANNEL
    assert bus_bytes_per_ns(in_channels("allgather", 32), group) == alone
    links = links_of(HOSTS)
    loads = collective_loads(in_channels("allgather", 2), np.arange(32)[None], links)
    cards = loads.load[loads.link >= links.first_link[2 * links.card_tier]]
    assert len(cards) == 4 * 2 * 2  # of 32 each way
    assert cards == pytest.approx(31 / 32 / 2)


def test_what_leaves_a_host_by_fewer_cards_passes_more_ports() -> None:
    links = links_of(HOSTS)
    group = np.arange(32)[None]
    first = links.first_link[2]

    for count in (1, 3, 8):
        loads = collective_loads(in_channels("allgather", count), group, links)
        # Every ring goes from one member to the next of a host, and not from its last on.
        assert loads.load[loads.link < first].sum() == pytest.approx(2 * 4 * 7 * 31 / 32)


def test_shares_of_a_crowded_link_are_as_channels() -> None:
    links = links_of(HOSTS)
    pair = np.array([[0, 8]])

    two, six = (collective_loads(in_channels("allreduce", count), pair, links) for count in (2, 6))

    assert six.connections / two.connections == 3
    assert collective_loads("allreduce", pair, links).connections == 1


def test_kernels_beside_few_channels_lose_less() -> None:
    grown = {}
    for name in ("allreduce", *(in_channels("allreduce", count) for count in (6, 24, 36))):
        build = GraphBuilder()
        build.collective({0: []}, transfer_ns=10_000, name=name)
        build.add(NodeKind.KERNEL, lane="stream 7", name="ampere_sgemm_128x64", takes_ns=8_000)
        timeline = timeline_of(build.graph(), [0, 0, 0, 1_000])
        found = inflated(timeline, timeline.duration_ns, Inflation(otherwise=1.2))
        grown[channels_of(name)] = int(found[-1])

    assert grown == {0: 9_600, 6: 8_400, 24: 9_600, 36: 10_400}


def test_channels_of_chips_that_nccl_does_not_know_are_refused() -> None:
    chip = replace(HOSTS.chip, name="other", architecture="CDNA 3")
    machine = replace(HOSTS, host=replace(HOSTS.host, chip=chip))
    one = np.zeros(1, np.int32)
    name = in_channels("allgather", 4)
    requests = CollectiveRequests(
        one, np.array([LONG], np.int64), one, one, (name,), ("bf16",), ((0, 1),)
    )

    with pytest.raises(MachineError, match=r"'other' is 'CDNA 3': leave \[channels\] out"):
        collective_costs(requests, machine)

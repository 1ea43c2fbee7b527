from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.base import CollectiveKind, Float64s
from foretrace.cost import CollectiveRequests, Source, collective_costs, even_total
from foretrace.cost.network import GroupSpan, span_of
from foretrace.cost.network.tiers import CONSTANTS, TAPER, TAPER_BEYOND, tiers_ns
from foretrace.machine import Machine, Tier, TierKind, load_machine, with_hosts

ALL_GATHER = CollectiveKind.ALL_GATHER
ALL_REDUCE = CollectiveKind.ALL_REDUCE
ALL_TO_ALL = CollectiveKind.ALL_TO_ALL
SEND_RECV = CollectiveKind.SEND_RECV

START = {one.name: one.start for one in CONSTANTS}


def tier(name: str, num_ranks: int, rate: float, **more: float) -> Tier:
    return Tier(
        name=name,
        kind=TierKind.POD,
        technology="wire",
        num_ranks=num_ranks,
        bytes_per_ns=rate,
        oversubscription=more.get("oversubscription", 1.0),
        latency_ns=more.get("latency_ns"),
        num_rails=None,
    )


@pytest.fixture
def machine() -> Machine:
    """4 chips a host at 100 GB/s, 4 hosts a pod at 10 GB/s, 4 pods at a quarter of that."""
    tiers = (
        tier("host", 4, 100),
        tier("pod", 16, 10, latency_ns=5_000),
        tier("building", 64, 10, oversubscription=4, latency_ns=20_000),
    )
    return replace(load_machine("superpod-h100"), tiers=tiers)


def taken_ns(collective: CollectiveKind, size: float, span: GroupSpan, **values: float) -> float:
    sizes: Float64s = np.array([size])
    none = np.zeros(1)
    return float(tiers_ns(collective, sizes, span, inside_ns=none, values=START | values)[0])


def test_a_group_inside_a_host_spans_no_level(machine: Machine) -> None:
    assert span_of([4, 5, 7], machine) == GroupSpan(3, 3, 1, ())


def test_a_group_of_whole_hosts_sends_by_all_its_members(machine: Machine) -> None:
    span = span_of(range(16), machine)

    assert (span.num_ranks, span.num_inside, span.num_domains) == (16, 4, 4)
    assert span.ring_bytes_per_ns == 4 * 10
    assert span.levels[0].num_crossings == 3


def test_a_group_of_one_chip_per_host_gets_one_chip_s_share(machine: Machine) -> None:
    span = span_of(range(0, 16, 4), machine)

    assert (span.num_inside, span.num_domains) == (1, 4)
    assert span.ring_bytes_per_ns == 10


def test_a_pod_s_members_share_what_its_uplinks_leave(machine: Machine) -> None:
    wide = span_of(range(0, 64, 4), machine)  # four members in each pod, one in each host
    thin = span_of(range(0, 64, 16), machine)  # one in each pod

    assert wide.ring_bytes_per_ns == min(1 * 10, 4 * 10 / 4)
    assert thin.ring_bytes_per_ns == 10 / 4
    assert [level.num_crossings for level in wide.levels] == [12, 3]
    assert [level.num_crossings for level in thin.levels] == [3]


def test_long_rings_take_their_bytes_over_the_narrowest_level(machine: Machine) -> None:
    span = span_of(range(16), machine)
    size = 1e12

    time_ns = taken_ns(ALL_GATHER, size, span, network_rate=1.0)

    assert time_ns == pytest.approx(size * 15 / 16 / 40, rel=1e-3)


def test_short_messages_go_up_and_down_a_tree(machine: Machine) -> None:
    span = span_of(range(16), machine)

    time_ns = taken_ns(ALL_REDUCE, 8, span)

    assert time_ns == pytest.approx(START["start_ns"] + 2 * 2 * START["tree_hop_ns"], rel=1e-3)


def test_hops_of_a_ring_grow_with_hosts_and_of_a_tree_with_their_logarithm() -> None:
    pod = load_machine("llama3-24k")
    small, large = span_of(range(128), pod), span_of(range(2048), pod)
    inner = START["start_ns"]

    trees = [taken_ns(ALL_REDUCE, 8, span) - inner for span in (small, large)]
    rings = [taken_ns(ALL_GATHER, 8, span) - inner for span in (small, large)]

    assert 1.5 < trees[1] / trees[0] < 4
    assert rings[1] / rings[0] > 10


def test_all_to_all_pays_for_what_leaves_each_level(machine: Machine) -> None:
    size = 1e12
    inside_a_pod = taken_ns(ALL_TO_ALL, size, span_of(range(16), machine), network_rate=1.0)

    across_pods = taken_ns(ALL_TO_ALL, size, span_of(range(64), machine), network_rate=1.0)

    assert inside_a_pod == pytest.approx(size * 12 / 16 / 10, rel=1e-3)
    assert across_pods == pytest.approx(size * 48 / 64 / 2.5, rel=1e-3)


def test_a_transfer_between_pods_pays_the_further_latency(machine: Machine) -> None:
    near = taken_ns(SEND_RECV, 8, span_of([0, 4], machine))

    far = taken_ns(SEND_RECV, 8, span_of([0, 16], machine))

    assert near == pytest.approx(START["start_ns"] + START["tree_hop_ns"], rel=1e-3)
    assert far - near == pytest.approx(15_000, rel=1e-2)


def test_a_taper_slows_groups_beyond_the_fitted_ones_only(machine: Machine) -> None:
    small, large = span_of(range(16), machine), span_of(range(64), machine)
    values = {TAPER: 2.0, TAPER_BEYOND: 4.0}

    ratios = [
        taken_ns(ALL_GATHER, 1e12, span, **values) / taken_ns(ALL_GATHER, 1e12, span)
        for span in (small, large)
    ]

    assert ratios == pytest.approx([1, 2], rel=1e-3)


def test_the_part_inside_hosts_overlaps(machine: Machine) -> None:
    span = span_of(range(16), machine)
    sizes = np.array([1e9])
    outside_ns = taken_ns(ALL_GATHER, 1e9, span)

    both = tiers_ns(ALL_GATHER, sizes, span, inside_ns=np.array([outside_ns]), values=START)

    assert outside_ns < both[0] < 1.3 * outside_ns


def test_an_uneven_all_to_all_is_as_long_as_its_busiest_rank() -> None:
    even = np.full((4, 4), 100.0)
    uneven = even.copy()
    uneven[1, 2] = 400.0
    uneven[3, 3] = 9_000.0  # stays where it is

    assert even_total(even) == 400
    assert even_total(uneven) == 800  # 600 bytes leave rank 1, as if of 800


def test_a_cluster_costs_more_the_further_a_group_reaches() -> None:
    groups = (
        tuple(range(8)),
        tuple(range(16)),
        tuple(range(0, 3072, 8)),
        tuple(range(0, 24576, 8)),
    )
    zeros = np.zeros(len(groups), np.int32)
    requests = CollectiveRequests(
        collective=zeros,
        num_bytes=np.full(len(groups), 1 << 28, np.int64),
        dtype=zeros,
        group=np.arange(len(groups), dtype=np.int32),
        collectives=("reduce_scatter",),
        dtypes=("bf16",),
        groups=groups,
    )

    costs = collective_costs(requests, load_machine("llama3-24k"))

    assert (np.diff(costs.duration_ns) > 0).all()
    assert costs.source.tolist() == [Source.TRANSFERRED] * 4


def test_alps_itself_is_fitted() -> None:
    zero = np.zeros(1, np.int32)
    requests = CollectiveRequests(
        collective=zero,
        num_bytes=np.array([1 << 30], np.int64),
        dtype=zero,
        group=zero,
        collectives=("all_reduce",),
        dtypes=("fp32",),
        groups=(tuple(range(32)),),
    )

    costs = collective_costs(requests, load_machine("alps-gh200-10k"))

    assert costs.source.tolist() == [Source.FITTED]
    # Published: 22.5 to 22.8 ms with the settings a system has without any doing.
    assert costs.duration_ns[0] == pytest.approx(22.6e6, rel=0.1)


def test_a_place_outside_the_machine_is_refused(machine: Machine) -> None:
    with pytest.raises(ValueError, match="outside"):
        span_of([0, 64], machine)


def test_trees_between_two_hosts_carry_what_channels_of_their_cards_do() -> None:
    def bus_bytes_per_ns(name: str, cards: int, card: float, dtype: str = "fp32") -> float:
        base = load_machine(name)
        host = replace(base.host, num_nics=cards, nic_bytes_per_ns=card)
        group = tuple(range(16))
        one, size = np.zeros(1, np.int32), np.array([8 << 30], np.int64)
        requests = CollectiveRequests(one, size, one, one, ("allreduce",), (dtype,), (group,))
        costs = collective_costs(requests, with_hosts(replace(base, host=host), 16))
        return float(size[0] / costs.duration_ns[0]) * 2 * 15 / 16

    # A channel of an Ampere chip carries 23.6 GB/s, every byte twice, and a card of 25 GB/s has
    # one: less than a ring gets of it. On Hopper it carries 41.4, and trees use the card twice.
    assert bus_bytes_per_ns("dgx-a100", 4, 25.0) == pytest.approx(4 * 25 * 0.96, rel=0.01)
    assert bus_bytes_per_ns("dgx-a100", 2, 25.0) == pytest.approx(2 * 25 * 0.96, rel=0.01)
    assert bus_bytes_per_ns("dgx-a100", 4, 12.5) > 1.5 * 4 * 12.5
    assert bus_bytes_per_ns("dgx-h100", 4, 25.0) > 1.5 * 4 * 25
    # Cards of 50 GB/s have two channels each on Ampere.
    found = bus_bytes_per_ns("dgx-a100", 2, 50.0)
    assert found == pytest.approx(2 * 50 * 0.96, rel=0.01)

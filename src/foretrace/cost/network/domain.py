"""How long a collective takes inside one scale-up domain: NVLink behind switches, or the like.

NCCL moves data in one of three ways. LL sends 4 bytes of data with 4 of a flag and LL128 120 of
128 bytes, so that nobody waits for a memory fence; Simple sends whole chunks and waits for each.
The first is quickest to start and slowest to move, the last the reverse; a library that chooses
well takes the shortest. Time is a start, hops that follow one another, and bytes over a share of
the links. Sizes and bus traffic are counted as nccl-tests counts them:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from foretrace.base import PARTED, CollectiveKind, Float64s, MachineError, collective_kind_of
from foretrace.cost.fitting import Constant
from foretrace.machine import Chip

CONSTANTS = (
    Constant("start_ns", "ns", "launch, and the first sight of each other", 1_000, 50_000, 8_000),
    Constant("ll_hop_ns", "ns", "one hop with a flag beside each word", 50, 20_000, 1_200),
    Constant("ll128_hop_ns", "ns", "one hop with a flag in each 128 bytes", 50, 20_000, 1_500),
    Constant("simple_hop_ns", "ns", "one hop with a fence for each chunk", 50, 50_000, 3_000),
    Constant("link_rate", "", "bus traffic of long messages, of the links", 0.1, 2.0, 0.8),
    Constant("ll_rate", "", "of that, with a flag beside each word", 0.02, 0.6, 0.3),
    Constant("ll128_rate", "", "of that, with a flag in each 128 bytes", 0.2, 1.0, 0.9),
    Constant("ramp_ns", "ns", "until all channels are full", 3, 100_000, 500),
    Constant("own_share", "", "a rank's own part, copied beside the rest", 0.01, 2, 0.3),
    Constant("hop_growth", "", "exponent of the number of hops: 1 in turn", 0.3, 1.2, 1.0),
)

COLLECTIVES = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.BROADCAST,
    CollectiveKind.REDUCE,
    CollectiveKind.SEND_RECV,
)
# Whose messages go from rank to rank, all at once.
DIRECT = (CollectiveKind.ALL_TO_ALL, CollectiveKind.SEND_RECV)


def collective_named(name: str) -> CollectiveKind | None:
    """The one of `COLLECTIVES` that a library's name means; sends and receives are one.

    What one rank gathers, or scatters, are sends and receives in one group (PyTorch,
    torch/csrc/cuda/nccl.cpp, `gather` and `scatter`): that rank's links carry what each rank's do
    in an all-to-all.
    """
    kind = collective_kind_of(name)
    known = CollectiveKind.SEND_RECV if kind.is_transfer else kind
    if kind in (CollectiveKind.GATHER, CollectiveKind.SCATTER):
        known = CollectiveKind.ALL_TO_ALL
    return known if known in COLLECTIVES else None


def domain_ns(
    collective: CollectiveKind,
    num_bytes: Float64s,
    num_ranks: Float64s,
    *,
    chip: Chip,
    values: Mapping[str, float],
    mesh: int = 0,
    most_bytes_per_ns: float = np.inf,
) -> Float64s:
    """Duration of each collective from the last arrival on, float64[rows], in ns.

    Args:
        collective: one of `COLLECTIVES`.
        num_bytes: float64[rows], as nccl-tests counts them.
        num_ranks: float64[rows], at least 2.
        chip: whose links the domain joins.
        values: of `CONSTANTS`.
        mesh: chips of the host, each of which has its own links to each other; 0: a switch.
        most_bytes_per_ns: that a rank's channels carry.

    Raises:
        MachineError: if the chip's description has no links.
    """
    if chip.link_bytes_per_ns is None:
        raise MachineError(
            f"chip {chip.name!r} gives no link_bandwidth, which the cost of a collective needs: "
            "add it to its file."
        )
    rate = chip.link_bytes_per_ns * values["link_rate"] * _share_of_links(num_ranks, mesh)
    rate = np.minimum(rate, most_bytes_per_ns)
    own = collective.num_rounds if collective in {CollectiveKind.ALL_REDUCE, *PARTED} else 0
    moved = num_bytes * (collective.bus_share(num_ranks) + values["own_share"] * own / num_ranks)
    in_turn = np.ones_like(num_ranks)
    if collective not in DIRECT:
        in_turn = collective.num_rounds * (num_ranks - 1)
    hops = in_turn ** values["hop_growth"]

    full_ns = moved / rate
    with_flags_ns = hops * values["ll_hop_ns"] + full_ns / values["ll_rate"]
    with_few_ns = hops * values["ll128_hop_ns"] + full_ns / values["ll128_rate"]
    ramp_ns = values["ramp_ns"] * full_ns / (full_ns + values["ramp_ns"])
    with_fences_ns = hops * values["simple_hop_ns"] + full_ns + ramp_ns
    best_ns: Float64s = np.minimum(np.minimum(with_flags_ns, with_few_ns), with_fences_ns)
    return values["start_ns"] + best_ns


def _share_of_links(num_ranks: Float64s, mesh: int) -> Float64s:
    """Of a chip's links those that lead to other members of its group; behind a switch, all."""
    return np.ones_like(num_ranks) if mesh < 2 else (num_ranks - 1) / (mesh - 1)  # noqa: PLR2004

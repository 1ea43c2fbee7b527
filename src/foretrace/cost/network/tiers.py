"""How long a collective takes that leaves its scale-up domain: rings and trees over the tiers.

Between hosts a message goes around a ring of hosts or up and down two trees (NCCL's double binary
tree, https://developer.nvidia.com/blog/massively-scale-deep-learning-training-nccl-2-4), in small
packets with flags or in chunks; the shortest counts. A ring's hops grow with the number of hosts,
a tree's with its logarithm. Inside each host the collective goes on at the same time, so the two
overlap. What leaves is bounded by the narrowest level of the group's `GroupSpan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, CollectiveKind, Float64s
from foretrace.cost.fitting import Constant, at_once
from foretrace.cost.network.domain import DIRECT
from foretrace.cost.network.span import GroupSpan, TierSpan

CONSTANTS = (
    Constant("start_ns", "ns", "launch, and the first message", 5_000, 100_000, 20_000),
    Constant("ring_hop_ns", "ns", "one chunk from host to host along a ring", 500, 1e5, 8_000),
    Constant("tree_hop_ns", "ns", "small packets from host to host", 1_000, 1e5, 8_000),
    Constant("chunk_hop_ns", "ns", "one chunk from host to host in a tree", 1_000, 2e5, 2e4),
    Constant("network_rate", "", "long messages in rings, of the network", 0.5, 1.05, 0.95),
    Constant("tree_rate", "", "long messages in trees, of a ring's", 0.2, 1.05, 0.9),
    Constant("packet_rate", "", "small packets, of a ring's", 0.005, 0.9, 0.1),
    Constant("ramp_ns", "ns", "until a tree is full", 100, 2e6, 5e4),
)
# Bandwidth lost in groups of more hosts than the fit has seen. One number, measured at one size.
TAPER, TAPER_BEYOND = "taper", "taper_beyond_hosts"

# Where no network of a technology was measured: latencies and rates by which NCCL itself chooses
# between rings, trees and protocols. Source: NCCL 2.28, src/graph/tuning.cc: base latency 8.4 us;
# over the network Simple 14 us a hop in rings and trees, LL128 8.5 us; LL128 carries 120 bytes of
# 128, trees reach 0.92 of a ring.
NCCL_HOPS: Mapping[str, float] = {
    "start_ns": 8_400.0,
    "ring_hop_ns": 14_000.0,
    "tree_hop_ns": 8_500.0,
    "chunk_hop_ns": 14_000.0,
    "packet_rate": 120 / 128,
    "tree_rate": 0.92,
    "ramp_ns": 0.0,
}

TREES = frozenset((CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST, CollectiveKind.REDUCE))


def tiers_ns(
    collective: CollectiveKind,
    num_bytes: Float64s,
    span: GroupSpan,
    *,
    inside_ns: Float64s,
    values: Mapping[str, float],
) -> Float64s:
    """Duration from the last arrival on, float64[rows], in ns.

    Args:
        collective: one of `COLLECTIVES`.
        num_bytes: float64[rows], as nccl-tests counts them.
        span: of the group; at least one level.
        inside_ns: float64[rows], of the part inside each scale-up domain; zeros if it holds one.
        values: of `CONSTANTS`, and the taper where one was measured.
    """
    is_direct = collective in DIRECT
    moving = _direct_ns if is_direct else _around_ns
    start_ns = values["start_ns"] + _further_ns(collective, span)
    outside_ns = start_ns + moving(collective, num_bytes, span, values=values)
    return at_once(outside_ns, inside_ns)


def even_total(sent_bytes: Float64s) -> int:
    """The even all-to-all that keeps the busiest rank as busy as an uneven one does.

    Args:
        sent_bytes: float64[ranks, ranks], from the row's rank to the column's.

    Returns:
        Bytes as nccl-tests counts them: what one rank holds for all ranks.
    """
    away = sent_bytes - np.diag(np.diagonal(sent_bytes))
    busiest = max(away.sum(axis=0).max(), away.sum(axis=1).max())
    num_ranks = len(sent_bytes)
    return int(np.ceil(busiest * num_ranks / max(1, num_ranks - 1)))


def _rate(bytes_per_ns: float, span: GroupSpan, values: Mapping[str, float]) -> float:
    is_beyond = span.num_domains > values.get(TAPER_BEYOND, np.inf)
    taper = values.get(TAPER, 1.0) if is_beyond else 1.0
    return bytes_per_ns * values["network_rate"] / taper


def _direct_ns(
    collective: CollectiveKind, num_bytes: Float64s, span: GroupSpan, *, values: Mapping[str, float]
) -> Float64s:
    """Each rank to its partners, all at once: the level that leaves one rank least decides."""
    if collective is CollectiveKind.SEND_RECV:
        slowest = max(1 / level.bytes_per_ns for level in span.levels)
    else:
        slowest = max(
            (span.num_ranks - level.num_inside) / span.num_ranks / level.bytes_per_ns
            for level in span.levels
        )
    return values["tree_hop_ns"] + num_bytes / _rate(1 / slowest, span, values)


def _around_ns(
    collective: CollectiveKind, num_bytes: Float64s, span: GroupSpan, *, values: Mapping[str, float]
) -> Float64s:
    ring_ns = _ring_ns(collective, num_bytes, span, values=values)
    if collective not in TREES:
        return ring_ns
    best_ns: Float64s = np.minimum(ring_ns, _tree_ns(collective, num_bytes, span, values=values))
    return best_ns


def go_by_tree(
    collective: CollectiveKind, num_bytes: Float64s, span: GroupSpan, *, values: Mapping[str, float]
) -> Bools:
    """Of which messages of one of `TREES` they are quicker than rings, bool[rows].

    Arguments are as of `tiers_ns`.
    """
    tree_ns = _tree_ns(collective, num_bytes, span, values=values)
    return tree_ns < _ring_ns(collective, num_bytes, span, values=values)


def _ring_ns(
    collective: CollectiveKind, num_bytes: Float64s, span: GroupSpan, *, values: Mapping[str, float]
) -> Float64s:
    rate = _rate(span.ring_bytes_per_ns, span, values)
    in_ring = collective.num_rounds * (span.num_domains - 1)
    ring_bytes = collective.bus_share(np.array([float(span.num_ranks)])) * num_bytes
    ring_ns: Float64s = in_ring * values["ring_hop_ns"] + ring_bytes / rate
    if collective in TREES:
        return ring_ns
    packets_ns = in_ring * values["tree_hop_ns"] + ring_bytes / (rate * values["packet_rate"])
    fewest_ns: Float64s = np.minimum(ring_ns, packets_ns)
    return fewest_ns


def _tree_ns(
    collective: CollectiveKind, num_bytes: Float64s, span: GroupSpan, *, values: Mapping[str, float]
) -> Float64s:
    rate, rounds = _rate(span.ring_bytes_per_ns, span, values), collective.num_rounds
    # Two hosts are each other's root: each half goes one way only.
    is_pair = span.num_domains <= 2  # noqa: PLR2004
    most = span.tree_bytes_per_ns if is_pair else np.inf
    tree_bytes = num_bytes * (1 if is_pair else rounds)
    depth = rounds * np.log2(span.num_domains)
    packet_rate = min(rate, most) * values["packet_rate"]
    packets_ns = depth * values["tree_hop_ns"] + tree_bytes / packet_rate
    full_ns = tree_bytes / min(rate, most / values["tree_rate"])
    ramp_ns = values["ramp_ns"] * full_ns / np.maximum(full_ns + values["ramp_ns"], 1.0)
    chunks_ns = depth * values["chunk_hop_ns"] + full_ns / values["tree_rate"] + ramp_ns
    best_ns: Float64s = np.minimum(packets_ns, chunks_ns)
    return best_ns


def _further_ns(collective: CollectiveKind, span: GroupSpan) -> float:
    """Latency of levels beyond that of the nearest tier, which the fitted hops hold already.

    And what messages of any level take beyond their latency, in the mean.

    In a ring data passes every boundary in turn, in a tree a logarithm of them, and straight from
    rank to rank one.
    """
    rounds = collective.num_rounds
    jitter_ns = sum(one.num_in_turn * one.mean_ns for one in messages_of(collective, span))
    if span.nearest_ns is None:
        return jitter_ns
    return jitter_ns + sum(
        rounds * max(0.0, level.latency_ns - span.nearest_ns) * _num_in_turn(collective, level)
        for level in span.levels
        if level.latency_ns is not None
    )


@dataclass(frozen=True)
class MessagesOfTier:
    """Messages of one collective over one tier whose latency varies."""

    tier: str
    mean_ns: float  # of one, beyond its latency
    num_in_turn: float  # one waits for the one before
    num_ways: int  # of as many messages each, beside each other; the last to end counts


def messages_of(collective: CollectiveKind, span: GroupSpan) -> Iterator[MessagesOfTier]:
    """The messages of a collective over each tier of its span that has jitter.

    In a ring every member's part goes around by itself; in two trees a part goes from every leaf;
    straight from rank to rank, each waits for all others that lie beyond the tier.
    """
    for level in span.levels:
        if not level.jitter_ns:
            continue
        in_turn = collective.num_rounds * _num_in_turn(collective, level)
        ways = 2 * level.num_branches if collective in TREES else span.num_ranks
        if collective is CollectiveKind.SEND_RECV:
            ways = 1
        elif collective in DIRECT:
            ways = span.num_ranks * (span.num_ranks - level.num_inside)
        yield MessagesOfTier(level.tier, level.jitter_ns, in_turn, ways)


def _num_in_turn(collective: CollectiveKind, level: TierSpan) -> float:
    if collective in TREES:
        return float(np.log2(level.num_branches))
    return 1 if collective in DIRECT else level.num_crossings

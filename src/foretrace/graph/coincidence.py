"""Streams of different ranks that serve one process group, found by their ends.

Without metadata, nothing in a trace says which group a communication stream serves. But members
of a group leave each of its operations together: between their streams the difference of ends
is one constant, the clocks' offset, up to microseconds. Streams of other groups differ by the
jitter of whatever ran between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import combinations

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.communication import CommunicationOps

MAX_SPREAD_NS = 50_000  # residual of ends that belong together: NCCL's own is below 15 us
MAX_LANES = 1_024  # pairs grow with the square; with more silent streams nothing is matched


def coinciding_lanes(
    comm: CommunicationOps,
    rank_of_lane: Mapping[int, int],
    groups: Collection[tuple[int, ...]],
) -> list[tuple[int, ...]]:
    """Sets of lanes of different ranks whose operations end together, two lanes or more each.

    Args:
        comm: all communication operations.
        rank_of_lane: the lanes to match, and the rank number of each.
        groups: ranks of every process group that a file's header lists; () if none does, then
            any set of ranks may be a group.

    Returns:
        Lanes of one group each, the sets that end most closely together taken first.
    """
    if len(rank_of_lane) > MAX_LANES:
        return []
    rows = {lane: np.flatnonzero(comm.lane == lane) for lane in rank_of_lane}
    spreads = _Spreads(comm, rows)
    if groups:
        proposals = [
            proposal
            for group in groups
            for proposal in _of_group(spreads, rank_of_lane, tuple(sorted(group)))
        ]
    else:
        proposals = _of_any_ranks(spreads, rank_of_lane)
    taken: set[int] = set()
    found = []
    for spread_ns, lanes in sorted(proposals):
        if spread_ns <= MAX_SPREAD_NS and taken.isdisjoint(lanes):
            taken.update(lanes)
            found.append(lanes)
    return sorted(found)


class _Spreads:
    """How far the ends of two lanes are from one constant difference; found once per pair."""

    def __init__(self, comm: CommunicationOps, rows: Mapping[int, Int64s]) -> None:
        self._ends_ns = {lane: comm.end_ns[own] for lane, own in rows.items()}
        self._kinds = {
            lane: tuple(_kind(comm.kind[row]) for row in own.tolist()) for lane, own in rows.items()
        }
        self._found: dict[tuple[int, int], int | None] = {}

    def of(self, one: int, other: int) -> int | None:
        """Spread in ns; None if the lanes do not show the same operations."""
        pair = (min(one, other), max(one, other))
        if pair not in self._found:
            is_alike = self._kinds[one] == self._kinds[other]
            self._found[pair] = (
                _spread_ns(self._ends_ns[pair[0]], self._ends_ns[pair[1]]) if is_alike else None
            )
        return self._found[pair]


Proposal = tuple[int, tuple[int, ...]]


def _of_group(
    spreads: _Spreads, rank_of_lane: Mapping[int, int], group: tuple[int, ...]
) -> list[Proposal]:
    """For each lane of a group's first recorded rank, the lanes of the others that fit it best."""
    lanes_of_rank: dict[int, list[int]] = defaultdict(list)
    for lane, rank in rank_of_lane.items():
        lanes_of_rank[rank].append(lane)
    present = [rank for rank in group if rank in lanes_of_rank]
    if len(present) < 2:  # noqa: PLR2004  nobody to meet
        return []
    proposals = []
    for lane in lanes_of_rank[present[0]]:
        chosen, worst = [lane], 0
        for rank in present[1:]:
            fitting = [
                (spread, other)
                for other in lanes_of_rank[rank]
                if (spread := spreads.of(lane, other)) is not None
            ]
            if not fitting:
                break
            spread, other = min(fitting)
            chosen.append(other)
            worst = max(worst, spread)
        else:
            proposals.append((worst, tuple(chosen)))
    return proposals


def _of_any_ranks(spreads: _Spreads, rank_of_lane: Mapping[int, int]) -> list[Proposal]:
    """Lanes joined pair by pair, closest first, while every two of a set end together."""
    pairs = sorted(
        (spread, one, other)
        for one, other in combinations(rank_of_lane, 2)
        if rank_of_lane[one] != rank_of_lane[other]
        and (spread := spreads.of(one, other)) is not None
    )
    best: dict[int, int] = {}
    for spread, *lanes in pairs:
        for lane in lanes:
            best.setdefault(lane, max(spread, MIN_SPREAD_NS))
    cluster = {lane: [lane] for lane in rank_of_lane}
    for spread, one, other in pairs:
        joined = cluster[one] + cluster[other]
        limit = MAX_FACTOR * min(best[lane] for lane in joined)
        is_together = all(
            (found := spreads.of(*both)) is not None and found <= limit
            for both in combinations(joined, 2)
        )
        ranks = {rank_of_lane[lane] for lane in joined}
        if spread <= limit and is_together and len(ranks) == len(joined):
            for lane in joined:
                cluster[lane] = joined
    sets = {tuple(sorted(lanes)) for lanes in cluster.values() if len(lanes) > 1}
    return [
        (max(spreads.of(*both) or 0 for both in combinations(lanes, 2)), lanes) for lanes in sets
    ]


MAX_FACTOR = 4  # a stream's partners have spreads within this factor of its best, ...
MIN_SPREAD_NS = 2_000  # ... or below rounding


def _kind(kind: str) -> str:
    return "sendrecv" if kind in ("send", "recv") else kind


def _spread_ns(ends_ns: Int64s, other_ns: Int64s) -> int:
    """Median absolute residual of the ends' differences, a straight line taken out."""
    difference = (other_ns - other_ns[0]) - (ends_ns - ends_ns[0])
    if len(difference) > 2:  # noqa: PLR2004  a line fits two points exactly
        since = (ends_ns - ends_ns[0]).astype(np.float64)
        slope, offset = np.polyfit(since, difference, 1)
        return int(np.median(np.abs(difference - slope * since - offset)))
    return int(np.abs(difference).max(initial=0))

"""Streams of different ranks that serve one process group, found by their ends.

Without metadata, nothing in a trace says which group a communication stream serves. But members
of a group leave each of its operations together: between their streams the difference of ends
is one constant, the clocks' offset, up to microseconds. Streams of other groups differ by the
jitter of whatever ran between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import numpy as np

from foretrace.base import CollectiveKind, Int64s
from foretrace.graph.communication.description import CommunicationOps
from foretrace.graph.graph import Lane

MAX_SPREAD_NS = 50_000  # residual of ends that belong together: NCCL's own is below 15 us
MAX_LANES = 1_024  # pairs grow with the square; with more silent streams nothing is matched

Score = tuple[int, int, int]

MAX_FACTOR = 4  # a stream's partners have spreads within this factor of its best, ...
MIN_SPREAD_NS = 2_000  # ... or below rounding
MANY_OPS = 8  # operations from which ends tell a set for sure

# What the other end of a transfer shows.
_PARTNER = {
    CollectiveKind.SEND: CollectiveKind.RECV,
    CollectiveKind.RECV: CollectiveKind.SEND,
}


def coinciding_lanes(
    comm: CommunicationOps,
    lanes: Mapping[int, Lane],
    groups: Collection[tuple[int, ...]],
) -> list[tuple[int, ...]]:
    """Sets of lanes of different ranks whose operations end together, two lanes or more each.

    Args:
        comm: all communication operations.
        lanes: the lanes to match, by their numbers in `comm`.
        groups: ranks of every process group that a file's header lists; () if none does, then
            any set of ranks may be a group.

    Returns:
        Lanes of one group each. Sets with many operations that end closely together are taken
        first; what they tell of the clocks judges the others.
    """
    if len(lanes) > MAX_LANES:
        return []
    ends_ns = {lane: comm.end_ns[comm.lane == lane] for lane in lanes}
    kinds = {
        lane: tuple(comm.kind[row] for row in np.flatnonzero(comm.lane == lane).tolist())
        for lane in lanes
    }
    fits = _Fits(lanes, ends_ns, kinds)
    if not groups:
        return _of_any_ranks(fits, lanes)
    found: list[tuple[int, ...]] = []
    free = set(lanes)
    while (best := _best_set(fits, lanes, groups, free)) is not None:
        found.append(best)
        free.difference_update(best)
        fits.learn(best)
    return sorted(found)


class _Fits:
    """How well two lanes go together; learns the clocks' offsets from sets already found."""

    def __init__(
        self,
        lanes: Mapping[int, Lane],
        ends_ns: Mapping[int, Int64s],
        kinds: Mapping[int, tuple[CollectiveKind, ...]],
    ) -> None:
        self._lanes = lanes
        self._ends_ns = ends_ns
        self._kinds = kinds
        self._spread: dict[tuple[int, int], int] = {}
        self._clock: dict[int, tuple[int, int]] = {}  # rank -> common clock, offset on it

    def num_ops(self, lane: int) -> int:
        """Operations of a lane."""
        return len(self._kinds[lane])

    def is_transfer(self, lane: int) -> bool:
        """Whether a lane holds sends and receives only."""
        return all(kind.is_transfer for kind in self._kinds[lane])

    def spread_ns(self, one: int, other: int) -> int | None:
        """How far ends are from one constant difference; None: not the same operations."""
        if tuple(_PARTNER.get(kind, kind) for kind in self._kinds[one]) != self._kinds[other]:
            return None
        pair = (min(one, other), max(one, other))
        if pair not in self._spread:
            self._spread[pair] = _spread_ns(self._ends_ns[pair[0]], self._ends_ns[pair[1]])
        spread_ns = self._spread[pair]
        known = [self._clock.get(self._lanes[lane].rank) for lane in pair]
        if known[0] is not None and known[1] is not None and known[0][0] == known[1][0]:
            expected_ns = known[1][1] - known[0][1]
            off_ns = abs(self._offset_ns(*pair) - expected_ns)
            # Over a long trace clocks drift apart; ends of another operation are further off.
            spread_ns = max(spread_ns, off_ns if off_ns > MAX_SPREAD_NS else 0)
        return spread_ns

    def score(self, one: int, other: int) -> Score | None:
        """Lower is better: spread beyond rounding, then whether the streams' numbers differ."""
        spread_ns = self.spread_ns(one, other)
        if spread_ns is None or spread_ns > MAX_SPREAD_NS:
            return None
        is_other = self._lanes[one].number != self._lanes[other].number
        return spread_ns // MIN_SPREAD_NS, int(is_other), spread_ns

    def learn(self, lanes: tuple[int, ...]) -> None:
        """Take the offsets between the ranks of a set as known."""
        first = self._lanes[lanes[0]].rank
        self._clock.setdefault(first, (first, 0))
        for lane in lanes[1:]:
            rank = self._lanes[lane].rank
            clock, base_ns = self._clock[first]
            offset_ns = base_ns + self._offset_ns(lanes[0], lane)
            if rank not in self._clock:
                self._clock[rank] = (clock, offset_ns)
                continue
            old, old_ns = self._clock[rank]
            if old != clock:
                for other, (own, own_ns) in list(self._clock.items()):
                    if own == old:
                        self._clock[other] = (clock, own_ns + offset_ns - old_ns)

    def _offset_ns(self, one: int, other: int) -> int:
        difference = np.sort(self._ends_ns[other] - self._ends_ns[one])
        return int(difference[(len(difference) - 1) // 2])


def _best_set(
    fits: _Fits,
    lanes: Mapping[int, Lane],
    groups: Collection[tuple[int, ...]],
    free: set[int],
) -> tuple[int, ...] | None:
    """The best set of free lanes that one of the groups could be, or None."""
    free_of_rank: dict[int, list[int]] = defaultdict(list)
    for lane in sorted(free):
        free_of_rank[lanes[lane].rank].append(lane)
    best: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    for group in groups:
        present = [rank for rank in sorted(group) if rank in free_of_rank]
        if len(present) < 2:  # noqa: PLR2004  nobody to meet
            continue
        for lane in free_of_rank[present[0]]:
            found = _partners(fits, lane, [free_of_rank[rank] for rank in present[1:]])
            if found is None:
                continue
            worst, chosen = found
            # Few operations fit anything: rich lanes first; on a tie larger groups for
            # collectives, pairs for transfers.
            size = len(chosen) if fits.is_transfer(lane) else -len(chosen)
            rank = (-min(fits.num_ops(lane), MANY_OPS), *worst[:2], size, worst[2], *chosen)
            if best is None or rank < best[0]:
                best = rank, chosen
    return None if best is None else best[1]


def _partners(
    fits: _Fits, lane: int, others: Sequence[Sequence[int]]
) -> tuple[Score, tuple[int, ...]] | None:
    """The best lane of every other rank, and the worst of their scores."""
    chosen, worst = [lane], (0, 0, 0)
    for candidates in others:
        scored = [
            (score, other) for other in candidates if (score := fits.score(lane, other)) is not None
        ]
        if not scored:
            return None
        score, other = min(scored)
        chosen.append(other)
        worst = max(worst, score)
    return worst, tuple(chosen)


def _of_any_ranks(fits: _Fits, lanes: Mapping[int, Lane]) -> list[tuple[int, ...]]:
    """Lanes joined pair by pair, closest first, while every two of a set end together."""
    pairs = sorted(
        (spread, one, other)
        for one, other in combinations(lanes, 2)
        if lanes[one].rank != lanes[other].rank
        and (spread := fits.spread_ns(one, other)) is not None
        and spread <= MAX_SPREAD_NS
    )
    best: dict[int, int] = {}
    for spread, *both in pairs:
        for lane in both:
            best.setdefault(lane, max(spread, MIN_SPREAD_NS))
    cluster = {lane: [lane] for lane in lanes}
    for spread, one, other in pairs:
        joined = cluster[one] + cluster[other]
        limit = MAX_FACTOR * min(best.get(lane, MIN_SPREAD_NS) for lane in joined)
        is_together = all(
            (found := fits.spread_ns(*both)) is not None and found <= limit
            for both in combinations(joined, 2)
        )
        ranks = {lanes[lane].rank for lane in joined}
        if spread <= limit and is_together and len(ranks) == len(joined):
            for lane in joined:
                cluster[lane] = joined
    return sorted({tuple(sorted(own)) for own in cluster.values() if len(own) > 1})


def _spread_ns(ends_ns: Int64s, other_ns: Int64s) -> int:
    """Median absolute residual of the ends' differences, a straight line taken out."""
    difference = (other_ns - other_ns[0]) - (ends_ns - ends_ns[0])
    if len(difference) > 2:  # noqa: PLR2004  a line fits two points exactly
        since = (ends_ns - ends_ns[0]).astype(np.float64)
        slope, offset = np.polyfit(since, difference, 1)
        return int(np.median(np.abs(difference - slope * since - offset)))
    return int(np.abs(difference).max(initial=0))

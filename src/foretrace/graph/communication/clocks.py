"""One clock for all ranks, from collectives that end together.

Members of a collective leave it within microseconds of each other, so the difference of its
recorded ends on two ranks is the difference of their clocks. An integer offset (the median)
and, where the trace is long enough to show one, a drift are found per rank, along a spanning
tree of ranks that share collectives. Only differences enter, so adding a constant to one rank's
timestamps changes that rank's offset by exactly that constant and nothing else.

On CPUs that others want too, a member may get its core back milliseconds late. What holds there
all the same is that nobody leaves before all have come: these bounds win over the ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from foretrace.base import NS_PER_S, PARTED, Bools, CollectiveKind, Int64s, turns_within
from foretrace.graph.communication import CommunicationOps
from foretrace.graph.operations import Operations
from foretrace.graph.recording import Clock
from foretrace.graph.rules.collectives import Matches

# Kinds whose members leave only after all have come. On one clock none of them can end before
# another arrived: 0 of 164 pairs of a contended gloo run, 0 of 588 of megatron-tp8.
MEETINGS = PARTED | {CollectiveKind.ALL_REDUCE, CollectiveKind.BARRIER}
MISSED_ON_CPU_NS = 500_000  # beyond what clocks and leaving members differ by on contended CPUs
MIN_DRIFT_MATCHES = 16  # fewer ends cannot tell a drift from jitter
MIN_DRIFT_SPREADS = 3  # a drift must move the ends by so many spreads to be more than jitter
MAX_DRIFT_PPB = 200_000  # 200 ppm: beyond any host clock; a larger slope is something else
_SLOPE_POINTS = 200  # Theil-Sen uses all pairs of at most this many ends


@dataclass(frozen=True)
class Clocks:
    """How to lay every rank's timestamps onto the first rank's clock."""

    origin_ns: Int64s  # int64[ranks], raw time from which drift counts
    offset_ns: Int64s  # int64[ranks]
    drift_ppb: Int64s  # int64[ranks]
    spread_ns: Int64s  # int64[ranks]
    num_matches: Int64s  # int64[ranks]

    def aligned(self, rank: Int64s, raw_ns: Int64s) -> Int64s:
        """Raw timestamps of ranks (positions among the traces) on the common clock, int64."""
        if not self.drift_ppb.any():
            return raw_ns - self.offset_ns[rank]
        since_ns = raw_ns - self.origin_ns[rank]
        # ns * ppb passes int64 after 54 minutes at 200 ppm: split the seconds off.
        seconds, rest_ns = np.divmod(since_ns, NS_PER_S)
        drift_ppb = self.drift_ppb[rank]
        drift_ns = seconds * drift_ppb + rest_ns * drift_ppb // NS_PER_S
        return raw_ns - self.offset_ns[rank] - drift_ns

    def described(self, ranks: tuple[int, ...]) -> tuple[Clock, ...]:
        """One `Clock` per rank, for a reader."""
        return tuple(
            Clock(rank, *(int(column[index]) for column in self._columns()))
            for index, rank in enumerate(ranks)
        )

    def _columns(self) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        return self.offset_ns, self.drift_ppb, self.spread_ns, self.num_matches


def fitted_clocks(operations: Operations, comm: CommunicationOps, matches: Matches) -> Clocks:
    """Offsets and drifts of all ranks; ranks that share no collective keep their own start.

    A rank without any common collective is laid so that its first event stands where the first
    rank's does, and has `num_matches` 0.
    """
    num_ranks = len(operations.ranks)
    first_ns = operations.first_ns
    clocks = Clocks(
        origin_ns=first_ns.copy(),
        offset_ns=first_ns - first_ns[0],
        drift_ppb=np.zeros(num_ranks, np.int64),
        spread_ns=np.zeros(num_ranks, np.int64),
        num_matches=np.zeros(num_ranks, np.int64),
    )
    on_host = ~operations.is_stream[comm.lane]
    pairs = _common_ends(comm, matches, on_host)
    for parent, child in _spanning_tree(num_ranks, pairs):
        parent_ns, child_ns = pairs[parent, child]
        reference_ns = clocks.aligned(np.full(len(parent_ns), parent), parent_ns)
        offset, drift, spread = _fit(child_ns - reference_ns, child_ns - first_ns[child])
        bounds = _bounds(comm, matches, clocks, (parent, child), on_host=on_host)
        offset, drift = _possible((offset, drift), bounds, first_ns[child])
        clocks.offset_ns[child] = offset
        clocks.drift_ppb[child] = drift
        clocks.spread_ns[child] = spread
        clocks.num_matches[child] = len(parent_ns)
        clocks.num_matches[parent] = max(clocks.num_matches[parent], len(parent_ns))
    return clocks


def _common_ends(
    comm: CommunicationOps, matches: Matches, on_host: Bools
) -> dict[tuple[int, int], tuple[Int64s, Int64s]]:
    """Ends of the collectives that two ranks share, raw, for both orders of the two.

    Ends of transfers on the CPU do not coincide. Where there are no others, one moment between
    the bounds that they set stands in.
    """
    order = np.argsort(matches.collective, kind="stable")
    row = matches.row[order]
    first = np.flatnonzero(
        np.diff(matches.collective[order], prepend=-1)
    )  # first match of each collective
    size = np.diff(np.append(first, len(row)))
    member = turns_within(matches.collective[order])
    anchor = np.repeat(row[first], size)
    is_other = member > 0
    is_together = np.array(
        [
            collective.kind is not CollectiveKind.SEND_RECV or len(collective.recorded_ranks) <= 2  # noqa: PLR2004
            for collective in matches.collectives
        ],
        np.bool_,
    )
    is_transfer = np.array(
        [each.kind is CollectiveKind.SEND_RECV for each in matches.collectives], np.bool_
    )
    ends: dict[tuple[int, int], tuple[Int64s, Int64s]] = {}
    pair_key = comm.rank[anchor] * (1 << 32) + comm.rank[row]
    by_pair = np.flatnonzero(is_other)
    by_pair = by_pair[np.argsort(pair_key[by_pair], kind="stable")]
    keys, first_of_key = np.unique(pair_key[by_pair], return_index=True)
    bounds = np.append(first_of_key, len(by_pair))
    for key, low, high in zip(keys.tolist(), bounds[:-1], bounds[1:], strict=True):
        chosen = by_pair[low:high]
        # Neighbours of a ring exchange do not leave together: only where there is nothing else.
        together = chosen[is_together[matches.collective[order[chosen]]]]
        chosen = together if len(together) else chosen
        is_loose = is_transfer[matches.collective[order[chosen]]] & on_host[row[chosen]]
        if is_loose.all():
            one, other = _between(comm, anchor[chosen], row[chosen])
        else:
            chosen = chosen[~is_loose]
            one, other = comm.end_ns[anchor[chosen]], comm.end_ns[row[chosen]]
        ranks = divmod(key, 1 << 32)
        ends[ranks] = (one, other)
        ends[ranks[::-1]] = (other, one)
    return ends


def _between(comm: CommunicationOps, one: Int64s, other: Int64s) -> tuple[Int64s, Int64s]:
    """One moment on the clocks of two ranks, raw, from transfers between them; int64[1] each.

    Nothing is received before it is sent, so transfers one way bound the difference of the clocks
    from above, those the other way from below. The fastest of each bound it best, and its middle
    is right where both took equally long.

    Source:
        Mills, "Internet Time Synchronization: The Network Time Protocol", IEEE Transactions on
        Communications 39(10), 1991.

    Args:
        comm: all communication.
        one: rows of one rank, each a send or a receive.
        other: rows of the other rank that they met.
    """
    is_sent = np.array([comm.kind[row] == "send" for row in one.tolist()], np.bool_)
    moments: list[tuple[int, int]] = []
    for is_chosen, sign in ((is_sent, 1), (~is_sent, -1)):
        if not is_chosen.any():
            continue
        one_ns = np.where(is_sent, comm.start_ns[one], comm.end_ns[one])[is_chosen]
        other_ns = np.where(is_sent, comm.end_ns[other], comm.start_ns[other])[is_chosen]
        fastest = int(np.argmin(sign * (other_ns - one_ns)))
        moments.append((int(one_ns[fastest]), int(other_ns[fastest])))
    middle = [sum(side) // len(moments) for side in zip(*moments, strict=True)]
    return np.array(middle[:1], np.int64), np.array(middle[1:], np.int64)


def _spanning_tree(
    num_ranks: int, pairs: dict[tuple[int, int], tuple[Int64s, Int64s]]
) -> Iterator[tuple[int, int]]:
    """Parent and child, parents first, from rank 0; pairs with many common ends come first."""
    neighbours: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (one, other), (ends, _) in pairs.items():
        neighbours[one].append((-len(ends), other))
    seen: set[int] = set()
    for root in range(num_ranks):
        if root in seen:
            continue
        seen.add(root)
        frontier = [(weight, root, other) for weight, other in neighbours[root]]
        heapify(frontier)
        while frontier:
            _, parent, child = heappop(frontier)
            if child in seen:
                continue
            seen.add(child)
            yield parent, child
            for weight, other in neighbours[child]:
                heappush(frontier, (weight, child, other))


def _fit(difference_ns: Int64s, since_ns: Int64s) -> tuple[int, int, int]:
    """Offset, drift in ppb and median absolute residual of clock differences over time."""
    offset = _lower_median(difference_ns)
    spread = _lower_median(np.abs(difference_ns - offset))
    drift = _drift_ppb(difference_ns, since_ns)
    if drift:
        straight = difference_ns - since_ns * drift // NS_PER_S
        offset_with = _lower_median(straight)
        spread_with = _lower_median(np.abs(straight - offset_with))
        moved_ns = abs(drift) * int(since_ns.max() - since_ns.min()) // NS_PER_S
        if spread_with < spread and moved_ns > MIN_DRIFT_SPREADS * spread_with:
            return offset_with, drift, spread_with
    return offset, 0, spread


@dataclass(frozen=True)
class _Bounds:
    """What two ranks' clocks may differ by, for both to be there in each of their meetings."""

    at_ns: Int64s  # int64[meetings], raw, of the second rank
    low_ns: Int64s  # int64[meetings]
    high_ns: Int64s  # int64[meetings]


def _bounds(
    comm: CommunicationOps,
    matches: Matches,
    clocks: Clocks,
    ranks: tuple[int, int],
    *,
    on_host: Bools,
) -> _Bounds:
    """Of the meetings on threads of the host; the first rank has its clock."""
    is_meeting = np.array([each.kind in MEETINGS for each in matches.collectives], np.bool_)
    is_chosen = on_host[matches.row] & is_meeting[matches.collective]
    of_rank = (np.flatnonzero(is_chosen & (comm.rank[matches.row] == rank)) for rank in ranks)
    one, other = of_rank
    _, first, second = np.intersect1d(
        matches.collective[one], matches.collective[other], return_indices=True
    )
    parent, child = matches.row[one[first]], matches.row[other[second]]
    rank = np.full(len(parent), ranks[0])
    return _Bounds(
        comm.end_ns[child],
        comm.start_ns[child] - clocks.aligned(rank, comm.end_ns[parent]),
        comm.end_ns[child] - clocks.aligned(rank, comm.start_ns[parent]),
    )


def _possible(fitted: tuple[int, int], bounds: _Bounds, first_ns: int) -> tuple[int, int]:
    """Offset and drift as fitted, or where these cannot be the nearest offset that can."""
    offset, drift = fitted
    if not len(bounds.at_ns):
        return fitted
    differs_ns = offset + (bounds.at_ns - first_ns) * drift // NS_PER_S
    beyond_ns = np.maximum(bounds.low_ns - differs_ns, differs_ns - bounds.high_ns)
    if beyond_ns.max() <= MISSED_ON_CPU_NS:
        return fitted
    low, high = int(bounds.low_ns.max()), int(bounds.high_ns.min())
    return (min(max(offset, low), high), 0) if low <= high else fitted


def _drift_ppb(difference_ns: Int64s, since_ns: Int64s) -> int:
    """Theil-Sen slope in ns per second; 0 where there are too few ends to tell."""
    if len(since_ns) < MIN_DRIFT_MATCHES:
        return 0
    chosen = np.unique(np.linspace(0, len(since_ns) - 1, _SLOPE_POINTS).astype(np.int64))
    y, x = difference_ns[chosen], since_ns[chosen]
    one, other = np.triu_indices(len(x), 1)
    dx = x[other] - x[one]
    is_far = dx > (x.max() - x.min()) // 4
    if not is_far.any():
        return 0
    slope = float(np.median((y[other] - y[one])[is_far] / dx[is_far]))
    drift = round(slope * NS_PER_S)
    return drift if abs(drift) <= MAX_DRIFT_PPB else 0


def _lower_median(values: Int64s) -> int:
    """The lower of the two middle values: an integer that moves with its inputs."""
    ordered = np.sort(values)
    return int(ordered[(len(ordered) - 1) // 2])

"""`SlowWork`: why a rank's compute takes longer than that of its equals, or than its own.

Its work is held, place by place of the step (`usual`), against the median of the other ranks, or of
its own other steps. More calls, or other shapes, are uneven work; one kind of call that is slow
every time is a slow operator; calls of all kinds are a slow chip, for a while or throughout. Stalls
of hosts are no compute, but where hosts compute they lie inside what counts as it (`stalled_work`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from foretrace.analyze.activity import activity_by_rank, is_compute, participations
from foretrace.analyze.host_stalls import StallKind, host_stalls
from foretrace.analyze.intervals import Intervals
from foretrace.analyze.usual import MIN_ALIKE, NodesByLane, middle_of, places_of
from foretrace.base import Bools, Float64s, Int64s
from foretrace.graph import NO_STEP, NodeKind, Timeline

_LEAST_OVER = 0.02  # of a rank's compute: less is what equal chips differ by
_LEAST_LINK_FACTOR = 1.3  # transfers of equal groups differ by less on the public traces
_LOW_QUARTER = 0.25  # of a slow group's transfers only so many may be as fast as others
_NUM_STRETCHES = 24  # of equal work, in which a rank's time is looked at
# Of what the slowest exceed by: from here on others are slow too, and below it they are not.
_IS_SLOW, _IS_NOT_SLOW = 0.4, 0.25
# Of the work that is called slow so much has to be slow: calls of an operator are so mostly, a chip
# slows what its clock bounds and leaves what memory bounds; a few long calls are neither.
_LEAST_OF_OPERATOR, _LEAST_OF_CHIP = 0.6, 0.3
# No clock falls to a tenth: `nvidia-smi -q -d SUPPORTED_CLOCKS` of an A100 lists 1,410 to 210 MHz.
_MOST_OF_CHIP = 10
_MIN_STEPS = 3  # whose middle a slow one leaves where it is


class SlowKind(StrEnum):
    """How compute is slow."""

    OPERATOR = "slow operator"
    CHIP = "slow chip"
    WHILE = "chip slow for a while"
    UNEVEN = "uneven work"


@dataclass(frozen=True)
class SlowWork:
    """One rank's compute beyond that of its equals."""

    kind: SlowKind
    factor: float  # how many times as long it takes as there
    over_ns: int  # in all steps
    node: int  # of the call that exceeds most


@dataclass(frozen=True)
class SlowLink:
    """One group whose transfers take longer than alike ones of other groups."""

    ranks: tuple[int, ...]
    group: str
    factor: float
    over_ns: int  # of all members and steps, as far as no compute hides it


@dataclass(frozen=True)
class Compute:
    """Compute of all ranks, place by place of the step."""

    timeline: Timeline
    places: NodesByLane
    took_ns: Int64s

    @classmethod
    def of(cls, timeline: Timeline) -> Compute:
        """All that counts as compute, inside steps where there are any."""
        graph = timeline.graph
        works = is_compute(graph)
        if (graph.step != NO_STEP).any():
            works &= graph.step != NO_STEP
        works[host_stalls(timeline).node] = False
        places = places_of(graph, np.flatnonzero(works))
        return cls(timeline, places, timeline.duration_ns[places.node])

    def against_others(self, rank: int) -> SlowWork | None:
        """Why a rank is slower than others at the same places.

        None where it is not, nobody else does the same, or what it has more is a few long calls.
        """
        graph, node = self.timeline.graph, self.places.node
        mine = np.flatnonzero(graph.rank[node] == rank)
        others = np.flatnonzero(graph.rank[node] != rank)
        if not len(mine) or not len(others):
            return None
        usual_ns = middle_of(self.places.place[others], self.took_ns[others]).usual_ns
        places, first = np.unique(self.places.place[others], return_index=True)
        at = np.minimum(np.searchsorted(places, self.places.place[mine]), len(places) - 1)
        is_met = places[at] == self.places.place[mine]
        if not is_met.any():
            return None
        as_others_ns = np.where(is_met, usual_ns[first][at], 0)
        shapes = graph.operator_signature[node]
        is_other = ~is_met | (shapes[mine] != shapes[others[first[at]]])
        return self._told(mine, as_others_ns, is_other)

    def against_itself(self, rank: int) -> SlowWork | None:
        """Whether a rank is slow for a while against its own other steps.

        What communication ran beside is left out: how much of it does differs from step to step.
        """
        graph, node = self.timeline.graph, self.places.node
        mine = np.flatnonzero((graph.rank[node] == rank) & (graph.inflation[node] == 1))
        middle = middle_of(self.places.place[mine], self.took_ns[mine])
        known = middle.count >= _MIN_STEPS
        found = self._told(mine[known], middle.usual_ns[known], np.zeros(known.sum(), np.bool_))
        return found if found is not None and found.kind == SlowKind.WHILE else None

    def _told(self, mine: Int64s, usual_ns: Int64s, is_other: Bools) -> SlowWork | None:
        """What is slow of a rank's rows, against what each takes elsewhere.

        Args:
            mine: rows.
            usual_ns: int64[mine], 0 of what is not done elsewhere.
            is_other: bool[mine], not done elsewhere, or with other shapes.
        """
        over_ns = self.took_ns[mine] - usual_ns
        total_ns, of_all_ns = int(over_ns.sum()), int(self.took_ns[mine].sum())
        if not len(mine) or total_ns <= _LEAST_OVER * of_all_ns:
            return None
        if over_ns[is_other].sum() >= total_ns / 2:
            return self._found(SlowKind.UNEVEN, mine, usual_ns, is_other | (over_ns > 0))
        rows, usual_ns = mine[~is_other], usual_ns[~is_other]
        _, call = np.unique(self.places.call[rows], return_inverse=True)
        slow = self._slow_groups(rows, usual_ns, call)
        if slow is not None and self._share(rows, usual_ns, slow) >= _LEAST_OF_OPERATOR:
            return self._found(SlowKind.OPERATOR, rows, usual_ns, slow)
        in_time = np.argsort(self.timeline.start_ns[self.places.node[rows]], kind="stable")
        done_ns = np.cumsum(usual_ns[in_time])
        stretch = np.empty(len(rows), np.int64)
        stretch[in_time] = np.minimum(
            _NUM_STRETCHES * done_ns // max(int(done_ns[-1]), 1), _NUM_STRETCHES - 1
        )
        slow = self._slow_groups(rows, usual_ns, stretch)
        kind = SlowKind.CHIP if slow is None else SlowKind.WHILE
        slow = np.ones(len(rows), np.bool_) if slow is None else slow
        if self._share(rows, usual_ns, slow) < _LEAST_OF_CHIP:
            return None
        found = self._found(kind, rows, usual_ns, slow)
        return found if found.factor < _MOST_OF_CHIP else None

    def _slow_groups(self, rows: Int64s, usual_ns: Int64s, group: Int64s) -> Bools | None:
        """Rows of the groups that are slow, where the rest is not; None if all are alike."""
        took_ns = np.bincount(group, weights=self.took_ns[rows])
        due_ns = np.bincount(group, weights=usual_ns)
        over_ns, more = took_ns - due_ns, took_ns / np.maximum(due_ns, 1) - 1
        counts = over_ns >= 0.05 * over_ns.sum()
        if not counts.any():
            return None
        is_slow = more >= _IS_SLOW * more[counts].max()
        rest = ~is_slow
        if due_ns[rest].sum() < 0.05 * due_ns.sum():
            return None
        rest_more = over_ns[rest].sum() / due_ns[rest].sum()
        slow_more = over_ns[is_slow].sum() / max(due_ns[is_slow].sum(), 1)
        slow: Bools = is_slow[group]
        return slow if rest_more < _IS_NOT_SLOW * slow_more else None

    def _share(self, rows: Int64s, usual_ns: Int64s, slow: Bools) -> float:
        """How much of the work that is slow in sum takes longer by itself; by its usual time."""
        took_ns, due_ns = self.took_ns[rows[slow]], usual_ns[slow]
        more = took_ns.sum() / max(due_ns.sum(), 1) - 1
        is_more = took_ns >= (1 + _IS_SLOW * more) * due_ns
        return float(due_ns[is_more].sum() / max(due_ns.sum(), 1))

    def _found(self, kind: SlowKind, rows: Int64s, usual_ns: Int64s, slow: Bools) -> SlowWork:
        over_ns = np.where(slow, self.took_ns[rows] - usual_ns, 0)
        by_call = np.bincount(self.places.call[rows], weights=over_ns)
        first = rows[np.argmax(self.places.call[rows] == np.argmax(by_call))]
        due_ns = max(int(usual_ns[slow].sum()), 1)
        return SlowWork(
            kind=kind,
            factor=float(self.took_ns[rows][slow].sum() / due_ns),
            over_ns=int(over_ns.sum()),
            node=int(self.places.node[first]),
        )


def slow_links(timeline: Timeline) -> tuple[SlowLink, ...]:
    """Groups that transfer slower than others of the same size do as much, most time first."""
    graph, pairs = timeline.graph, participations(timeline.graph)
    collectives = graph.collectives
    groups: dict[tuple[str, tuple[int, ...]], int] = {}
    group_of, alike_of = (np.empty(len(collectives), np.int64) for _ in range(2))
    alikes: dict[tuple[str, int, int], int] = {}
    for at, one in enumerate(collectives):
        group_of[at] = groups.setdefault((one.group, one.ranks), len(groups))
        alike = (one.name, one.num_bytes, len(one.ranks))
        alike_of[at] = alikes.setdefault(alike, len(alikes))
    took_ns = timeline.duration_ns[pairs.finish]
    group, alike_row = group_of[pairs.collective], alike_of[pairs.collective]
    due_ns = _due_ns(group, alike_row, took_ns)
    listed = tuple(groups)
    activity = activity_by_rank(timeline)
    found = []
    for number in np.unique(group[due_ns > 0]).tolist():
        rows = np.flatnonzero((group == number) & (due_ns > 0))
        factor = float(took_ns[rows].sum() / due_ns[rows].sum())
        low = float(np.quantile(took_ns[rows] / due_ns[rows], _LOW_QUARTER))
        if len(rows) < MIN_ALIKE or min(low, factor) < _LEAST_LINK_FACTOR:
            continue
        over_ns = np.clip(took_ns[rows] - due_ns[rows], 0, None).astype(np.int64)
        end_ns = timeline.end_ns[pairs.finish[rows]]
        exposed_ns = 0
        for rank in listed[number][1]:
            mine = pairs.rank[rows] == rank
            late = Intervals.union_of(end_ns[mine] - over_ns[mine], end_ns[mine])
            if rank in activity:
                hidden_ns = late.intersect(activity[rank].compute).total_ns()
                exposed_ns += late.total_ns() - hidden_ns
        name, ranks = listed[number]
        found.append(SlowLink(ranks, name, factor, exposed_ns))
    return tuple(sorted(found, key=lambda one: -one.over_ns))


def _due_ns(group: Int64s, alike: Int64s, took_ns: Int64s) -> Float64s:
    """What each transfer takes in the other groups, the middle of their medians; 0 unknown."""
    due_ns = np.zeros(len(group))
    for kind in np.unique(alike).tolist():
        rows = np.flatnonzero(alike == kind)
        own = np.unique(group[rows])
        if len(own) < 2:  # noqa: PLR2004  one group is like itself alone
            continue
        medians = {one: float(np.median(took_ns[rows[group[rows] == one]])) for one in own.tolist()}
        for one in own.tolist():
            rest = sorted(value for other, value in medians.items() if other != one)
            due_ns[rows[group[rows] == one]] = rest[(len(rest) - 1) // 2]
    return due_ns


@dataclass(frozen=True)
class StalledWork:
    """Stalls of one kind inside one rank's operators."""

    rank: int
    kind: StallKind
    over_ns: int  # beyond the usual, over all steps
    operator: str  # with most of it
    operator_ns: int  # of `over_ns`


def stalled_work(timeline: Timeline) -> tuple[StalledWork, ...]:
    """Stalls inside operators, by rank, then kind; none where ranks have devices."""
    graph, found = timeline.graph, host_stalls(timeline)
    kind = found.kind_of_nodes(graph.num_nodes)[found.node].astype(np.int64)
    is_work = is_compute(graph) & (graph.kind == NodeKind.OPERATOR)
    over_ns = np.maximum(found.took_ns - found.usual_ns, 0)
    rows = np.flatnonzero(is_work[found.node] & (kind != StallKind.NONE) & (over_ns > 0))
    name, rank = graph.name[found.node[rows]], graph.rank[found.node[rows]].astype(np.int64)
    sums = []
    for of_rank, of_kind in np.unique(np.stack([rank, kind[rows]]), axis=1).T.tolist():
        mine = (rank == of_rank) & (kind[rows] == of_kind)
        by_name = np.bincount(name[mine], weights=over_ns[rows][mine])
        most = int(np.argmax(by_name))
        total_ns, most_ns = int(over_ns[rows][mine].sum()), int(by_name[most])
        sums.append(StalledWork(of_rank, StallKind(of_kind), total_ns, graph.names[most], most_ns))
    return tuple(sums)

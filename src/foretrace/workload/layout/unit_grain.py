"""`unit_layout`: a step with one node per unit, timed once on what the units are made of.

1. The step is written down as for `layout`, with templates at unit grain.
2. Every distinct stretch of work is laid out once, on the first stage that runs it, kernel by
   kernel: the *fragments*. Costed and simulated, they say how long each segment takes.
3. The step's graph has these lengths as durations. A segment ends no earlier than its length after
   its stream is free, and no earlier than its lead and its length after the host came to it: both
   are taken from the fragments, so a step bound by launches is one at this grain too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Timeline
from foretrace.workload.blocks.block import ModelBlocks
from foretrace.workload.layout.closing import Optimizer
from foretrace.workload.layout.drafted import Drafted, drafted
from foretrace.workload.layout.folded import LaidOut, host_ns_of
from foretrace.workload.layout.launch import Launch, launch_of
from foretrace.workload.layout.layout import WrittenStep, graph_of_step, written
from foretrace.workload.layout.pieces import Pieces, SortedPieces
from foretrace.workload.layout.tables import COMPUTE, NOTHING
from foretrace.workload.layout.template import Coarse, Template, without_kept
from foretrace.workload.plan.plan import Plan
from foretrace.workload.schedule.schedule import Schedule


@dataclass(frozen=True)
class Fragments:
    """Every distinct stretch of a step's work, on the first stage that runs it.

    Segments are those of one stretch after the other, in order.
    """

    graph: ExecutionGraph  # kernel by kernel, to be costed
    stage: Int64s  # int64[segments]
    row: Int64s  # int64[segments], item in the columns of the step's templates
    host_ns: Int64s  # int64[segments], of all its launches
    is_first: Bools  # bool[segments], a stretch begins with it
    first_node: Int64s  # int64[segments], its first operator
    last_node: Int64s  # int64[segments], its last operator
    launch_node: Int64s  # int64[segments], the first launch of its stretch
    stream_lag_ns: int
    launch_lag_ns: int

    def at_once(self, duration_ns: Int64s) -> Int64s:
        """Durations with a host that takes no time; int64[nodes]."""
        return np.where(self.graph.kind == NodeKind.LAUNCH, 0, duration_ns)

    def held_up(self, duration_ns: Int64s) -> Int64s:
        """Durations with a host that comes to each stretch late; int64[nodes]."""
        held_ns = duration_ns.copy()
        held_ns[np.unique(self.launch_node)] += int(duration_ns.sum())
        return held_ns

    def lengths_ns(self, timeline: Timeline) -> Int64s:
        """How long each segment holds the compute stream; int64[segments], 1 at least.

        Args:
            timeline: simulated, with a host that takes no time.
        """
        end_ns = timeline.end_ns[self.last_node]
        begin_ns = np.append(0, end_ns[:-1]) + self.stream_lag_ns
        begin_ns = np.where(self.is_first, timeline.start_ns[self.first_node], begin_ns)
        found: Int64s = np.maximum(end_ns - begin_ns, 1)
        return found

    def leads_ns(self, timeline: Timeline, lengths_ns: Int64s) -> Int64s:
        """Host time of each segment before it could last no longer than it does; int64[segments].

        Args:
            timeline: simulated, with a host that finds the device idle.
            lengths_ns: int64[segments], of `lengths_ns`.
        """
        graph = self.graph
        begin_ns = timeline.end_ns[self.launch_node] - graph.measured_ns[self.launch_node]
        until_ns = np.cumsum(self.host_ns) - self.host_ns
        first = np.flatnonzero(self.is_first)
        until_ns -= np.repeat(until_ns[first], np.diff(np.append(first, len(self.stage))))
        took_ns = timeline.end_ns[self.last_node] - begin_ns
        found: Int64s = np.clip(
            took_ns - lengths_ns - until_ns - self.launch_lag_ns, 0, self.host_ns
        )
        return found


@dataclass(frozen=True)
class UnitStep:
    """A step's graph at unit grain."""

    laid_out: LaidOut
    segment: Int64s  # int64[nodes], place in the fragments' segments; NOTHING


@dataclass(frozen=True)
class UnitLayout:
    """A step at unit grain, whose fragments are yet to be timed."""

    fragments: Fragments
    _step: WrittenStep
    _launch: Launch

    def step(self, lengths_ns: Int64s, leads_ns: Int64s) -> UnitStep:
        """The step of one rank per stage.

        Args:
            lengths_ns: int64[segments], how long each holds the compute stream.
            leads_ns: int64[segments], host time before a segment can begin.
        """
        step, fragments = self._step, self.fragments
        items = drafted(step.pieces)
        place = np.full(sum(len(one) for one in step.pieces.templates), NOTHING, np.int64)
        place[fragments.row] = np.arange(len(fragments.row))
        segment = place[items.row]
        is_segment = segment != NOTHING
        lead_ns = host_ns_of(items.columns, self._launch)
        rest_ns = np.zeros(len(items), np.int64)
        own = segment[is_segment]
        items.columns["measured_ns"][is_segment] = lengths_ns[own]
        lead_ns[is_segment] = leads_ns[own]
        rest_ns[is_segment] = (fragments.host_ns - leads_ns)[own]
        # What the host has still to launch of one segment it does before the next.
        lead_ns[1:] += np.where(items.stage[1:] == items.stage[:-1], rest_ns[:-1], 0)
        folded = graph_of_step(step, items, self._launch, lead_ns)
        of_node = np.full(folded.graph.num_nodes, NOTHING, np.int64)
        of_node[folded.enter[is_segment]] = own
        laid_out = LaidOut(
            folded.graph, step.plan, step.schedule, step.roles(is_one=True), is_folded=True
        )
        return UnitStep(laid_out, of_node)


def unit_layout(
    blocks: ModelBlocks,
    plan: Plan,
    schedule: Schedule | None = None,
    *,
    launch: Launch | None = None,
    optimizer: Optimizer | None = None,
) -> UnitLayout:
    """A step of a model's blocks under a plan at unit grain, folded.

    Args:
        blocks: what a rank does for one microbatch, part by part.
        plan: how that is laid over ranks and time.
        schedule: the order of units on every stage; the plan's own if left out.
        launch: host times and lags; the rule that the plan's implementation names if left out.
        optimizer: makes the block that updates so many parameters; Adam's if left out.

    Raises:
        WorkloadError: if the plan, the schedule and the blocks do not fit each other.
    """
    step = written(blocks, plan, schedule, optimizer=optimizer, is_coarse=True)
    launch = launch or launch_of(plan)
    return UnitLayout(_fragments(step, launch), step, launch)


@dataclass(frozen=True)
class _Stretch:
    """What a template's segments are made of."""

    fine: Template
    place: Int64s  # int64[segments], item of the coarse template
    number: Int64s  # int64[fine items], segment
    first: Int64s  # int64[segments], first operator among the fine items
    last: Int64s  # int64[segments]

    @property
    def free(self) -> Int64s:
        """Exchanges of the fine items that wait for no operator; int64[those]."""
        stream = self.fine.columns["stream"]
        is_held = stream == COMPUTE
        is_held[self.fine.target] = True
        first = np.unique(stream, return_index=True)[1]
        streams = stream[first[~is_held[first]]].tolist()
        own = [np.flatnonzero(stream == one) for one in streams]
        return np.concatenate([first[:0], *(one[np.cumsum(is_held[one]) == 0] for one in own)])

    @property
    def ends(self) -> Int64s:
        """The last of the fine items of every stream; int64[streams in use]."""
        stream = self.fine.columns["stream"]
        return len(stream) - 1 - np.unique(stream[::-1], return_index=True)[1]


def _fragments(step: WrittenStep, launch: Launch) -> Fragments:
    rows = step.pieces.rows
    row_of_template = np.cumsum([0, *(len(one) for one in step.pieces.templates)])
    stretches = []
    for at in np.sort(np.unique(rows.template, return_index=True)[1]).tolist():
        number = int(rows.template[at])
        coarse = step.templates.coarse.get(id(step.pieces.templates[number]))
        if coarse is not None and coarse.is_segment.any():
            stretches.append((int(rows.stage[at]), coarse, int(row_of_template[number])))
    return fragments_of(stretches, lambda pieces: replace(step, pieces=pieces), launch)


def fragments_of(
    stretches: Sequence[tuple[int, Coarse, int]],
    step_of: Callable[[SortedPieces], WrittenStep],
    launch: Launch,
) -> Fragments:
    """Stretches of a step one by one.

    Args:
        stretches: stage that runs each, what it is made of, number of its first item; by stage.
        step_of: a step of such pieces.
        launch: host times and lags.
    """
    pieces = Pieces()
    own = [_stretch(coarse) for _, coarse, _ in stretches]
    for (stage, _, _), stretch in zip(stretches, own, strict=True):
        pieces.add(stage, stretch.fine)
    sorted_pieces = pieces.sorted()
    begin = np.cumsum([0, *(len(one.fine) for one in own)])
    items = _apart(drafted(sorted_pieces), own, begin)
    launch_ns = host_ns_of(items.columns, launch)
    folded = graph_of_step(step_of(sorted_pieces), items, launch, launch_ns)
    size = [len(one.place) for one in own]

    def joined(columns: Iterable[Int64s]) -> Int64s:
        return np.concatenate(list(columns))

    first = np.repeat(begin[:-1], size)
    is_first = np.concatenate([np.arange(len(one.place)) == 0 for one in own])
    segment = joined(one.number for one in own) + np.repeat(np.cumsum(size) - size, np.diff(begin))
    return Fragments(
        graph=folded.graph,
        stage=np.repeat(sorted_pieces.rows.stage, size),
        row=joined(one.place for one in own) + np.repeat([row for *_, row in stretches], size),
        host_ns=np.bincount(segment, launch_ns, minlength=sum(size)).astype(np.int64),
        is_first=is_first,
        first_node=folded.enter[first + joined(one.first for one in own)],
        last_node=folded.leave[first + joined(one.last for one in own)],
        launch_node=folded.launch[first],
        stream_lag_ns=launch.lag_ns.get(EdgeKind.STREAM, 0),
        launch_lag_ns=launch.lag_ns.get(EdgeKind.LAUNCH, 0),
    )


def _apart(items: Drafted, stretches: Sequence[_Stretch], begin: Int64s) -> Drafted:
    """Items of which none begins before its stretch, or beside what is timed before it.

    Exchanges that wait for nothing, as those that pass recomputed keys on, would. The host is far
    ahead of them in a step, so that they are over in time: no operator waits for them here.
    """
    before, behind = [items.before], [items.behind]
    is_waited = np.ones(len(items), np.bool_)
    ends = np.zeros(0, np.int64)
    for at, (stretch, first) in enumerate(zip(stretches, begin.tolist(), strict=False)):
        free = first + stretch.free
        is_waited[free] = False
        if not at or items.stage[first] != items.stage[first - 1]:
            ends = ends[:0]
        begins = np.append(first + stretch.first[0], free)
        before.append(np.repeat(ends, len(begins)))
        behind.append(np.tile(begins, len(ends)))
        ends = first + stretch.ends
    kept = is_waited[items.source]
    return replace(
        items,
        source=items.source[kept],
        target=items.target[kept],
        before=np.concatenate(before),
        behind=np.concatenate(behind),
    )


def _stretch(coarse: Coarse) -> _Stretch:
    fine, rows = without_kept(coarse)
    place = np.flatnonzero(coarse.is_segment)
    own = np.searchsorted(place, coarse.item[rows])
    operators = fine.operators
    of_operator = own[operators]
    first = operators[np.searchsorted(of_operator, np.arange(len(place)), side="left")]
    last = operators[np.searchsorted(of_operator, np.arange(len(place)), side="right") - 1]
    return _Stretch(fine, place, own, first, last)

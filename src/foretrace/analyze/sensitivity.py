"""`Sensitivity`: by how much a step changes with each thing it is made of, exactly.

Each lever gets the derivative of the step's length to its time, from the ways that lead to the
step's end and begin; the step's exact length with the lever 20% faster and free, simulated again;
and the factor down to which the derivative alone predicts that length exactly. A step's end is
the maximum over ways through the graph of sums of durations, so in a lever's factor it is convex
and made of straight pieces; where a piece ends the critical path switches, and intersecting
pieces finds that factor. Where a step begins with the end of the step before, both may switch: the
factor given is then one down to which their difference surely is straight.

What is held: every kernel keeps the time it was measured with, so work that communication slowed
down stays slow where a change would end their overlap. A lever acts in all steps of the run. That
the host does not wait for the device is no lever where most of its gain would be kernels beside
other kernels, as none ran in the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.analyze.activity import newly_at_once_ns
from foretrace.analyze.attributes import SelectionKey
from foretrace.analyze.changes import Change
from foretrace.analyze.effects import effects, replayed_of, scaling_of, step_times
from foretrace.analyze.evened import evened_ranks
from foretrace.analyze.levers import (
    Labels,
    Lever,
    LeverKind,
    LeverTable,
    Ways,
    levers_of,
    selection_with,
)
from foretrace.analyze.options import Rank, Step
from foretrace.analyze.spans import StepSpan, goals, mean_span
from foretrace.analyze.switches import Study, Switches
from foretrace.answer import (
    Answer,
    Column,
    Instead,
    Json,
    Place,
    Plain,
    Shown,
    Table,
    Told,
    Unit,
    count_text,
    duration_text,
    plain_fields,
    question,
    rows_json,
)
from foretrace.base import Bools, Int8s, Int32s
from foretrace.graph import SIMULATED, EdgeKind, Timeline
from foretrace.simulate import NO_EDGE, Scaling, simulate, simulate_batch, way_back

FASTER = 0.8  # the factor of "20% faster"
WAKE = "wake"  # edges by which the host waits for the device


@dataclass(frozen=True)
class SensitivityRow(Plain):
    """One lever; effects are what the step grows by, below 0 where it gets faster.

    Of several steps all are means over them.
    """

    kind: LeverKind
    label: str
    select: Labels  # what a change would select it by; () of stragglers
    num_nodes: int  # in the step; of a latency: edges
    time_ns: int  # in the step, over all ranks
    derivative_ns: float | None  # of the step per 100% of the lever's time; None: made or not
    linear_to: float | None  # factor down to which the derivative predicts the step exactly
    faster_ns: float | None  # effect of 20% faster
    free_ns: float  # effect of taking no time; of a synchronisation, removed; of stragglers, gone

    def as_json(self) -> dict[str, object]:
        """Everything; times in ns."""
        return {**plain_fields(self), "kind": str(self.kind), "select": self.selection}

    @property
    def change_ns(self) -> float:
        """What the step grows by under the change that stands for the lever."""
        return self.free_ns if self.faster_ns is None else self.faster_ns

    @property
    def selection(self) -> str:
        """As a change writes it, without its factor: "ranks:3 compute"; "" of stragglers."""
        return selection_with(self.select).written if self.select else ""


@dataclass(frozen=True, repr=False)
class Sensitivity(Answer):
    """Levers of a step, or of the mean of a run's; rows by kind, then steepest first."""

    note = (
        "Slope: of the step per 100 % of the time. Linear to: the factor of the time down to "
        "which the slope alone gives the step; beyond it another path is critical. As a "
        "change: what foretrace sensitivity --change takes, with `=FACTOR` behind it."
    )

    timeline: Timeline  # simulated, what the effects are held against
    span: StepSpan
    derivative: Int8s  # int8[nodes], of the span's length to each node's duration: -1, 0 or 1
    rows: tuple[SensitivityRow, ...]

    @property
    def step_ns(self) -> int:
        """Length of the simulated step; of several, their mean."""
        return self.span.step_ns

    def of_kind(self, kind: LeverKind) -> tuple[SensitivityRow, ...]:
        """The rows of one kind of lever."""
        return tuple(row for row in self.rows if row.kind == kind)

    @property
    def headline(self) -> str:
        """Which step, how long, and how many levers."""
        levers = count_text(len(self.rows), "lever")
        return f"{self.span.step_name}: {duration_text(self.step_ns)}; {levers}"

    def parts(self) -> tuple[Told, ...]:
        """The levers, those first that gain most."""
        return (levers_table(self.rows, self.step_ns),)

    def tables(self) -> tuple[Table, ...]:
        """The levers by kind, then steepest first."""
        return (levers_table(self.rows, self.step_ns, is_sorted=False),)

    def as_json(self) -> Json:
        """The step and its levers; times in ns, effects as a share of the step beside them."""
        return {
            "step": self.span.step_name,
            "rank": self.span.rank,
            "step_ns": self.step_ns,
            "faster_factor": FASTER,
            **rows_json(*self.tables()),
        }


def levers_table(rows: Sequence[SensitivityRow], step_ns: int, *, is_sorted: bool = True) -> Table:
    """Levers with what the step grows by, below 0 where it gets faster."""

    def share(name: str) -> Callable[[SensitivityRow], float | None]:
        def of(row: SensitivityRow) -> float | None:
            effect_ns: float | None = getattr(row, name)
            return None if effect_ns is None else effect_ns / step_ns

        return of

    faster = f"{100 * (1 - FASTER):.0f} % faster"
    signed = Unit.SIGNED_SHARE
    if is_sorted:
        rows = sorted(rows, key=lambda row: (row.change_ns, row.label))
    return Table.of(
        "rows",
        rows,
        Column("kind", unit=Unit.WORD, value=lambda row: str(row.kind)),
        Column("label", "lever", Unit.NAME),
        Column("select", "as a change", Unit.WORD, "selection", Shown.WIDE),
        Column("num_nodes", shown=Shown.FILES),
        Column("time_ns"),
        Column("derivative_ns", shown=Shown.FILES),
        Column("linear_to", "linear to", Unit.NUMBER),
        Column("faster_ns", f"{faster} ms", Unit.SIGNED_MS, shown=Shown.WIDE),
        Column("free_ns", "free ms", Unit.SIGNED_MS, shown=Shown.WIDE),
        Column("derivative_share", "slope", signed, share("derivative_ns")),
        Column("faster_share", faster, signed, share("faster_ns")),
        Column("free_share", "free", signed, share("free_ns")),
        max_rows=24,
    )


def _told(found: Sensitivity, top: int) -> tuple[Told, ...]:
    """What would help most above the levers."""
    from foretrace.analyze.advice import what_helps  # here: it is about what this module finds

    return *what_helps(found, top=top).parts(), *found.parts()


@question(
    SIMULATED,
    help="Say what would shorten the step most, by simulating it.",
    doing="simulating with each thing faster",
    place=Place(140, "Sensitivity"),
    told=_told,
    instead=Instead("change", effects),
)
def sensitivity(
    timeline: Timeline, *, step: Step = None, rank: Rank = None, top: int = 20
) -> Sensitivity:
    """What a step's length depends on, and by how much.

    Args:
        timeline: of a simulated one the durations count; of a measured one, the graph's, as a
            replay takes them.
        step: by name or number; without one, the mean over the run's steps, the job's step time.
        rank: that rank's own step; the job's if left out.
        top: levers of each kind, steepest first.

    Raises:
        GraphError: if there is no such step, or the rank has none.
    """
    replayed = replayed_of(timeline)
    span = mean_span(replayed, step, rank)
    ways = _ways(replayed, span)
    table = levers_of(replayed.graph, ways, top=top)
    goal = goals(replayed.graph, span)
    study = Study(replayed, goal, table)
    switches = study.switches(FASTER)
    derivative = np.zeros(replayed.graph.num_nodes, np.int8)
    derivative[ways.nodes[0]] += 1
    derivative[ways.nodes[1]] -= 1
    rows = _rows(table, switches, span)
    return Sensitivity(
        timeline=replayed,
        span=span,
        derivative=derivative,
        rows=(*rows, *_whole(replayed, span, goal)),
    )


def _ways(timeline: Timeline, span: StepSpan) -> Ways:
    """What the step's end and begin waited for, back to the graph's zero."""
    ways = [way_back(timeline, node) for node in (span.end_node, span.begin_node)]
    return Ways(
        timeline=timeline,
        in_step=np.isin(timeline.graph.step, span.steps),
        nodes=(ways[0].node, ways[1].node),
        edges=(ways[0].edge[ways[0].edge != NO_EDGE], ways[1].edge[ways[1].edge != NO_EDGE]),
    )


def _rows(table: LeverTable, switches: Switches, span: StepSpan) -> list[SensitivityRow]:
    """Each lever with what was found for it, for each step."""
    num_steps = len(span.steps)
    faster_ns = switches.faster_ns - span.duration_ns
    free_ns = switches.free_ns - span.duration_ns
    return [
        SensitivityRow(
            kind=lever.kind,
            label=lever.label,
            select=lever.select,
            num_nodes=round(lever.num_nodes / num_steps),
            time_ns=round(lever.time_ns / num_steps),
            derivative_ns=(lever.slope_ns[0] - lever.slope_ns[1]) / num_steps,
            linear_to=_linear_to(lever, float(switches.linear_to[row]), span.duration_ns),
            faster_ns=float(faster_ns[row]) / num_steps,
            free_ns=float(free_ns[row]) / num_steps,
        )
        for row, lever in enumerate(table.levers)
    ]


def _linear_to(lever: Lever, switch: float, step_ns: int) -> float:
    """The factor at which the path switches, or that at which no step would be left."""
    slope_ns = lever.slope_ns[0] - lever.slope_ns[1]
    return max(switch, 1 - step_ns / slope_ns) if slope_ns > 0 else switch


def _whole(timeline: Timeline, span: StepSpan, goal: Int32s) -> list[SensitivityRow]:
    """Changes that are made or not: no synchronisation, no stragglers."""
    graph = timeline.graph
    in_step: Bools = np.isin(graph.step, span.steps)
    into_step = np.repeat(in_step, np.diff(graph.first_edge))
    is_wake = into_step & (graph.edge_kind == EdgeKind.WAKE)
    found = []
    if is_wake.any():
        wake = (SelectionKey.EDGE, WAKE)
        removed = Change(select=selection_with((wake,)), factor=0.0, is_removed=True)
        lags_ns = int(graph.lag_ns[is_wake].sum())
        made = _Made(LeverKind.SYNCHRONISATION, "no waiting for the device", (wake,))
        found.append((made, int(is_wake.sum()), lags_ns, scaling_of(graph, [[removed]])))
    even = evened_ranks(timeline, in_step)
    if even is not None:
        works_ns = int(timeline.duration_ns[even.is_compute & in_step].sum())
        made = _Made(LeverKind.STRAGGLERS, "all ranks as fast as the fastest", ())
        found.append((made, int((even.is_compute & in_step).sum()), works_ns, even.scaling))
    rows = [_made_row(timeline, span, goal, one) for one in found]
    return [
        row
        for row in rows
        if row.kind != LeverKind.SYNCHRONISATION or not _takes_room(timeline, span, row, is_wake)
    ]


def _takes_room(timeline: Timeline, span: StepSpan, row: SensitivityRow, is_wake: Bools) -> bool:
    """Whether most of a gain is kernels at once for which no device was seen to have room."""
    graph = timeline.graph
    freed = graph.rewired(
        graph.predecessor[~is_wake],
        graph.edge_target[~is_wake],
        kind=graph.edge_kind[~is_wake],
        lag_ns=graph.lag_ns[~is_wake],
    )
    after = simulate(freed, timeline.duration_ns)
    return 2 * newly_at_once_ns(timeline, after) > -row.free_ns * len(span.steps)


@dataclass(frozen=True)
class _Made:
    """A change that is made or not."""

    kind: LeverKind
    label: str
    select: Labels


def _made_row(
    timeline: Timeline, span: StepSpan, goal: Int32s, made: tuple[_Made, int, int, Scaling]
) -> SensitivityRow:
    """A change that is made or not, simulated."""
    what, count, time_ns, scaling = made
    num_steps = len(span.steps)
    duration_ns = timeline.duration_ns
    ends = simulate_batch(timeline.graph, scaling, goal, duration_ns=duration_ns)
    return SensitivityRow(
        kind=what.kind,
        label=what.label,
        select=what.select,
        num_nodes=round(count / num_steps),
        time_ns=round(time_ns / num_steps),
        derivative_ns=None,
        linear_to=None,
        faster_ns=None,
        free_ns=float(step_times(ends.end_ns)[0] - span.duration_ns) / num_steps,
    )

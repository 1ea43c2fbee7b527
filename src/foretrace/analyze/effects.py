"""`Effect`: how long a step takes after a change, by simulating it again; no approximation.

What is held: every kernel keeps the time it was measured with, so work that communication slowed
down stays slow where a change would end their overlap, and what is not changed is as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

import numpy as np

from foretrace.analyze.changes import Change, read_change
from foretrace.analyze.options import Rank, Step
from foretrace.analyze.selection import selected, selected_edges
from foretrace.analyze.spans import BEGIN_GOAL, END_GOAL, goals, mean_span
from foretrace.answer import (
    Answer,
    Column,
    Json,
    Option,
    Shown,
    Table,
    Told,
    Unit,
    cell_text,
    duration_text,
    plain,
    plain_fields,
    question,
)
from foretrace.base import Bools, Float64s, Int32s, Int64s
from foretrace.graph import SIMULATED, EdgeKind, ExecutionGraph, Timeline
from foretrace.simulate import Scaling, simulate, simulate_batch

Changes: TypeAlias = Change | str | Sequence[Change | str]
_MAX_TABLE_BITS = 10  # changes whose every combination gets a column; more: those that occur


@dataclass(frozen=True, repr=False)
class Effect(Answer):
    """A step, or the mean of the run's steps, before and after changes made together."""

    json_names: ClassVar = {"step_name": "step", "changes": ""}
    json_also: ClassVar = ("effect_ns", "share")

    changes: tuple[Change, ...]
    step_name: str
    rank: int | None  # None: the job's step
    step_ns: int  # simulated, without the changes
    changed_ns: float  # with them
    num_nodes: int  # with work that changes, in all steps
    work_ns: int  # their time before, summed over ranks and steps

    @property
    def effect_ns(self) -> float:
        """What the step grows by; below 0 it gets faster."""
        return self.changed_ns - self.step_ns

    @property
    def share(self) -> float:
        """What the step grows by, as a share of itself."""
        return self.effect_ns / self.step_ns

    @property
    def headline(self) -> str:
        """One sentence: `gemm=0.8: step -6.11 % (-12.30 ms of 201.4 ms)`."""
        named = ", ".join(map(str, self.changes))
        return (
            f"{named}: step {cell_text(self.share, Unit.SIGNED_SHARE)} "
            f"({cell_text(self.effect_ns, Unit.SIGNED_NS)} of {duration_text(self.step_ns)})"
        )

    def as_json(self) -> Json:
        """Everything, changes as text; times in ns."""
        return {"changes": [str(change) for change in self.changes], **plain_fields(self)}

    def parts(self) -> tuple[Told, ...]:
        """The effect as a row."""
        return (effects_table((self,)),)


@dataclass(frozen=True, repr=False)
class Effects(Answer):
    """Changes one by one, then all of them together."""

    rows: tuple[Effect, ...]

    @property
    def headline(self) -> str:
        """The step without the changes."""
        return f"{self.rows[0].step_name}: {duration_text(self.rows[0].step_ns)} as it is"

    def parts(self) -> tuple[Told, ...]:
        """A row per effect."""
        return (effects_table(self.rows),)

    def as_json(self) -> Json:
        """Every effect; times in ns."""
        return plain(self.rows)


def effects_table(rows: Sequence[Effect]) -> Table:
    """What each change, or all of several, do to the step."""
    return Table.of(
        "effects",
        rows,
        Column("changes", "with", value=lambda one: " ".join(map(str, one.changes))),
        Column("step", value="step_name", shown=Shown.FILES),
        Column("rank", shown=Shown.FILES),
        Column("step_ns", shown=Shown.FILES),
        Column("changed_ns", "step ms"),
        Column("share", "change", Unit.SIGNED_SHARE),
        Column("effect_ns", "in ms", Unit.SIGNED_MS),
        Column("num_nodes", shown=Shown.FILES),
        Column("work_ns", "work changed", Unit.NS),
        is_strong=lambda one: len(one.changes) > 1,
    )


@question(SIMULATED, doing="simulating the changes")
def effect(timeline: Timeline, changes: Changes, *, step: Step = None, rank: Rank = None) -> Effect:
    """How a step's length changes when all these changes are made, in every step of the run.

    Args:
        timeline: of a simulated one the durations count; of a measured one, the graph's, as a
            replay takes them.
        changes: one or several, as `Change` or as text, see `read_change`. Work that several
            select takes the product of their factors.
        step: by name or number; without one, the mean over the run's steps, the job's step time.
        rank: that rank's own step; the job's if left out.

    Raises:
        ScenarioError: if a change cannot be read or names nothing in the graph.
        GraphError: if there is no such step, or the rank has none.
    """
    listed = tuple(
        read_change(one) if isinstance(one, str) else one
        for one in ([changes] if isinstance(changes, Change | str) else changes)
    )
    replayed = replayed_of(timeline)
    graph = replayed.graph
    span = mean_span(replayed, step, rank)
    duration_ns = replayed.duration_ns
    scaling = scaling_of(graph, [listed])
    ends = simulate_batch(graph, scaling, goals(graph, span), duration_ns=duration_ns)
    grown_ns = float(step_times(ends.end_ns)[0]) - span.duration_ns
    is_changed = (scaling.factor[0][scaling.label] != 1) & (duration_ns > 0)
    return Effect(
        changes=listed,
        step_name=span.step_name,
        rank=rank,
        step_ns=span.step_ns,
        changed_ns=span.step_ns + grown_ns / len(span.steps),
        num_nodes=int(is_changed.sum()),
        work_ns=int(duration_ns[is_changed].sum()),
    )


@question(SIMULATED, doing="simulating the changes")
def effects(
    timeline: Timeline,
    *,
    change: Annotated[
        list[str],
        Option(
            "Make this change, as in gemm=0.8 or 'gemm layers:0-3=0'; may be given again.",
            metavar="WORK=FACTOR",
        ),
    ],
    step: Step = None,
    rank: Rank = None,
) -> Effects:
    """What each of these changes does to a step's length, and all of them together.

    Args:
        timeline: as of `effect`.
        change: one or more, as text, see `read_change`.
        step: by name or number; without one, the mean over the run's steps, the job's step time.
        rank: that rank's own step; the job's if left out.

    Raises:
        ScenarioError: if a change cannot be read or names nothing in the graph.
        GraphError: if there is no such step, or the rank has none.
    """
    together = (change,) if len(change) > 1 else ()
    return Effects(
        tuple(effect(timeline, one, step=step, rank=rank) for one in (*change, *together))
    )


def replayed_of(timeline: Timeline) -> Timeline:
    """The timeline that changes are held against: a measured one's replay, else itself."""
    return simulate(timeline.graph) if timeline.is_measured else timeline


def step_times(end_ns: Float64s) -> Float64s:
    """Lengths of a step from the ends of its two goals; float64[samples].

    A step that ends before the step before does has none, as in `windows`.
    """
    return np.maximum(end_ns[:, END_GOAL] - end_ns[:, BEGIN_GOAL], 0)


def scaling_of(graph: ExecutionGraph, samples: Sequence[Sequence[Change]]) -> Scaling:
    """Factors for each sample, a list of changes made together.

    Raises:
        ScenarioError: if a change names nothing in the graph.
    """
    changes = list(dict.fromkeys(change for several in samples for change in several))
    on_work = [change for change in changes if not change.on_edges]
    kinds_of = {
        change: selected_edges(change.select.edges)
        for change in changes
        if change.select.edges is not None
    }
    label, member = _labelled(graph, on_work)
    factor = np.ones((len(samples), member.shape[1]))
    lag_factor = np.ones((len(samples), len(EdgeKind)))
    is_removed = np.zeros((len(samples), len(EdgeKind)), np.bool_)
    for row, several in enumerate(samples):
        for change in several:
            if change.is_removed:
                is_removed[row] |= kinds_of[change]
            elif change.on_edges:
                lag_factor[row, kinds_of[change]] *= change.factor
            else:
                factor[row, member[on_work.index(change)]] *= change.factor
    if not kinds_of:
        return Scaling(label=label, factor=factor)
    return Scaling(label=label, factor=factor, lag_factor=lag_factor, is_removed=is_removed)


def _labelled(graph: ExecutionGraph, changes: Sequence[Change]) -> tuple[Int32s, Bools]:
    """Each node's combination of changes, and which combinations a change is in.

    int32[nodes], and bool[changes, combinations].
    """
    bits: Int64s = np.zeros(graph.num_nodes, np.int64)
    for position, change in enumerate(changes):
        bits |= selected(graph, change.select).astype(np.int64) << position
    if len(changes) <= _MAX_TABLE_BITS:
        label, combinations = bits.astype(np.int32), np.arange(1 << len(changes))
    else:
        combinations, found = np.unique(bits, return_inverse=True)
        label = found.astype(np.int32)
    positions = np.arange(len(changes))[:, None]
    return label, (combinations >> positions & 1).astype(np.bool_)

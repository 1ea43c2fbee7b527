"""`Prediction`: a job as it was replayed, the same job edited, and what makes the difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from foretrace.analyze import Comparison, PieceKind, compare, critical_path, windows
from foretrace.answer import (
    Answer,
    Column,
    Facts,
    Json,
    Plain,
    Table,
    Told,
    Unit,
    duration_text,
    plain,
    signed_percent_text,
)
from foretrace.cost import Costs, Source
from foretrace.estimate import SharedLinks
from foretrace.graph import ExecutionGraph, Timeline
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.parts import (
    cause_parts,
    change_parts,
    effect_parts,
    ground_parts,
    memory_change_parts,
)
from foretrace.whatif.scenario import Scenario
from foretrace.whatif.summary import figures, subject_text
from foretrace.workload import Footprint, plan_table

_LAGS = "hand-overs"  # on the critical path: launch latencies, wake-ups, between streams


@dataclass(frozen=True)
class EditEffect(Plain):
    """What one edit does to the step, made after those before it."""

    edit: Edit
    sentence: str  # one line: what it changes, and what it cannot know
    step_ns: int  # with this edit and those before it
    change_ns: int

    def as_json(self) -> Json:
        """Builtins only."""
        return {
            "edit": type(self.edit).__name__,
            "sentence": self.sentence,
            "step_ns": self.step_ns,
            "change_ns": self.change_ns,
        }


@dataclass(frozen=True)
class Memory(Plain):
    """Memory before and after, of the worst stage; `None` where no model was stated."""

    json_also: ClassVar = ("change_bytes",)

    before: Footprint
    after: Footprint

    @property
    def change_bytes(self) -> int:
        """Of the fullest stage of each."""
        return self.after.peak.total - self.before.peak.total


@dataclass(frozen=True, repr=False)
class Prediction(Answer):
    """The answer to a what-if.

    All times are of the job's step: from the end of the step before on all ranks to its own;
    the mean over the recorded steps.
    """

    name: str
    before: Scenario
    after: Scenario
    effects: tuple[EditEffect, ...]  # in the order in which edits were given
    replayed: Timeline  # of the recording
    timeline: Timeline  # of the edited job
    costs: Costs  # of the edited graph's nodes: durations, intervals, sources
    measured_step_ns: int  # of the recording; 0: nothing was measured, the job is an estimate
    replayed_step_ns: int
    step_ns: int  # predicted
    low_ns: int  # 10th percentile
    high_ns: int  # 90th
    method: str  # "arranged": from recorded pieces; "scaled": ratio of estimates; "estimated"
    memory: Memory | None = None
    links: SharedLinks | None = None  # `None`: every transfer found its links empty
    notes: tuple[str, ...] = field(default=())

    @property
    def graph(self) -> ExecutionGraph:
        """Who waits for whom in the edited job."""
        return self.timeline.graph

    @property
    def change_ns(self) -> int:
        """How much longer the step is than the replayed one; below 0 it is shorter."""
        return self.step_ns - self.replayed_step_ns

    @property
    def percent(self) -> float:
        """The same, in percent of the replayed step."""
        return 100.0 * self.change_ns / max(self.replayed_step_ns, 1)

    @property
    def throughput(self) -> float:
        """How many times as many sequences the job does in a second."""
        was = self.before.plan.global_batch / max(self.replayed_step_ns, 1)
        return self.after.plan.global_batch / max(self.step_ns, 1) / was

    @property
    def throughput_per_rank(self) -> float:
        """The same of each rank: above 1, a sequence costs less rank-time than before."""
        return self.throughput * self.before.plan.num_ranks / self.after.plan.num_ranks

    @cached_property
    def comparison(self) -> Comparison | None:
        """Where the difference goes, over all steps; `None` of a recording without steps."""
        if not all(len(windows(timeline)) for timeline in (self.replayed, self.timeline)):
            return None
        return compare(self.replayed, self.timeline, every_step=True)

    @cached_property
    def share_by_source(self) -> Mapping[str, float]:
        """Shares of the critical path by where its durations come from, the surest first.

        Of a recording without steps: of all nodes' time.
        """
        time_ns = np.zeros(len(Source) + 1, np.int64)
        if len(windows(self.timeline)):
            path = critical_path(self.timeline)
            is_work = path.kind == PieceKind.WORK
            np.add.at(time_ns, self.costs.source[path.node[is_work]], path.duration_ns[is_work])
            time_ns[-1] = path.duration_ns[~is_work].sum()
        else:
            np.add.at(time_ns, self.costs.source, self.costs.duration_ns)
        names = [*(source.name.lower() for source in Source), _LAGS]
        whole_ns = max(int(time_ns.sum()), 1)
        return {
            name: one_ns / whole_ns
            for name, one_ns in zip(names, time_ns.tolist(), strict=True)
            if one_ns
        }

    @property
    def headline(self) -> str:
        """Which edits, how much longer or shorter the step is, how sure."""
        name = f"{self.name}: " if self.name else ""
        low, high = duration_text(self.low_ns), duration_text(self.high_ns)
        return (
            f"{name}{subject_text(self)}: {duration_text(self.replayed_step_ns)} -> "
            f"{duration_text(self.step_ns)} ({signed_percent_text(self.percent)}), {low} to {high}"
        )

    def parts(self) -> tuple[Told, ...]:
        """The figures that matter, edits, where the difference goes and why, memory, sources."""
        return (
            Facts(figures(self)),
            *effect_parts(self),
            *change_parts(self),
            *cause_parts(self),
            *memory_change_parts(self.memory),
            *(() if self.links is None else (self.links.table(),)),
            *ground_parts(self),
        )

    def tables(self) -> tuple[Table, ...]:
        """A row per edit, then what else is told."""
        effects = Table.of(
            "edits",
            self.effects,
            Column("edit", value=lambda one: type(one.edit).__name__),
            Column("sentence"),
            Column("step_ns"),
            Column("change_ns", unit=Unit.SIGNED_MS),
        )
        return effects, *super().tables()

    def as_json(self) -> Json:
        """Everything but the timelines; times in ns, memory in bytes, plans as their files."""
        found = self.comparison
        return {
            "name": self.name,
            "method": self.method,
            "measured_ns": self.measured_step_ns,
            "replayed_ns": self.replayed_step_ns,
            "step_ns": self.step_ns,
            "low_ns": self.low_ns,
            "high_ns": self.high_ns,
            "change_ns": self.change_ns,
            "percent": self.percent,
            "throughput": self.throughput,
            "throughput_per_rank": self.throughput_per_rank,
            "effects": plain(self.effects),
            "difference": None if found is None else found.as_json(),
            "memory": None if self.memory is None else self.memory.as_json(),
            "sources": dict(self.share_by_source),
            **({} if self.links is None else {"links": plain(self.links)}),
            "before": _scenario_json(self.before),
            "after": _scenario_json(self.after),
            "notes": list(self.notes),
        }


def _scenario_json(scenario: Scenario) -> dict[str, object]:
    return {
        "sizes": asdict(scenario.sizes),
        "plan": plan_table(scenario.plan),
        "machine": None if scenario.machine is None else scenario.machine.name,
        "changes": [change.as_json() for change in scenario.changes],
    }

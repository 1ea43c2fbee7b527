"""`Remedies`: real changes, each tried as a what-if on a recording; those that pay, in their order.

Unlike a lever (`analyze.what_helps`), a remedy is something that somebody does: its edits, what it
takes to do, and what has to be true. Each gain is that of the same edits under `whatif`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from foretrace.analyze import evened_ranks, selection_of, windows
from foretrace.answer import (
    Answer,
    Column,
    Plain,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    duration_text,
    percent_text,
)
from foretrace.base import ScenarioError
from foretrace.graph import NodeKind
from foretrace.whatif.baseline import Baseline
from foretrace.whatif.edits import CudaGraphs, DataLoading, Fuse, NoStalls, RemoveSync, Speed
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.outcome import outcome

_LEAST_SHARE = 0.005  # of the step: what gains less is not worth a change
_MAX_TOGETHER = 3


@dataclass(frozen=True)
class PossibleChange:
    """One thing that somebody could do."""

    name: str
    edits: tuple[Edit, ...]
    effort: str  # "hours", "days" or "weeks", of one who knows the code
    needs: str  # what has to be true


@dataclass(frozen=True)
class Remedy(Plain):
    """One change, or several together, and what the step becomes."""

    name: str
    edits: tuple[Edit, ...]
    effort: str
    needs: str
    step_ns: int
    low_ns: int  # 10th percentile
    high_ns: int  # 90th
    gain_ns: int
    share: float  # of the replayed step

    @property
    def sentence(self) -> str:
        """What it is worth, and what it takes."""
        return (
            f"{self.name} would save {percent_text(100 * self.share)} of the step: "
            f"{duration_text(self.step_ns)} ({duration_text(self.low_ns)} to "
            f"{duration_text(self.high_ns)}); takes {self.effort}, if {self.needs}"
        )


@dataclass(frozen=True, repr=False)
class Remedies(Answer):
    """Changes that pay, the most first; gains alone do not add up."""

    step_ns: int  # replayed
    rows: tuple[Remedy, ...]
    together: tuple[Remedy, ...]  # the best two, the best three
    num_tried: int

    @property
    def headline(self) -> str:
        """What pays most."""
        if not self.rows:
            return f"none of {self.num_tried} changes that were tried shortens the step by 0.5 %"
        return self.rows[0].sentence

    @property
    def note(self) -> str:
        """How to read the table."""
        return (
            "Each is tried alone, as `foretrace whatif` makes it; together they gain what the last "
            "rows say. Intervals are middle 80 %."
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing pays."""
        return not self.rows

    def parts(self) -> tuple[Told, ...]:
        """Those that pay, then the best together."""
        columns = (
            Column("name", "change", Unit.TEXT),
            Column("share", "step", Unit.SIGNED_SHARE, lambda one: -one.share),
            Column("gain_ns", "saves ms"),
            Column("step_ns"),
            Column("low_ns", "from", shown=Shown.WIDE),
            Column("high_ns", "to", shown=Shown.WIDE),
            Column("effort", unit=Unit.WORD),
            Column("needs", "if", Unit.TEXT, shown=Shown.WIDE),
        )
        return (
            Table.of("rows", self.rows, *columns),
            Table.of("together", self.together, *columns, title="together"),
            Sentences.of("what it takes", (one.sentence for one in self.rows)),
        )


def tried_remedies(baseline: Baseline) -> Remedies:
    """Every change of the catalogue that can be made to a recording, tried."""
    tried = [
        found for change in changes(baseline) if (found := _tried(baseline, change)) is not None
    ]
    rows = [one for one in tried if one.share >= _LEAST_SHARE]
    rows.sort(key=lambda one: (-one.gain_ns, one.name))
    together = []
    for count in range(2, min(len(rows), _MAX_TOGETHER) + 1):
        best = rows[:count]
        found = _tried(
            baseline,
            PossibleChange(
                name=" + ".join(one.name for one in best),
                edits=tuple(edit for one in best for edit in one.edits),
                effort=max((one.effort for one in best), key=_EFFORTS.index),
                needs="; ".join(one.needs for one in best),
            ),
        )
        if found is not None:
            together.append(found)
    return Remedies(baseline.replayed_step_ns, tuple(rows), tuple(together), len(tried))


def _tried(baseline: Baseline, change: PossibleChange) -> Remedy | None:
    """A change's what-if; None where it cannot be made to this recording."""
    scenario = baseline.before
    with suppress(ScenarioError):
        for edit in change.edits:
            scenario = edit.applied(scenario)
        last = outcome(baseline, scenario)
        gain_ns = baseline.replayed_step_ns - last.step_ns
        return Remedy(
            name=change.name,
            edits=change.edits,
            effort=change.effort,
            needs=change.needs,
            step_ns=last.step_ns,
            low_ns=last.low_ns,
            high_ns=last.high_ns,
            gain_ns=gain_ns,
            share=gain_ns / baseline.replayed_step_ns,
        )
    return None


# -- the catalogue --------------------------------------------------------------------------------

_EFFORTS = ("hours", "days", "weeks")


def changes(baseline: Baseline) -> Iterator[PossibleChange]:
    """The changes that this recording could be told of; some may turn out not to apply."""
    graph = baseline.program.graph
    yield PossibleChange(
        "no host stalls",
        (NoStalls(),),
        "hours",
        "threads get cores of their own, and collections of garbage and allocations happen outside "
        "of steps",
    )
    yield PossibleChange(
        "data loaded ahead",
        (DataLoading(duration_ns=0),),
        "hours",
        "workers have the next batch ready before its step",
    )
    waits = graph.nodes_of(NodeKind.SYNC)
    names = sorted({graph.names[name] for name in np.unique(graph.name[waits]).tolist()})
    if names:
        yield PossibleChange(
            "no blocking synchronisation",
            tuple(RemoveSync(name) for name in names),
            "hours",
            "no step needs a value of the device on the host (`.item()`, copies to the host)",
        )
    if graph.has_device:
        yield from _of_launches()
    yield from _equal_ranks(baseline)


def _of_launches() -> Iterator[PossibleChange]:
    """What spares launches."""
    yield PossibleChange(
        "CUDA graphs",
        (CudaGraphs(),),
        "days",
        "shapes stay the same and nothing inside waits for the device",
    )
    yield PossibleChange(
        "fused elementwise kernels",
        (Fuse(selection_of("elementwise")),),
        "days",
        "`torch.compile` can trace the model; memory traffic that fusing saves is not counted",
    )
    yield PossibleChange(
        "fused optimizer",
        (Fuse(selection_of("phase:optimizer")),),
        "hours",
        "the optimizer has a fused form for these parameters",
    )


def _equal_ranks(baseline: Baseline) -> Iterator[PossibleChange]:
    """Ranks as fast as the fastest that does the same."""
    timeline, steps = baseline.replayed, windows(baseline.replayed)
    evened = evened_ranks(timeline, np.isin(timeline.graph.step, steps.step))
    if evened is None:
        return
    yield PossibleChange(
        "ranks as fast as the fastest",
        tuple(
            Speed(1 / factor, selection_of(f"compute ranks:{rank}"))
            for rank, factor in zip(evened.ranks, evened.factor.tolist(), strict=True)
            if factor < 1
        ),
        "weeks",
        "slow chips can be replaced, or work moved from slow ranks to fast ones",
    )

"""`Remedies`: real changes, each tried as a what-if on a recording; those that pay, in their order.

Unlike a lever (`analyze.what_helps`), a remedy is something that somebody does: its edits, what it
takes to do, and what has to be true. Each gain is that of the same edits under `whatif`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

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
from foretrace.whatif.baseline import Baseline
from foretrace.whatif.catalogue import EFFORTS, PossibleChange, proposals
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.outcome import outcome

_LEAST_SHARE = 0.005  # of the step: what gains less is not worth a change
_MAX_TOGETHER = 3


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
            f"{subject_of(self.name)} would save {percent_text(100 * self.share)} of the step: "
            f"{duration_text(self.step_ns)} ({duration_text(self.low_ns)} to "
            f"{duration_text(self.high_ns)}); takes {self.effort}, if {self.needs}"
        )


def subject_of(change: str) -> str:
    """A change as what does something: `no host stalls` alone would be read as a denial."""
    return f"having {change}" if change.startswith("no ") else change


@dataclass(frozen=True, repr=False)
class Remedies(Answer):
    """Changes that pay, the most first; gains alone do not add up."""

    note = (
        "Each is tried alone, as `foretrace whatif` makes it; together they gain what the last "
        "rows say. Intervals are middle 80 %."
    )

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


def tried_remedies(baseline: Baseline, *, memory_bytes: int | None = None) -> Remedies:
    """Every change of the catalogue that can be made to a recording, tried; of its ways the best.

    Args:
        baseline: of a recording.
        memory_bytes: that each of its devices has; none: not known.
    """
    best: dict[str, Remedy] = {}
    num_tried = 0
    for change in proposals(baseline, memory_bytes=memory_bytes):
        found = _tried(baseline, change)
        if found is None:
            continue
        num_tried += 1
        known = best.get(change.of)
        if known is None or found.gain_ns > known.gain_ns:
            best[change.of] = found
    rows = [one for one in best.values() if one.share >= _LEAST_SHARE]
    rows.sort(key=lambda one: (-one.gain_ns, one.name))
    together = []
    for count in range(2, min(len(rows), _MAX_TOGETHER) + 1):
        alone = rows[:count]
        found = _tried(
            baseline,
            PossibleChange(
                name=" + ".join(one.name for one in alone),
                edits=tuple(edit for one in alone for edit in one.edits),
                effort=max((one.effort for one in alone), key=EFFORTS.index),
                needs="; ".join(one.needs for one in alone),
            ),
        )
        if found is not None:
            together.append(found)
    return Remedies(baseline.replayed_step_ns, tuple(rows), tuple(together), num_tried)


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

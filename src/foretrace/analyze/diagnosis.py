"""`Diagnosis`: what is wrong with a job, worst first, over idle time, stragglers, stalls and hangs.

A hang comes first, then what costs time (`loss_causes`). Time lost is per step and rank: an entry
gone, the average rank has so much less to lose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar

from foretrace.analyze.hangs import hang
from foretrace.analyze.idle import IdleCause, idle
from foretrace.analyze.loss_causes import ALL_RANKS, Cause, loss_causes
from foretrace.analyze.steps import steps
from foretrace.analyze.windows import step_time_ns
from foretrace.answer import (
    Answer,
    Column,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    duration_text,
    percent_text,
)
from foretrace.graph import Recording, Timeline

MIN_LOST_NS = 1_000  # per step and rank; less is below what the profiler resolves
_TOLD_SHARE = 0.005  # of the step: a smaller loss stands in the table alone
LEAST_SHARE = 0.02  # of the step: a smaller loss is no answer to what is wrong
_LITTLE_SHARE = 0.05  # of the step: where less is lost in all, nothing is to be explained
_MUCH_SHARE = 0.5  # of the step: where devices stand still longer at its ends, little was recorded
# What says that time was lost, and not why.
_VAGUE = frozenset(
    one.words
    for one in (IdleCause.COMPUTE, IdleCause.COPY, IdleCause.COMMUNICATION, IdleCause.STREAM)
)


@dataclass(frozen=True, repr=False)
class Diagnosis(Answer):
    """What is wrong, most harmful first."""

    json_names: ClassVar = {"edge_ns": ""}

    causes: tuple[Cause, ...]
    step_ns: int  # the job's step time
    unexplained_ns: int  # lost per step and rank, and nothing recorded says why
    lost_ns: int = 0  # per step and rank, idle and waiting
    edge_ns: int = 0  # of it, before the first and after the last device work that was recorded

    @property
    def is_told(self) -> bool:
        """Whether the first cause says why the step is as long as it is."""
        if not self.causes:
            return False
        first = self.causes[0]
        if first.topic == "hang":
            return True
        is_large = first.share >= LEAST_SHARE and first.lost_ns > self.unexplained_ns
        return is_large and first.what not in _VAGUE

    @property
    def headline(self) -> str:
        """The cause that costs most; or that none can be told, and what is largest."""
        if self.is_told:
            return self.causes[0].sentence
        most_ns = self.causes[0].lost_ns if self.causes else 0
        if self.lost_ns < _LITTLE_SHARE * self.step_ns:
            lost = percent_text(100 * self.lost_ns / self.step_ns)
            return f"nothing stands out: all lost time together is {lost} of the step"
        if self.edge_ns > max(most_ns, self.unexplained_ns, _MUCH_SHARE * self.step_ns):
            share = percent_text(100 * self.edge_ns / self.step_ns)
            return (
                f"cannot tell what to blame: {share} of the step lies before the first or after "
                "the last device work that was recorded"
            )
        if max(most_ns, self.unexplained_ns) < LEAST_SHARE * self.step_ns:
            return "cannot tell what to blame: no cause of lost time takes 2 % of the step"
        if self.unexplained_ns >= most_ns:
            lost = duration_text(self.unexplained_ns)
            return (
                f"cannot tell why: {lost} per step and rank are lost that nothing recorded explains"
            )
        return f"cannot tell why; the largest loss is {self.causes[0].sentence}"

    @property
    def is_empty(self) -> bool:
        """Whether nothing is wrong."""
        return not self.causes

    def sentences(self, count: int = 5) -> tuple[str, ...]:
        """The worst causes in words."""
        return tuple(one.sentence for one in self.told(count))

    def told(self, count: int = 5) -> tuple[Cause, ...]:
        """The worst causes, those too small to be worth a sentence left out."""
        worth = (one for one in self.causes if one.text or one.share >= _TOLD_SHARE)
        return tuple(islice(worth, count))

    def parts(self) -> tuple[Told, ...]:
        """The causes in words, then as a table."""
        return (
            Sentences.of("what is wrong", self.sentences()),
            Table.of(
                "causes",
                self.causes,
                Column("what", "cause", Unit.WORD),
                Column("rank", value=lambda one: None if one.rank == ALL_RANKS else one.rank),
                Column("lost_ns"),
                Column("share", "of the step"),
                Column("waiting_ns"),
                Column("idle_ns"),
                Column("inside_ns", "in operators ms", shown=Shown.WIDE),
                Column("subject", "operator or call", Unit.NAME),
                Column("subject_ns", "of it ms"),
                Column("factor", "times its equals", Unit.NUMBER, shown=Shown.WIDE),
                Column("num_ranks", shown=Shown.WIDE),
                Column("topic", shown=Shown.FILES),
                Column("sentence", shown=Shown.FILES),
            ),
        )


def diagnosis(of: Timeline | Recording) -> Diagnosis:
    """What is wrong, most harmful first.

    Args:
        of: a timeline; or a recording, whose measured timeline it is then, and which can tell a
            hang.
    """
    timeline = of.measured if isinstance(of, Recording) else of
    first = _of_hang(of) if isinstance(of, Recording) else ()
    lost = idle(timeline)
    idle_cells = len(set(zip(lost.step.tolist(), lost.rank.tolist(), strict=True)))
    cells = max(idle_cells, len(steps(timeline)), 1)  # what never stands still has no row of `lost`
    step_ns = max(step_time_ns(timeline), 1)
    told = [_per_cell(one, cells, step_ns) for one in loss_causes(timeline, lost)]
    harmful = (one for one in told if one.lost_ns >= MIN_LOST_NS)
    causes = sorted(harmful, key=lambda one: (-one.lost_ns, one.rank))
    unexplained_ns = int(lost.duration_ns[lost.cause == IdleCause.UNEXPLAINED].sum()) // cells
    lost_ns = int(lost.duration_ns.sum()) // cells
    edge_ns = int(lost.duration_ns[lost.cause == IdleCause.EDGE].sum()) // cells
    return Diagnosis((*first, *causes), step_ns, unexplained_ns, lost_ns, edge_ns)


def _of_hang(recording: Recording) -> tuple[Cause, ...]:
    found = hang(recording)
    if not found.is_hung:
        return ()
    rank = found.culprits[0].rank if found.culprits else ALL_RANKS
    return (Cause("hang", rank, None, "hang", found.stuck[0].name, 0, text=found.sentence),)


def _per_cell(one: Cause, cells: int, step_ns: int) -> Cause:
    """A sum over steps and ranks as its mean."""
    names = ("lost_ns", "waiting_ns", "idle_ns", "inside_ns", "subject_ns")
    means = {name: getattr(one, name) // cells for name in names}
    return replace(one, share=means["lost_ns"] / step_ns, **means)

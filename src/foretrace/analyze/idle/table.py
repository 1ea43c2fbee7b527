"""`IdleCauses`: stretches of time in which a rank got nothing done, each with its one cause."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from foretrace.analyze.idle.causes import IdleCause
from foretrace.analyze.idle.subjects import of_it_text
from foretrace.analyze.idle.waits import UNRECORDED_RANK
from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Json,
    Sentences,
    Series,
    Shown,
    SideBySide,
    Stretch,
    Table,
    Told,
    Unit,
    duration_text,
    rows_json,
)
from foretrace.base import Int32s, Int64s, UInt8s, begins_run

MAX_SENTENCES = 5  # of the worst offenders


class Stillness(IntEnum):
    """How a rank got nothing done."""

    IDLE = 0  # no compute and no communication ran: `idle` of a breakdown
    WAITING = 1  # it was inside collectives alone, and only waited for other ranks


_WORDS = {
    Stillness.IDLE: ("idle", "idle", "nothing ran"),
    Stillness.WAITING: ("waiting", "wait", "in collectives, for other ranks"),
}


@dataclass(frozen=True)
class IdleRow:
    """Time that one rank lost in one step, in one way, for one reason."""

    step_name: str
    rank: int
    kind: Stillness
    cause: IdleCause
    culprit_rank: int  # whose doing it is, often the rank itself; UNRECORDED_RANK
    subject: str  # operator, kernel or call responsible; "" unknown
    lost_ns: int
    num_intervals: int
    subject_ns: int  # of what is lost, for the subject: all of it, unless rows were joined

    @property
    def sentence(self) -> str:
        """The row as a reader says it."""
        verb = "waits" if self.kind == Stillness.WAITING else "is idle for"
        lost = f"rank {self.rank} {verb} {duration_text(self.lost_ns)} in {self.step_name}"
        name = of_it_text(self.subject, self.subject_ns, self.lost_ns)
        if self.culprit_rank == UNRECORDED_RANK or self.cause == IdleCause.UNRECORDED:
            return f"{lost} for what was not recorded"
        if self.culprit_rank == self.rank:
            return f"{lost} because of its own {self.cause.words}{name}"
        return f"{lost} for rank {self.culprit_rank}'s {self.cause.words}{name}"


@dataclass(frozen=True, repr=False)
class IdleCauses(Answer):
    """Every idle or waiting nanosecond of every rank and step; intervals by step, rank, begin.

    The intervals of kind IDLE of a rank and step sum exactly to the `idle` of its breakdown, and
    those of kind WAITING to the time in which it did nothing but wait inside collectives.
    """

    step_names: tuple[str, ...]  # of the graph; `step` is a position here
    subjects: tuple[str, ...]
    step: Int32s  # int32[intervals]
    rank: Int32s  # int32[intervals]
    kind: UInt8s  # uint8[intervals], Stillness
    cause: UInt8s  # uint8[intervals], IdleCause
    culprit_rank: Int32s  # int32[intervals]; UNRECORDED_RANK
    collective: Int32s  # int32[intervals], in the graph's, that was waited in; NO_COLLECTIVE
    subject: Int32s  # int32[intervals], position in `subjects`
    begin_ns: Int64s  # int64[intervals]
    end_ns: Int64s  # int64[intervals]
    is_measured: bool
    step_time_ns: int = 0  # the job's step time, or that of the one step

    def __len__(self) -> int:
        """Number of intervals."""
        return len(self.step)

    @property
    def duration_ns(self) -> Int64s:
        """Length of each interval; int64[intervals]."""
        return self.end_ns - self.begin_ns

    def rows(self) -> tuple[IdleRow, ...]:
        """Intervals of one step, rank, kind, cause, culprit and subject together, longest first."""
        columns = (self.subject, self.culprit_rank, self.cause, self.kind, self.rank, self.step)
        order = np.lexsort(columns)
        keys = np.stack([column[order].astype(np.int64) for column in columns])
        first = np.flatnonzero(begins_run(*keys))
        if not len(first):
            return ()
        lost_ns = np.add.reduceat(self.duration_ns[order], first)
        count = np.diff(np.append(first, len(order)))
        found = [
            IdleRow(
                step_name=self.step_names[step],
                rank=rank,
                kind=Stillness(kind),
                cause=IdleCause(cause),
                culprit_rank=culprit,
                subject=self.subjects[subject],
                lost_ns=ns,
                num_intervals=number,
                subject_ns=ns,
            )
            for (subject, culprit, cause, kind, rank, step), ns, number in zip(
                keys[:, first].T.tolist(), lost_ns.tolist(), count.tolist(), strict=True
            )
        ]
        return tuple(sorted(found, key=lambda row: -row.lost_ns))

    def by_cause(self, kind: Stillness | None = None) -> dict[IdleCause, int]:
        """Time of all ranks and steps by cause, in ns, most first."""
        chosen = self._of_kind(kind)
        lost_ns = np.zeros(len(IdleCause), np.int64)
        np.add.at(lost_ns, self.cause[chosen], self.duration_ns[chosen])
        found = Counter({cause: int(lost_ns[cause]) for cause in IdleCause if lost_ns[cause]})
        return dict(found.most_common())

    def by_operator(self, kind: Stillness | None = None) -> dict[str, int]:
        """Time of all ranks and steps by what was responsible for it, in ns, most first."""
        chosen = self._of_kind(kind)
        lost_ns = np.zeros(len(self.subjects), np.int64)
        np.add.at(lost_ns, self.subject[chosen], self.duration_ns[chosen])
        found: Counter[str] = Counter()
        for name, ns in zip(self.subjects, lost_ns.tolist(), strict=True):
            found[name] += ns
        return {name: ns for name, ns in found.most_common() if ns}

    def total_ns(self, kind: Stillness | None = None) -> int:
        """Time of all ranks and steps."""
        return int(self.duration_ns[self._of_kind(kind)].sum())

    def offenders(self) -> tuple[IdleRow, ...]:
        """The rows, those that differ in their subject alone as one, under its longest subject."""
        found: dict[tuple[object, ...], IdleRow] = {}
        for row in self.rows():
            key = (row.step_name, row.rank, row.kind, row.cause, row.culprit_rank)
            lead = found.get(key)
            found[key] = (
                row
                if lead is None
                else replace(
                    lead,
                    lost_ns=lead.lost_ns + row.lost_ns,
                    num_intervals=lead.num_intervals + row.num_intervals,
                )
            )
        return tuple(sorted(found.values(), key=lambda row: -row.lost_ns))

    def longest(
        self, cause: IdleCause | None, *, rank: int | None = None, culprit_rank: int | None = None
    ) -> Stretch | None:
        """The longest interval of a cause, on this rank and by that one's doing if they are given.

        `None` if there is none.
        """
        is_of = self.cause == cause if cause is not None else np.zeros(len(self), np.bool_)
        for column, wanted in ((self.rank, rank), (self.culprit_rank, culprit_rank)):
            if wanted is not None:
                is_of &= column == wanted
        rows = np.flatnonzero(is_of)
        if not len(rows):
            return None
        row = int(rows[np.argmax(self.duration_ns[rows])])
        return Stretch(int(self.rank[row]), int(self.begin_ns[row]), int(self.end_ns[row]))

    def sentences(self, count: int = MAX_SENTENCES) -> tuple[str, ...]:
        """The worst offenders in words."""
        return tuple(row.sentence for row in self.offenders()[:count])

    @property
    def headline(self) -> str:
        """How much time was lost."""
        idle, waiting = (duration_text(self.total_ns(kind)) for kind in Stillness)
        step = duration_text(self.step_time_ns)
        return (
            f"{idle} idle and {waiting} waiting inside collectives, over all ranks and steps; "
            f"step time {step}"
        )

    @property
    def lead(self) -> str:
        """How much time was lost, and what the rest says."""
        return (
            "Every nanosecond in which a rank got nothing done, under the one cause that the "
            f"dependencies give for it: {self.headline}."
        )

    @property
    def is_empty(self) -> bool:
        """Whether every rank was busy all the time."""
        return not len(self)

    def parts(self) -> tuple[Told, ...]:
        """The longest losses in words, then causes, and what was responsible."""
        kinds = [kind for kind in Stillness if self.total_ns(kind)]
        return (
            Sentences(
                "what cost most",
                tuple(("", one) for one in self.sentences()),
                stretches=tuple(
                    self.longest(one.cause, rank=one.rank, culprit_rank=one.culprit_rank)
                    for one in self.offenders()[:MAX_SENTENCES]
                ),
            ),
            SideBySide(tuple(self._by_cause_table(kind) for kind in kinds)),
            SideBySide(tuple(self._by_operator_table(kind) for kind in kinds)),
            replace(self._rows_table(), shown=Shown.WIDE),
        )

    def tables(self) -> tuple[Table, ...]:
        """The rows, then the sums."""
        return self._rows_table(), *super().tables()[:-1]

    def _by_cause_table(self, kind: Stillness) -> Table:
        title, colour, meaning = _WORDS[kind]
        total_ns = self.total_ns(kind)
        return Table.of(
            f"{title}-by-cause",
            self.by_cause(kind).items(),
            Column("cause", "cause", Unit.WORD, lambda one: one[0].words),
            Column("lost_ns", "ms, all ranks", value=lambda one: one[1]),
            Column("share", f"of {title} time", value=lambda one: one[1] / total_ns),
            title=f"{title}: {meaning}",
            chart=Chart(
                kind=ChartKind.BARS,
                label=f"{title} time by cause",
                category="cause",
                series=(Series("lost_ns", "lost", colour),),
                unit=Unit.NS,
                max_rows=12,
            ),
        )

    def _by_operator_table(self, kind: Stillness) -> Table:
        total_ns = self.total_ns(kind)
        return Table.of(
            f"{_WORDS[kind][0]}-by-operator",
            self.by_operator(kind).items(),
            Column("subject", "operator or call", Unit.NAME, lambda one: one[0] or "not known"),
            Column("lost_ns", "ms, all ranks", value=lambda one: one[1]),
            Column("share", f"of {_WORDS[kind][0]} time", value=lambda one: one[1] / total_ns),
            title=f"{_WORDS[kind][0]}: who is responsible",
            max_rows=10,
        )

    def _rows_table(self) -> Table:
        return Table.of(
            "rows",
            self.rows(),
            Column("step", value="step_name"),
            Column("rank"),
            Column("kind", unit=Unit.WORD, value=lambda one: one.kind.name.lower()),
            Column("cause", unit=Unit.WORD, value="cause.words"),
            Column("culprit_rank", "of rank"),
            Column("subject", "operator or call", Unit.NAME),
            Column("lost_ns"),
            Column("num_intervals", "times"),
            title="by rank, cause and what was responsible",
            max_rows=10,
        )

    def as_json(self) -> Json:
        """The rows, and the sums by cause and operator; times in ns."""
        return {
            "timeline": "measured" if self.is_measured else "simulated",
            "step_time_ns": self.step_time_ns,
            "idle_ns": self.total_ns(Stillness.IDLE),
            "waiting_ns": self.total_ns(Stillness.WAITING),
            "by_cause": {
                kind.name.lower(): {each.words: ns for each, ns in self.by_cause(kind).items()}
                for kind in Stillness
            },
            "by_operator": self.by_operator(),
            **rows_json(self._rows_table()),
        }

    def _of_kind(self, kind: Stillness | None) -> Int64s:
        return np.flatnonzero(np.arange(len(self)) >= 0 if kind is None else self.kind == kind)

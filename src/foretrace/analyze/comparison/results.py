"""What a comparison says; frozen values, times in ns, JSON by `as_json`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from foretrace.analyze.breakdown import SHOWN_PARTS
from foretrace.answer import (
    Answer,
    Column,
    Fact,
    Facts,
    Json,
    Plain,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    cell_text,
    count_text,
    duration_text,
    percent_text,
    plain,
    plain_fields,
    signed_percent_text,
)

ROUNDING = 1e-9  # confidences nearer to each other are equal

MOST_TELLING = ("component", "class", "kernel", "block", "collective")
_TITLES = {
    "component": "where the time goes",
    "class": "by class",
    "family": "by family of kernels",
    "kernel": "by kernel",
    "operator": "by operator and shapes",
    "phase": "by phase",
    "block": "by block",
    "collective": "by collective",
    "path": "on the critical path",
    "host": "time of host threads, beside the step",
}

_RANK_TIMES = ("compute_ns", "transfer_ns", "wait_ns", "idle_ns")


class Verdict(StrEnum):
    """Whether the spread between a run's own steps could make the difference."""

    BEYOND_NOISE = "beyond the spread between steps"
    WITHIN_NOISE = "within the spread between steps"
    TOO_FEW_STEPS = "too few steps to tell from noise"


@dataclass(frozen=True)
class Noise(Plain):
    """How much later the steps after are than those before, as an interval.

    The interval is that of the Mann-Whitney test: it holds for steps of any distribution, if all
    steps of a side come from one and do not depend on each other. It knows nothing of what
    differs from run to run, such as another host.
    """

    low_ns: int
    high_ns: int
    confidence: float  # that the interval has; below `asked` where the steps are too few
    asked: float
    num_before: int  # steps
    num_after: int
    is_approximate: bool = False  # the normal approximation was used: there are many steps

    @property
    def verdict(self) -> Verdict:
        """What the interval says about a difference of nothing."""
        if self.confidence < self.asked - ROUNDING:
            return Verdict.TOO_FEW_STEPS
        is_clear = self.low_ns > 0 or self.high_ns < 0
        return Verdict.BEYOND_NOISE if is_clear else Verdict.WITHIN_NOISE

    def as_json(self) -> Json:
        """Builtins only, with the verdict."""
        return plain_fields(self) | {"verdict": self.verdict.name.lower()}


@dataclass(frozen=True)
class Side(Plain):
    """One of the two timelines: which steps of it count, and how long they are."""

    label: str  # "measured", "simulated", or what the caller calls it
    ranks: tuple[int, ...]
    layers: int  # numbered layers that were found; 0: none
    step_names: tuple[str, ...]  # the job's steps, in order
    step_ns: tuple[int, ...]  # length of each
    is_used: tuple[bool, ...]  # whether it enters the comparison

    @property
    def used_ns(self) -> tuple[int, ...]:
        """Lengths of the steps that enter."""
        pairs = zip(self.step_ns, self.is_used, strict=True)
        return tuple(length_ns for length_ns, used in pairs if used)

    @property
    def used_names(self) -> tuple[str, ...]:
        """Names of the steps that enter."""
        pairs = zip(self.step_names, self.is_used, strict=True)
        return tuple(name for name, used in pairs if used)

    @property
    def mean_ns(self) -> int:
        """Mean length of the steps that enter, rounded down."""
        return sum(self.used_ns) // len(self.used_ns)

    def as_json(self) -> Json:
        """Builtins only, a mapping per step."""
        keys = ("name", "step_ns", "is_used")
        steps = zip(self.step_names, self.step_ns, self.is_used, strict=True)
        return {
            "label": self.label,
            "step_ns": self.mean_ns,
            "ranks": list(self.ranks),
            "layers": self.layers,
            "steps": [dict(zip(keys, step, strict=True)) for step in steps],
        }


@dataclass(frozen=True)
class SideShare:
    """What something takes on one side; means over ranks and steps."""

    step_ns: int  # of the step: moments that are this thing's alone, so that shares add up
    busy_ns: int  # of all calls, hidden behind others or not
    count: float  # calls


NOTHING = SideShare(0, 0, 0.0)


@dataclass(frozen=True)
class Contribution(Plain):
    """One thing before and after, and why its share of the step changed.

    The three effects sum to the difference exactly: more or fewer calls, calls that take longer
    or shorter, and more or less of their time hidden behind other work.
    """

    json_also: ClassVar = ("difference_ns",)

    label: str
    before: SideShare
    after: SideShare
    count_effect_ns: int
    call_effect_ns: int
    overlap_effect_ns: int

    @property
    def difference_ns(self) -> int:
        """After minus before, of the step."""
        return self.after.step_ns - self.before.step_ns

    @property
    def is_new(self) -> bool:
        """Whether it stands only after."""
        return not self.before.count and bool(self.after.count)

    @property
    def is_gone(self) -> bool:
        """Whether it stands only before."""
        return not self.after.count and bool(self.before.count)


@dataclass(frozen=True)
class View:
    """The same time under one kind of label; rows by size of the difference, largest first."""

    name: str  # "class", "kernel", "block", ...
    rows: tuple[Contribution, ...]
    is_whole: bool  # the rows' shares sum to the step, on both sides

    @property
    def difference_ns(self) -> int:
        """Sum of the rows' differences."""
        return sum(row.difference_ns for row in self.rows)

    def row(self, label: str) -> Contribution:
        """The row of a label; of one that is on neither side, nothing."""
        found = (row for row in self.rows if row.label == label)
        return next(found, Contribution(label, NOTHING, NOTHING, 0, 0, 0))


@dataclass(frozen=True)
class RankTime:
    """One rank's mean step in parts that sum to the job's step."""

    compute_ns: int  # overlapped or not
    transfer_ns: int  # of communication, not overlapped
    wait_ns: int  # for other ranks, not overlapped
    idle_ns: int


@dataclass(frozen=True)
class RankChange:
    """One rank on both sides; None where it was not recorded."""

    rank: int
    before: RankTime | None
    after: RankTime | None


@dataclass(frozen=True)
class Reason:
    """One reason for the difference, in words."""

    label: str  # of the view `class`, or the rank that the others wait for
    difference_ns: int  # of the step
    sentence: str


@dataclass(frozen=True, repr=False)
class Comparison(Answer):
    """Two runs, or a run and its replay, or two scenarios: what got slower, and why.

    A step is the job's (`windows`): from the end of the step before to the end of its last rank.
    Every view that `is_whole` sums to it on both sides, so its differences sum to the step's.
    """

    before: Side
    after: Side
    noise: Noise
    views: tuple[View, ...]
    ranks: tuple[RankChange, ...]
    reasons: tuple[Reason, ...]  # largest difference first
    notes: tuple[str, ...]  # what could not be matched, or must be known to read this

    @property
    def difference_ns(self) -> int:
        """How much longer the step is after; below 0 it is shorter."""
        return self.after.mean_ns - self.before.mean_ns

    @property
    def percent(self) -> float:
        """The same, in percent of the step before."""
        return 100.0 * self.difference_ns / max(self.before.mean_ns, 1)

    def view(self, name: str) -> View:
        """The view of this name.

        Raises:
            ValueError: if there is none.
        """
        for view in self.views:
            if view.name == name:
                return view
        raise ValueError(f"no view {name!r}: expected one of {[view.name for view in self.views]}")

    @property
    def headline(self) -> str:
        """How long the step is on both sides, and whether noise explains it."""
        before, after = (duration_text(side.mean_ns) for side in (self.before, self.after))
        percent = signed_percent_text(self.percent)
        return f"{before} before, {after} after ({percent}): {self.noise.verdict.value}"

    def parts(self) -> tuple[Told, ...]:
        """Both sides, the reasons, the most telling views, ranks, and what must be known."""
        reasons = [one.sentence for one in self.reasons] or [
            "nothing differs by more than 0.01 % of the step"
        ]
        ranks = (self.ranks_table(),) if len(self.ranks) > 1 else ()
        return (
            self._facts(),
            Sentences.of("why", reasons),
            *self.views_told(),
            *ranks,
            Sentences.of("to know", self.notes),
        )

    def views_told(self, names: Collection[str] = MOST_TELLING) -> tuple[Table, ...]:
        """Views as tables, what no view before said."""
        return tuple(_view_table(view) for view in self.views if view.name in names)

    def tables(self) -> tuple[Table, ...]:
        """Every row of every view, then the views, then the ranks."""
        pairs = [(view, row) for view in self.views for row in view.rows]
        rows = Table.of(
            "rows",
            pairs,
            Column("view", value=lambda one: one[0].name),
            *_columns(lambda one: one[1]),
        )
        views = tuple(_view_table(view, is_whole=True) for view in self.views)
        return rows, *views, self.ranks_table()

    def _facts(self) -> Facts:
        noise = self.noise
        facts = [
            Fact(name, duration_text(side.mean_ns), _side_text(side))
            for name, side in (("before", self.before), ("after", self.after))
        ]
        percent = signed_percent_text(self.percent)
        change = cell_text(self.difference_ns, Unit.SIGNED_NS)
        verdict = f"{percent}; {noise.verdict.value}"
        facts.append(Fact("difference", change, verdict, is_first=True))
        if noise.num_before > 1 or noise.num_after > 1:
            low, high = (cell_text(ns, Unit.SIGNED_NS) for ns in (noise.low_ns, noise.high_ns))
            sure = f"at {percent_text(100 * noise.confidence)}, {noise.num_before} against "
            steps = count_text(noise.num_after, "step")
            facts.append(Fact("interval", f"{low} to {high}", f"{sure}{steps}"))
        return Facts(tuple(facts))

    def ranks_table(self) -> Table:
        """What each rank's own time and waiting changed by, largest first."""
        found = [
            (one.rank, *(_difference(one.before, one.after, name) for name in _RANK_TIMES))
            for one in self.ranks
            if one.before is not None and one.after is not None
        ]
        found.sort(key=lambda row: -max(map(abs, row[1:])))
        return Table.of(
            "ranks",
            found,
            Column("rank", value=lambda row: row[0]),
            *(
                Column(name, unit=Unit.SIGNED_MS, value=_at(1 + at))
                for at, name in enumerate(_RANK_TIMES)
            ),
            title="difference by rank",
        )

    def as_json(self) -> Json:
        """Builtins only; what `foretrace compare --json` prints."""
        views = {
            view.name: {"sums_to_step": view.is_whole, "rows": plain(view.rows)}
            for view in self.views
        }
        own = {"difference_ns": self.difference_ns, "percent": self.percent, "views": views}
        return plain_fields(self) | own


def _difference(before: RankTime, after: RankTime, name: str) -> int:
    changed: int = getattr(after, name) - getattr(before, name)
    return changed


def _at(place: int) -> Callable[[tuple[int, ...]], int]:
    return lambda row: row[place]


def _side_text(side: Side) -> str:
    ranks, steps = count_text(len(side.ranks), "rank"), count_text(len(side.step_ns), "step")
    which = "" if all(side.is_used) else f"the middle {len(side.used_ns)} of "
    return f"{side.label}, {ranks}, {which}{steps}"


def _columns(row: Callable[[Any], Contribution]) -> tuple[Column, ...]:
    signed, files = Unit.SIGNED_MS, Shown.FILES
    return (
        Column("label", "", Unit.NAME, lambda one: _shown_label(row(one).label)),
        Column("before_ns", value=lambda one: row(one).before.step_ns),
        Column("after_ns", value=lambda one: row(one).after.step_ns),
        Column("difference_ns", "diff.", signed, lambda one: row(one).difference_ns),
        Column("count_effect_ns", "calls", signed, lambda one: _effect(row(one), "count")),
        Column("call_effect_ns", "length", signed, lambda one: _effect(row(one), "call")),
        Column("overlap_effect_ns", "overlap", signed, lambda one: _effect(row(one), "overlap")),
        Column("before_busy_ns", value=lambda one: row(one).before.busy_ns, shown=files),
        Column("after_busy_ns", value=lambda one: row(one).after.busy_ns, shown=files),
        Column("before_count", value=lambda one: row(one).before.count, shown=files),
        Column("after_count", value=lambda one: row(one).after.count, shown=files),
    )


def _shown_label(label: str) -> str:
    """A row's name in a table: components in words, as elsewhere; the field's own key in JSON."""
    words = label.replace("_", " ") if label in SHOWN_PARTS else label
    return words.replace(", microbatch ", " mb ")


def _effect(row: Contribution, name: str) -> int:
    effect_ns: int = getattr(row, f"{name}_effect_ns")
    return effect_ns


def _view_table(view: View, *, is_whole: bool = False) -> Table:
    """A view's rows; of those that are shown, such as say what no view before said."""
    rows = view.rows if is_whole else [row for row in view.rows if _is_shown(view.name, row)]
    return Table.of(view.name, rows, *_columns(lambda row: row), title=_TITLES[view.name])


def _is_shown(view: str, row: Contribution) -> bool:
    if view == "component":
        return True
    is_communication = row.label.startswith(("waiting in ", "transfer of "))
    if view in {"family", "kernel", "operator"}:
        return bool(row.difference_ns) and not (is_communication or row.label == "idle")
    return bool(row.difference_ns) and (is_communication or view != "collective")

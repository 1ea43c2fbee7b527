"""What a comparison says; frozen values, times in ns, JSON by `as_json`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


ROUNDING = 1e-9  # confidences nearer to each other are equal


class Verdict(StrEnum):
    """Whether the spread between a run's own steps could make the difference."""

    BEYOND_NOISE = "beyond the spread between steps"
    WITHIN_NOISE = "within the spread between steps"
    TOO_FEW_STEPS = "too few steps to tell from noise"


@dataclass(frozen=True)
class Noise:
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

    def as_json(self) -> dict[str, object]:
        """Builtins only, with the verdict."""
        return asdict(self) | {"verdict": self.verdict.name.lower()}


@dataclass(frozen=True)
class Side:
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


@dataclass(frozen=True)
class Share:
    """What something takes on one side; means over ranks and steps."""

    step_ns: int  # of the step: moments that are this thing's alone, so that shares add up
    busy_ns: int  # of all calls, hidden behind others or not
    count: float  # calls


NOTHING = Share(0, 0, 0.0)


@dataclass(frozen=True)
class Contribution:
    """One thing before and after, and why its share of the step changed.

    The three effects sum to the difference exactly: more or fewer calls, calls that take longer
    or shorter, and more or less of their time hidden behind other work.
    """

    label: str
    before: Share
    after: Share
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

    def as_json(self) -> dict[str, object]:
        """Builtins only."""
        return asdict(self) | {"difference_ns": self.difference_ns}


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


@dataclass(frozen=True)
class Comparison:
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

    def as_json(self) -> dict[str, object]:
        """Builtins only; what `foretrace compare --json` prints."""
        return {
            "difference_ns": self.difference_ns,
            "percent": self.percent,
            "before": _side_json(self.before),
            "after": _side_json(self.after),
            "noise": self.noise.as_json(),
            "reasons": [asdict(reason) for reason in self.reasons],
            "notes": list(self.notes),
            "views": {
                view.name: {
                    "sums_to_step": view.is_whole,
                    "rows": [row.as_json() for row in view.rows],
                }
                for view in self.views
            },
            "ranks": [asdict(rank) for rank in self.ranks],
        }

    def to_frame(self) -> pl.DataFrame:
        """One row per view and label."""
        import polars as pl  # on demand: it takes longer to import than this analysis to run

        pairs = [(view, row) for view in self.views for row in view.rows]
        return pl.DataFrame(
            {
                "view": _column(view.name for view, _ in pairs),
                "label": _column(row.label for _, row in pairs),
                "before_ns": _column(row.before.step_ns for _, row in pairs),
                "after_ns": _column(row.after.step_ns for _, row in pairs),
                "difference_ns": _column(row.difference_ns for _, row in pairs),
                "count_effect_ns": _column(row.count_effect_ns for _, row in pairs),
                "call_effect_ns": _column(row.call_effect_ns for _, row in pairs),
                "overlap_effect_ns": _column(row.overlap_effect_ns for _, row in pairs),
                "before_busy_ns": _column(row.before.busy_ns for _, row in pairs),
                "after_busy_ns": _column(row.after.busy_ns for _, row in pairs),
                "before_count": _column(row.before.count for _, row in pairs),
                "after_count": _column(row.after.count for _, row in pairs),
            },
            schema_overrides={"view": pl.String, "label": pl.String},
        )


def _column(values: Iterable[object]) -> list[object]:
    return list(values)


def _side_json(side: Side) -> dict[str, object]:
    return {
        "label": side.label,
        "step_ns": side.mean_ns,
        "ranks": list(side.ranks),
        "layers": side.layers,
        "steps": [
            {"name": name, "step_ns": length_ns, "is_used": used}
            for name, length_ns, used in zip(
                side.step_names, side.step_ns, side.is_used, strict=True
            )
        ],
    }

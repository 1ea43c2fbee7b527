"""What predictions of published runs come to: one row a run, and errors by group of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from foretrace.answer import (
    Answer,
    Column,
    Plain,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    columns_of,
    count_text,
    percent_text,
)
from foretrace.base import NS_PER_S
from foretrace.validate.cost import CostPoints
from foretrace.validate.measures import is_inside, mean_size, relative_error

_MOST_REASONS = 5
_HOW_TO_READ = (
    "known: predicted from all that decides the time; open: not printed was assumed",
    "errors are shares of the measured step time; mean: of their sizes; bias: with sign",
    "in: measured times inside the 80% interval; roof: a roofline's mean error",
    "memory: mean error of the peak, where a table prints it",
    "by source: every source of runs counts alike; pooled: every run",
)


class RunStatus(StrEnum):
    """How much of a run's configuration was known."""

    PREDICTED = "predicted"  # all that decides its time
    ASSUMED = "assumed"  # what was not printed is a spread over what is legal
    REFUSED = "refused"  # it cannot be laid out; `why` says what is missing


@dataclass(frozen=True, kw_only=True)
class RunPrediction(Plain):
    """One run, measured beside predicted; times in seconds, as tables of runs print them."""

    json_also = ("error",)

    id: str
    source: str  # family of sources
    software: str
    gpu: str
    precision: str
    num_gpus: int
    has_experts: bool
    measured_s: float | None
    predicted_s: float | None  # `None`: refused
    low_s: float | None  # 10th percentile
    high_s: float | None  # 90th
    roofline_s: float | None  # by the data sheet, with the plan's own pipeline bubble
    status: RunStatus
    why: str
    measured_memory_gib: float | None = None
    predicted_memory_gib: float | None = None
    model: str = ""
    architecture: str = ""  # of the GPU
    software_class: str = ""  # of what ran it, as described or as far as its name tells
    knowledge: str = ""  # of that software
    # Of the critical path: products, by the units that work on their numbers.
    products_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What its errors are told with: experts or not, how complete, on which chips."""
        if self.has_experts:
            return "experts"
        if self.status is not RunStatus.PREDICTED:
            return "dense, something assumed"
        is_newest = self.architecture.startswith("Blackwell")
        return "dense, complete, Blackwell" if is_newest else "dense, complete, to Hopper"

    @property
    def origin(self) -> str:
        """What is left out with it: its source; of experts, which few sources run, the release."""
        return f"{self.source} {self.software}" if self.has_experts else self.source

    @property
    def error(self) -> float | None:
        """Predicted over measured time, less 1."""
        return relative_error(self.predicted_s, self.measured_s)

    @property
    def roofline_error(self) -> float | None:
        """The same of the roofline."""
        return relative_error(self.roofline_s, self.measured_s)

    @property
    def memory_error(self) -> float | None:
        """The same of memory."""
        return relative_error(self.predicted_memory_gib, self.measured_memory_gib)

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured time lies in the 80% interval."""
        return is_inside(self.measured_s, self.low_s, self.high_s)


@dataclass(frozen=True, kw_only=True)
class GroupError(Plain):
    """Errors over some runs, as shares of the measured times."""

    name: str
    num_runs: int
    num_predicted: int  # status predicted, with a measured time
    num_assumed: int
    num_refused: int
    mean_abs_error: float | None  # of predicted and assumed
    mean_error: float | None
    worst_error: float | None
    inside: float | None  # share of measured times in their 80% interval
    roofline_mean_abs_error: float | None
    memory_mean_abs_error: float | None


@dataclass(frozen=True, kw_only=True)
class KindError(Plain):
    """Errors of one kind of runs: every source counting alike, and every run."""

    name: str
    num_sources: int
    num_runs: int
    mean_abs_error: float  # mean over sources of their means
    mean_error: float
    inside: float | None
    pooled_mean_abs_error: float
    pooled_mean_error: float
    pooled_inside: float | None


@dataclass(frozen=True, kw_only=True)
class ModelsLeftOut(Plain):
    """Errors of a source's runs, each model with the factor of products that its others teach."""

    name: str  # source, class of software, architecture, format
    num_models: int
    num_runs: int
    mean_abs_error: float
    mean_error: float
    worst_model: str
    worst_model_error: float  # mean size of the errors of its runs


@dataclass(frozen=True, repr=False)
class RunsReport(Answer):
    """Predictions of a table of runs."""

    json_also = ("kinds", "groups", "share_answered")

    rows: tuple[RunPrediction, ...]
    calibrated: tuple[RunPrediction, ...] = ()  # with one constant per group, others' rows
    by_class: tuple[RunPrediction, ...] = ()  # without the descriptions of their software
    by_nothing: tuple[RunPrediction, ...] = ()  # with software of which nothing is known
    unread: tuple[str, ...] = ()  # why rows could not be read
    left_models: tuple[ModelsLeftOut, ...] = ()

    @property
    def kinds(self) -> tuple[KindError, ...]:
        """Errors by kind of runs, weighted by source and pooled."""
        return kind_errors(self.rows)

    @property
    def groups(self) -> tuple[GroupError, ...]:
        """Errors by source, and of all."""
        return (*by_group(self.rows, lambda one: one.source), group_error("all", self.rows))

    @property
    def calibrated_groups(self) -> tuple[GroupError, ...]:
        """The same of rows predicted with a constant of their kind."""
        rows = self.calibrated
        return (*by_group(rows, lambda one: one.source), group_error("all", rows))

    @property
    def share_answered(self) -> float:
        """Share of rows that are predicted or assumed."""
        answered = sum(one.status is not RunStatus.REFUSED for one in self.rows)
        return answered / max(1, len(self.rows))

    @property
    def headline(self) -> str:
        """How many runs, and how far they are off."""
        error = group_error("all", self.rows).mean_abs_error
        off = "none predicted" if error is None else f"{percent_text(100 * error)} mean error"
        return f"{count_text(len(self.rows), 'run')}, {off}"

    def parts(self) -> tuple[Told, ...]:
        """Errors by source, the same with one constant for each kind, the worst runs."""
        return self.told(10)

    def told(self, num_worst: int) -> tuple[Told, ...]:
        """The parts, so many of the worst runs among them."""
        refused = [one for one in self.rows if one.status is RunStatus.REFUSED]
        reasons = list(dict.fromkeys(one.why for one in refused))[:_MOST_REASONS]
        return (
            _kinds("kinds", self.kinds, "each source left out with all that was learned from it"),
            _kinds(
                "kinds_by_class",
                kind_errors(self.by_class),
                "the same, its software known by its class alone",
            ),
            _kinds(
                "kinds_by_nothing",
                kind_errors(self.by_nothing),
                "the same, under a name of software that means nothing",
            ),
            _groups(
                "releases",
                by_group((one for one in self.rows if one.has_experts), lambda one: one.software),
                "with experts, by release of their software",
            ),
            _groups("groups", self.groups, "by source, pooled"),
            _groups(
                "groups_by_nothing",
                by_group(self.by_nothing, lambda one: one.source),
                "by source, pooled, under a name of software that means nothing",
            ),
            _groups(
                "calibrated_groups",
                self.calibrated_groups if self.calibrated else (),
                "with one constant per source, software, GPU and format, from a fifth of the rows",
            ),
            Table.of(
                "left_models",
                self.left_models,
                Column("name", "source, class, architecture, format"),
                Column("num_models", "models"),
                Column("num_runs", "runs"),
                Column("mean_abs_error", "mean", Unit.SHARE),
                Column("mean_error", "bias", Unit.SIGNED_SHARE),
                Column("worst_model", "worst", Unit.NAME),
                Column("worst_model_error", "its mean", Unit.SHARE),
                title="each model left out, with what others of its source teach of products",
            ),
            self._worst(num_worst),
            Sentences.of(f"{len(refused)} runs refused", reasons),
            Sentences.of(f"{len(self.unread)} rows could not be read", self.unread[:_MOST_REASONS]),
            Sentences.of("how to read it", _HOW_TO_READ),
        )

    def tables(self) -> tuple[Table, ...]:
        """All runs, then errors by source."""
        rows = Table.of("rows", self.rows, *columns_of(RunPrediction, "error"))
        return rows, Table.of("groups", self.groups, *columns_of(GroupError))

    def _worst(self, num_rows: int) -> Table:
        known = (one for one in self.rows if one.error is not None)
        return Table.of(
            "worst",
            sorted(known, key=lambda one: -abs(one.error or 0))[:num_rows],
            Column("id", "run", Unit.NAME),
            Column("measured_s", "measured s", Unit.NUMBER),
            Column("predicted_s", "predicted s", Unit.NUMBER),
            Column("low_s", "low", Unit.NUMBER),
            Column("high_s", "high", Unit.NUMBER),
            Column("error", unit=Unit.SIGNED_SHARE),
            title="furthest off",
        )


def kind_errors(rows: Iterable[RunPrediction]) -> tuple[KindError, ...]:
    """Errors by kind of runs, sorted by name; of rows with a measured time."""
    by_kind: dict[str, list[RunPrediction]] = {}
    for one in rows:
        if one.error is not None:
            by_kind.setdefault(one.kind, []).append(one)
    return tuple(_kind_error(name, ones) for name, ones in sorted(by_kind.items()))


def _kind_error(name: str, rows: Sequence[RunPrediction]) -> KindError:
    sources = by_group(rows, lambda one: one.source)
    pooled = group_error(name, rows)
    return KindError(
        name=name,
        num_sources=len(sources),
        num_runs=len(rows),
        mean_abs_error=float(np.mean([one.mean_abs_error for one in sources])),
        mean_error=float(np.mean([one.mean_error for one in sources])),
        inside=_mean([one.inside for one in sources]),
        pooled_mean_abs_error=pooled.mean_abs_error or 0.0,
        pooled_mean_error=pooled.mean_error or 0.0,
        pooled_inside=pooled.inside,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return float(np.mean(known)) if known else None


def _kinds(key: str, kinds: Iterable[KindError], title: str) -> Table:
    return Table.of(
        key,
        kinds,
        Column("name", "runs"),
        Column("num_sources", "sources"),
        Column("num_runs", "number"),
        Column("mean_abs_error", "by source", Unit.SHARE),
        Column("mean_error", "bias", Unit.SIGNED_SHARE),
        Column("inside", "in", Unit.SHARE),
        Column("pooled_mean_abs_error", "pooled", Unit.SHARE),
        Column("pooled_mean_error", "bias", Unit.SIGNED_SHARE),
        Column("pooled_inside", "in", Unit.SHARE),
        title=title,
    )


def _groups(key: str, groups: Iterable[GroupError], title: str) -> Table:
    return Table.of(
        key,
        groups,
        Column("name", "source"),
        Column("num_runs"),
        Column("num_predicted", "known"),
        Column("num_assumed", "open"),
        Column("mean_abs_error", "mean", Unit.SHARE),
        Column("mean_error", "bias", Unit.SIGNED_SHARE),
        Column("worst_error", "worst", Unit.SIGNED_SHARE, shown=Shown.WIDE),
        Column("inside", "in", Unit.SHARE),
        Column("roofline_mean_abs_error", "roof", Unit.SHARE),
        Column("memory_mean_abs_error", "memory", Unit.SHARE, shown=Shown.WIDE),
        title=title,
    )


def by_group(
    rows: Iterable[RunPrediction], key: Callable[[RunPrediction], str]
) -> tuple[GroupError, ...]:
    """Errors of rows with the same key, sorted by it."""
    groups: dict[str, list[RunPrediction]] = {}
    for one in rows:
        groups.setdefault(key(one), []).append(one)
    return tuple(group_error(name, ones) for name, ones in sorted(groups.items()))


def group_error(name: str, rows: Sequence[RunPrediction]) -> GroupError:
    """Errors over some runs."""
    counts: Mapping[RunStatus, int] = {
        status: sum(one.status is status for one in rows) for status in RunStatus
    }
    errors = _known(one.error for one in rows)
    inside = [one.is_inside for one in rows if one.is_inside is not None]
    return GroupError(
        name=name,
        num_runs=len(rows),
        num_predicted=counts[RunStatus.PREDICTED],
        num_assumed=counts[RunStatus.ASSUMED],
        num_refused=counts[RunStatus.REFUSED],
        mean_abs_error=mean_size(errors),
        mean_error=float(np.mean(errors)) if errors else None,
        worst_error=max(errors, key=abs) if errors else None,
        inside=float(np.mean(inside)) if inside else None,
        roofline_mean_abs_error=mean_size(_known(one.roofline_error for one in rows)),
        memory_mean_abs_error=mean_size(_known(one.memory_error for one in rows)),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [one for one in values if one is not None]


def run_points(report: RunsReport) -> tuple[CostPoints, ...]:
    """Predicted beside measured times by source, for a plot."""
    by_source: dict[str, list[RunPrediction]] = {}
    for one in report.rows:
        if one.predicted_s is not None and one.measured_s is not None:
            by_source.setdefault(one.source, []).append(one)
    return tuple(
        CostPoints(
            source,
            np.array([(one.measured_s or 0) * NS_PER_S for one in rows]),
            np.array([(one.predicted_s or 0) * NS_PER_S for one in rows]),
        )
        for source, rows in sorted(by_source.items())
    )

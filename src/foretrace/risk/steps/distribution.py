"""`StepDistribution`: how long a step takes, with its odds, and where its variance comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from foretrace.answer import (
    Answer,
    Column,
    Fact,
    Facts,
    Paragraph,
    Plain,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    milliseconds_text,
)
from foretrace.base import NS_PER_HOUR, NS_PER_MS, Bools, Float64s

PROBABILITIES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_TRAINING_STEPS, _TOP = 100_000, 8
_NORMAL_95 = 1.96  # of the standard normal distribution, both sides


@dataclass(frozen=True)
class Quantile(Plain):
    """Of step times: a share of steps is shorter."""

    probability: float
    step_ns: float
    low_ns: float  # 95% confidence, from batches that were sampled apart
    high_ns: float


@dataclass(frozen=True)
class VarianceShare(Plain):
    """What one operation, or one rank, has to do with how much the step varies.

    The step is the sum of what is on its critical path; so is its variance, of covariances with
    it. Shares of operations add up to 1 and one may be negative: longer where the step is shorter.
    Those of ranks are squared correlations of a rank's work with the step.
    """

    name: str
    share: float
    path_ns: float  # on the critical path, mean
    tail_ns: float  # on the critical path of the slowest steps, mean


@dataclass(frozen=True)
class Shares(Plain):
    """Variance by operation and by rank, and the slowest steps' own critical path."""

    operations: tuple[VarianceShare, ...] = ()  # the largest share first
    ranks: tuple[VarianceShare, ...] = ()
    num_paths: int = 0  # steps whose critical path was looked at
    num_tail: int = 0  # of them, the slowest


@dataclass(frozen=True)
class Scale(Plain):
    """Steps where so many copies of the model wait for each other."""

    num_replicas: int
    num_ranks: int
    mean_ns: float
    p5_ns: float
    p50_ns: float
    p95_ns: float


@dataclass(frozen=True)
class TrainingSpan:
    """How long many steps take."""

    num_steps: int
    mean_ns: float
    deviation_ns: float  # of the whole
    averaging_ns: float  # of it, what steps add that vary apart: grows with the square root
    lasting_ns: float  # what holds in all steps, as which GPUs one got: grows with the number

    def interval_ns(self) -> tuple[float, float]:
        """The middle 95%, by the normal distribution that sums tend to."""
        half = _NORMAL_95 * self.deviation_ns
        return self.mean_ns - half, self.mean_ns + half

    @property
    def sentence(self) -> str:
        """The whole, and what it varies by."""
        low, high = self.interval_ns()
        return (
            f"{self.num_steps:,} steps: {self.mean_ns / NS_PER_HOUR:,.2f} h, 95 % from "
            f"{low / NS_PER_HOUR:,.2f} to {high / NS_PER_HOUR:,.2f} h; what averages out is "
            f"{100 * self.averaging_ns / self.mean_ns:.3f} % of it, what lasts "
            f"{100 * self.lasting_ns / self.mean_ns:.3f} % (standard deviations)"
        )

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        low, high = self.interval_ns()
        return {
            "num_steps": self.num_steps,
            "mean_ns": self.mean_ns,
            "deviation_ns": self.deviation_ns,
            "averaging_ns": self.averaging_ns,
            "lasting_ns": self.lasting_ns,
            "low_ns": low,
            "high_ns": high,
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class StepDistribution(Answer):
    """Sampled step times.

    A job draws what lasts (its GPUs, or a stretch of recorded steps) once, and its steps draw the
    rest. Batches of jobs are sampled apart.
    """

    title: str
    fixed_ns: float  # the step with every duration at its mean: what a point estimate says
    step_ns: Float64s  # float64[batches, jobs, steps of each]
    num_ranks: int
    method: str  # "every rank", or "one cell of 128 ranks for 128 cells"
    sources: Mapping[str, object]  # what varies, and who says so
    shares: Shares = field(default_factory=Shares)
    scales: tuple[Scale, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def num_samples(self) -> int:
        """Steps in all."""
        return int(self.step_ns.size)

    @property
    def mean_ns(self) -> float:
        """Mean step."""
        return float(self.step_ns.mean())

    @property
    def deviation_ns(self) -> float:
        """Standard deviation of steps."""
        return float(self.step_ns.std(ddof=1)) if self.num_samples > 1 else 0.0

    def quantile(self, probability: float) -> Quantile:
        """The step that so large a share of steps is shorter than, with its 95% confidence."""
        whole = float(np.quantile(self.step_ns, probability))
        half = self._half_ns(np.array([np.quantile(one, probability) for one in self.step_ns]))
        return Quantile(probability, whole, whole - half, whole + half)

    def mean_interval_ns(self) -> tuple[float, float]:
        """95% confidence of the mean."""
        half = self._half_ns(self.step_ns.mean(axis=(1, 2)))
        return self.mean_ns - half, self.mean_ns + half

    @staticmethod
    def _half_ns(of_batches: Float64s) -> float:
        """Half the width of 95% confidence, from what batches differ by (Student)."""
        from scipy import stats  # on demand: it takes longer to import than all else here

        count = len(of_batches)
        if count < 2:  # noqa: PLR2004  one batch says nothing of how much batches differ
            return math.nan
        spread = float(of_batches.std(ddof=1)) / math.sqrt(count)
        return float(stats.t.ppf(0.975, count - 1)) * spread

    @cached_property
    def quantiles(self) -> tuple[Quantile, ...]:
        """At 1, 5, 25, 50, 75, 95 and 99%."""
        return tuple(self.quantile(one) for one in PROBABILITIES)

    @cached_property
    def convergence(self) -> tuple[tuple[int, float, float, float], ...]:
        """After each batch: samples so far, mean, median and 95% quantile of them, in ns."""
        found = []
        for count in range(1, len(self.step_ns) + 1):
            so_far = self.step_ns[:count]
            middle, high = np.quantile(so_far, [0.5, 0.95])
            found.append((so_far.size, float(so_far.mean()), float(middle), float(high)))
        return tuple(found)

    def variances(self) -> tuple[float, float]:
        """Variance between jobs, and of the steps of one job, in ns squared.

        With one step per job all counts as the steps' own.
        """
        repeats = self.step_ns.shape[2]
        jobs = self.step_ns.reshape(-1, repeats)
        if repeats == 1 or len(jobs) == 1:
            return 0.0, float(self.step_ns.var())
        within = float(jobs.var(axis=1, ddof=1).mean())
        between = float(jobs.mean(axis=1).var(ddof=1)) - within / repeats
        return max(0.0, between), within

    def training(self, num_steps: int) -> TrainingSpan:
        """The time of so many steps.

        Raises:
            ValueError: if there is less than one.
        """
        if num_steps < 1:
            raise ValueError(f"num_steps must be 1 or more, got {num_steps}")
        between, within = self.variances()
        averaging, lasting = math.sqrt(num_steps * within), num_steps * math.sqrt(between)
        return TrainingSpan(
            num_steps=num_steps,
            mean_ns=num_steps * self.mean_ns,
            deviation_ns=math.hypot(averaging, lasting),
            averaging_ns=averaging,
            lasting_ns=lasting,
        )

    @property
    def headline(self) -> str:
        """The middle, and how much it varies."""
        low, middle, high = np.quantile(self.step_ns, [0.05, 0.5, 0.95]) / NS_PER_MS
        return (
            f"{self.title}: {middle:,.3f} ms, 90% from {low:,.3f} to {high:,.3f} ms, "
            f"{self.num_samples:,} samples"
        )

    def parts(self) -> tuple[Told, ...]:
        """Figures, quantiles, who carries the variance, the time of many steps."""
        return self.told()

    def told(self, *, training_steps: int = _TRAINING_STEPS, top: int = _TOP) -> tuple[Told, ...]:
        """The parts.

        Args:
            training_steps: whose time in all is told.
            top: operations and ranks that are shown.
        """
        deviation = f"{100 * self.deviation_ns / self.mean_ns:.3f} %"
        return (
            Facts(
                (
                    Fact("mean", f"{milliseconds_text(self.mean_ns)} ms"),
                    Fact("standard deviation", deviation),
                    Fact("every duration at its mean", f"{milliseconds_text(self.fixed_ns)} ms"),
                )
            ),
            self._quantiles_table(),
            _shares_table("operations", self.shares.operations[:top]),
            _shares_table("ranks", self.shares.ranks[:top]),
            self._scales_table(),
            self._convergence_table(),
            Paragraph("", self.training(training_steps).sentence),
            Sentences.of("to know", (f"sampled: {self.method}", *self.notes)),
        )

    def tables(self) -> tuple[Table, ...]:
        """One row per sampled step, then what is told."""
        place = np.indices(self.step_ns.shape).reshape(3, -1)
        samples = Table.of_columns(
            "samples",
            *((Column(key), at) for key, at in zip(("batch", "job", "step"), place, strict=True)),
            (Column("step_ns"), self.step_ns.ravel()),
        )
        return samples, *super().tables()

    def _quantiles_table(self) -> Table:
        return Table.of(
            "quantiles",
            self.quantiles,
            Column("probability", "steps", Unit.SHARE),
            Column("step_ns", "shorter than ms"),
            Column("low_ns", "from ms"),
            Column("high_ns", "to ms"),
            title="quantiles, with their 95 % confidence",
        )

    def _scales_table(self) -> Table:
        return Table.of(
            "scales",
            self.scales,
            Column("num_replicas", "copies"),
            Column("num_ranks", "GPUs"),
            Column("mean_ns"),
            Column("p5_ns", "5 % ms"),
            Column("p50_ns", "50 % ms"),
            Column("p95_ns", "95 % ms"),
            title="by copies of the model",
        )

    def _convergence_table(self) -> Table:
        return Table(
            "convergence",
            "as samples come in",
            (
                Column("samples", unit=Unit.COUNT),
                Column("mean_ns"),
                Column("p50_ns", "50 % ms"),
                Column("p95_ns", "95 % ms"),
            ),
            self.convergence,
            shown=Shown.WIDE,
        )

    def as_json(self) -> dict[str, object]:
        """Everything but the samples, times in ns."""
        low, high = self.mean_interval_ns()
        between, within = self.variances()
        return {
            "title": self.title,
            "num_ranks": self.num_ranks,
            "num_samples": self.num_samples,
            "method": self.method,
            "fixed_ns": self.fixed_ns,
            "mean_ns": self.mean_ns,
            "mean_low_ns": _or_none(low),
            "mean_high_ns": _or_none(high),
            "deviation_ns": self.deviation_ns,
            "between_jobs_ns": math.sqrt(between),
            "within_jobs_ns": math.sqrt(within),
            "quantiles": [_without_nan(one.as_json()) for one in self.quantiles],
            "convergence": [
                dict(zip(("samples", "mean_ns", "p50_ns", "p95_ns"), row, strict=True))
                for row in self.convergence
            ],
            "shares": self.shares.as_json(),
            "scales": [one.as_json() for one in self.scales],
            "sources": dict(self.sources),
            "notes": list(self.notes),
        }


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _without_nan(row: Mapping[str, object]) -> dict[str, object]:
    return {
        name: _or_none(value) if isinstance(value, float) else value for name, value in row.items()
    }


def _shares_table(key: str, rows: Sequence[VarianceShare]) -> Table:
    return Table.of(
        key,
        rows,
        Column("name", key.removesuffix("s"), Unit.NAME),
        Column("share", "of variance"),
        Column("path_ns", "on path ms"),
        Column("tail_ns", "in slow steps ms"),
        title=f"who carries the variance: {key}",
    )


def shares_of(
    names: Sequence[str], by_path_ns: Float64s, step_ns: Float64s, is_tail: Bools
) -> tuple[VarianceShare, ...]:
    """Variance shares from times on critical paths.

    Args:
        names: of the things.
        by_path_ns: float64[paths, things], time of each on each path.
        step_ns: float64[paths], length of each path.
        is_tail: bool[paths], of the slowest steps.
    """
    variance = float(step_ns.var())
    centred = step_ns - step_ns.mean()
    covariance = (by_path_ns * centred[:, None]).mean(axis=0)
    share = covariance / variance if variance > 0 else np.zeros(len(names))
    mean, tail = by_path_ns.mean(axis=0), by_path_ns[is_tail].mean(axis=0)
    rows = [
        VarianceShare(name, float(share[at]), float(mean[at]), float(tail[at]))
        for at, name in enumerate(names)
    ]
    return tuple(sorted(rows, key=lambda one: -abs(one.share)))

"""What a replay is held against, and how far it is from it; frozen values, JSON by `as_json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from foretrace.analyze import COMPONENTS, Parts
from foretrace.graph import Ablation, Clock, EdgeConstant, Finding

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class ErrorDistribution:
    """Absolute errors of many starts, in ns."""

    median_ns: int
    p95_ns: int
    count: int  # starts compared; 0: nothing to compare, the errors are 0


@dataclass(frozen=True)
class RankReplay:
    """One step on one rank: measured beside replayed."""

    rank: int
    measured_ns: int  # step: host mark to the later of host end and last device operation
    replayed_ns: int
    host_measured_ns: int  # the host's mark alone
    host_replayed_ns: int
    measured_parts: Parts
    replayed_parts: Parts
    kernel_start_error: ErrorDistribution  # each start relative to the step's begin on this rank
    collective_measured_ns: int  # sum over the step's collectives, arrival to finish
    collective_replayed_ns: int

    def as_json(self) -> dict[str, object]:
        """Builtins only; the four parts side by side under `components`."""
        measured, replayed = self.measured_parts.as_json(), self.replayed_parts.as_json()
        return {
            "rank": self.rank,
            "measured_ns": self.measured_ns,
            "replayed_ns": self.replayed_ns,
            "host_measured_ns": self.host_measured_ns,
            "host_replayed_ns": self.host_replayed_ns,
            "components": {
                part: {"measured_ns": measured[part], "replayed_ns": replayed[part]}
                for part in COMPONENTS
            },
            "kernel_start_error_ns": {
                "median": self.kernel_start_error.median_ns,
                "p95": self.kernel_start_error.p95_ns,
                "count": self.kernel_start_error.count,
            },
            "collective_ns": {
                "measured_ns": self.collective_measured_ns,
                "replayed_ns": self.collective_replayed_ns,
            },
        }


@dataclass(frozen=True)
class StepReplay:
    """One step on all ranks that recorded it."""

    name: str
    ranks: tuple[RankReplay, ...]

    def as_json(self) -> dict[str, object]:
        """Builtins only."""
        return {"name": self.name, "ranks": [rank.as_json() for rank in self.ranks]}


@dataclass(frozen=True)
class ReplaySummary:
    """The errors of one replay in a few numbers, in percent of what was measured.

    Errors of a step's length, of its parts and of kernel starts are in percent of that step on
    that rank; errors of collective time in percent of that rank's collective time in that step.
    """

    mean_step_error_percent: float  # mean over steps and ranks of |replayed - measured|
    worst_step_error_percent: float
    mean_host_error_percent: float  # the same for the host's mark
    worst_component_error_percent: float  # largest |error| of one part of one step on one rank
    worst_component: str  # which part that is; one of `COMPONENTS`
    component_error_percent: dict[str, float]  # part -> its largest |error| on any step and rank
    median_kernel_start_error_percent: float  # largest median of any step and rank
    p95_kernel_start_error_percent: float  # largest p95 of any step and rank
    worst_collective_error_percent: float | None  # None: no collectives
    mean_collective_error_percent: float | None
    mean_step_bias_percent: float  # mean of replayed - measured: below 0 the replay is too short
    measured_parts: Parts  # all steps and ranks together
    replayed_parts: Parts

    def as_json(self) -> dict[str, object]:
        """Builtins only."""
        parts = {
            "measured_parts": self.measured_parts.as_json(),
            "replayed_parts": self.replayed_parts.as_json(),
        }
        return asdict(self) | parts


@dataclass(frozen=True)
class DurationMix:
    """What the replayed steps rest on: shares of the critical path that sum to 1.

    Walked back from each step's end on each rank to its begin, over all ranks it depends on.
    """

    recorded_host: float  # host work, as recorded
    recorded_device: float  # kernels, copies and fills, as recorded
    split: float  # transfers: what remains of a recorded collective after the last arrival
    estimated: float  # transfers with a missing rank, and the missing ranks' own time
    constant: float  # one number per kind of edge: launch latency, hand-over, wake-up

    def as_json(self) -> dict[str, float]:
        """Builtins only."""
        return asdict(self)


@dataclass(frozen=True)
class NullModel:
    """The same replay without one class of dependency."""

    ablation: Ablation
    summary: ReplaySummary


@dataclass(frozen=True)
class ReplayReport:
    """A replay held against its recording."""

    steps: tuple[StepReplay, ...]
    summary: ReplaySummary
    null_models: tuple[NullModel, ...]
    mix: DurationMix
    constants: tuple[EdgeConstant, ...]
    clocks: tuple[Clock, ...]
    findings: tuple[Finding, ...]
    unprofiled_step_ns: dict[int, int]  # rank -> median step time without profiler, if recorded

    def as_json(self) -> dict[str, object]:
        """Builtins only; what `foretrace replay --json` prints."""
        return {
            "steps": [step.as_json() for step in self.steps],
            "summary": self.summary.as_json(),
            "null_models": {
                null.ablation.value: null.summary.as_json() for null in self.null_models
            },
            "duration_mix": self.mix.as_json(),
            "constants": [
                {
                    "kind": constant.kind.name.lower(),
                    "lag_ns": constant.lag_ns,
                    "low_ns": constant.low_ns,
                    "high_ns": constant.high_ns,
                    "num_samples": constant.num_samples,
                }
                for constant in self.constants
            ],
            "clocks": [asdict(clock) for clock in self.clocks],
            "findings": [
                {
                    "topic": finding.topic,
                    "text": finding.text,
                    "paths": [str(path) for path in finding.paths],
                }
                for finding in self.findings
            ],
            "unprofiled_step_ns": {
                str(rank): step_ns for rank, step_ns in self.unprofiled_step_ns.items()
            },
        }

    def to_frame(self) -> pl.DataFrame:
        """One row per step and rank."""
        import polars as pl  # on demand: it takes longer to import than this report to make

        rows = []
        for step in self.steps:
            for rank in step.ranks:
                row: dict[str, object] = {
                    "step": step.name,
                    "rank": rank.rank,
                    "measured_ns": rank.measured_ns,
                    "replayed_ns": rank.replayed_ns,
                    "host_measured_ns": rank.host_measured_ns,
                    "host_replayed_ns": rank.host_replayed_ns,
                }
                measured, replayed = rank.measured_parts.as_json(), rank.replayed_parts.as_json()
                for part in COMPONENTS:
                    row[f"{part}_measured_ns"] = measured[part]
                    row[f"{part}_replayed_ns"] = replayed[part]
                row["kernel_start_error_median_ns"] = rank.kernel_start_error.median_ns
                row["kernel_start_error_p95_ns"] = rank.kernel_start_error.p95_ns
                row["collective_measured_ns"] = rank.collective_measured_ns
                row["collective_replayed_ns"] = rank.collective_replayed_ns
                rows.append(row)
        return pl.DataFrame(rows)


@dataclass(frozen=True)
class StepPrediction:
    """One step on one rank, predicted from the other steps' durations."""

    step_name: str
    rank: int
    measured_ns: int
    predicted_ns: int
    naive_ns: int  # median of the other steps' measured times on this rank: no graph needed

    @property
    def error_percent(self) -> float:
        """Signed error of the prediction, in percent of the measured step."""
        return 100.0 * (self.predicted_ns - self.measured_ns) / max(self.measured_ns, 1)

    @property
    def naive_error_percent(self) -> float:
        """The same of `naive_ns`."""
        return 100.0 * (self.naive_ns - self.measured_ns) / max(self.measured_ns, 1)


@dataclass(frozen=True)
class OtherStepReport:
    """Each step predicted from durations of the others; rows by step, then rank.

    The graph of the predicted step is its own; only durations come from elsewhere.
    """

    rows: tuple[StepPrediction, ...]
    mean_error_percent: float  # mean of |error|
    worst_error_percent: float
    mean_naive_error_percent: float
    worst_naive_error_percent: float
    num_matched: int  # nodes whose counterpart stands in another step
    num_same_name: int  # no counterpart; median of the same name in other steps
    num_same_kind: int  # no such name; median of the same kind in other steps
    matched_time_share: float  # part of the predicted steps' node time that was matched

    def as_json(self) -> dict[str, object]:
        """Builtins only."""
        rows = [
            {
                "step": row.step_name,
                "rank": row.rank,
                "measured_ns": row.measured_ns,
                "predicted_ns": row.predicted_ns,
                "naive_ns": row.naive_ns,
                "error_percent": row.error_percent,
            }
            for row in self.rows
        ]
        rest = {
            "mean_error_percent": self.mean_error_percent,
            "worst_error_percent": self.worst_error_percent,
            "mean_naive_error_percent": self.mean_naive_error_percent,
            "worst_naive_error_percent": self.worst_naive_error_percent,
            "num_matched": self.num_matched,
            "num_same_name": self.num_same_name,
            "num_same_kind": self.num_same_kind,
            "matched_time_share": self.matched_time_share,
        }
        return {"rows": rows, **rest}

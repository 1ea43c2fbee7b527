"""What predictions from neighbours come to: one row a pair, and errors by what differs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, kw_only=True)
class NeighbourPrediction:
    """One run, predicted from another; times in seconds, as tables of runs print them."""

    id: str
    neighbour: str
    dimension: str  # what they differ in
    measured_s: float
    neighbour_s: float  # measured, of the neighbour
    predicted_s: float  # from the neighbour: `foretrace.whatif.scaled_step`
    low_s: float  # 10th percentile
    high_s: float  # 90th
    ratio_s: float  # the neighbour's, times the plain ratio of the two estimates
    scratch_s: float  # the estimate alone
    flops_s: float  # the neighbour's, times the ratio of FLOPs per GPU

    @property
    def error(self) -> float:
        """Predicted over measured time, less 1."""
        return self.predicted_s / self.measured_s - 1

    @property
    def is_inside(self) -> bool:
        """Whether the measured time lies in the 80% interval."""
        return self.low_s <= self.measured_s <= self.high_s

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {**{one.name: getattr(self, one.name) for one in fields(self)}, "error": self.error}


@dataclass(frozen=True, kw_only=True)
class DimensionErrors:
    """Mean absolute errors over pairs that differ in one thing, as shares of measured times."""

    dimension: str
    num_pairs: int
    predicted: float
    ratio: float
    scratch: float
    flops: float
    wins: float  # share of pairs in which the neighbour is nearer than scratch
    inside: float  # share of measured times in their 80% interval

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True)
class NeighboursReport:
    """Predictions of runs from their neighbours."""

    rows: tuple[NeighbourPrediction, ...]
    num_runs: int  # that have a neighbour
    refused: tuple[str, ...]  # why runs were left out

    @property
    def dimensions(self) -> tuple[DimensionErrors, ...]:
        """Errors by what differs, in alphabetic order."""
        names = sorted({one.dimension for one in self.rows})
        return tuple(
            _errors(name, [one for one in self.rows if one.dimension == name]) for name in names
        )

    @property
    def overall(self) -> DimensionErrors | None:
        """The mean over all dimensions, each counting alike; `None` without pairs."""
        found = self.dimensions
        if not found:
            return None

        def mean(name: str) -> float:
            return float(np.mean([getattr(one, name) for one in found]))

        return DimensionErrors(
            dimension="mean",
            num_pairs=len(self.rows),
            predicted=mean("predicted"),
            ratio=mean("ratio"),
            scratch=mean("scratch"),
            flops=mean("flops"),
            wins=mean("wins"),
            inside=mean("inside"),
        )

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        overall = self.overall
        return {
            "num_runs": self.num_runs,
            "dimensions": [one.as_json() for one in self.dimensions],
            "overall": None if overall is None else overall.as_json(),
            "refused": list(self.refused),
            "rows": [one.as_json() for one in self.rows],
        }

    def to_frame(self) -> pl.DataFrame:
        """One row per pair."""
        import polars as pl  # on demand: it takes longer to import than most commands take

        return pl.DataFrame([one.as_json() for one in self.rows], infer_schema_length=None)


def _errors(dimension: str, rows: list[NeighbourPrediction]) -> DimensionErrors:
    measured = np.array([one.measured_s for one in rows])
    off = {
        name: np.abs(np.array([getattr(one, f"{name}_s") for one in rows]) / measured - 1)
        for name in ("predicted", "ratio", "scratch", "flops")
    }
    means = {name: float(each.mean()) for name, each in off.items()}
    return DimensionErrors(
        dimension=dimension,
        num_pairs=len(rows),
        wins=float(np.mean(off["predicted"] < off["scratch"])),
        inside=float(np.mean([one.is_inside for one in rows])),
        **means,
    )

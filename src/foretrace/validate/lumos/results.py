"""What predictions of Lumos' figure 7 come to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.validate.lumos.figure import PAPERS_MEAN_ERROR, Bar, FigureRow

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class LumosRow:
    """One scaling: measured, predicted here, and predicted by Lumos."""

    figure: FigureRow
    predicted: Bar

    @property
    def error(self) -> float:
        """Of the total, as a share of the measured one."""
        return self.predicted.total / self.figure.measured.total - 1

    @property
    def lumos_error(self) -> float:
        """The same of the paper's prediction."""
        return self.figure.lumos.total / self.figure.measured.total - 1

    def as_json(self) -> dict[str, object]:
        """Everything, times in ms."""
        return {
            "name": self.figure.name,
            "measured": self.figure.measured.as_json(),
            "predicted": self.predicted.as_json(),
            "lumos": self.figure.lumos.as_json(),
            "error": self.error,
            "lumos_error": self.lumos_error,
            "is_label_doubtful": self.figure.is_label_doubtful,
        }


@dataclass(frozen=True)
class LumosReport:
    """Nine scalings, of which the first taught the constants."""

    kernels: float  # factor on what is known of kernels elsewhere
    network: float  # the same of all collectives
    teacher: LumosRow
    rows: tuple[LumosRow, ...]  # the other eight

    @property
    def mean_error(self) -> float:
        """Mean absolute error of the other eight totals."""
        return _mean(row.error for row in self.rows)

    @property
    def lumos_mean_error(self) -> float:
        """The same of the paper's predictions of these eight."""
        return _mean(row.lumos_error for row in self.rows)

    @property
    def swapped_mean_error(self) -> float:
        """Mean absolute error if the labels in doubt are swapped."""
        doubtful = [row for row in self.rows if row.figure.is_label_doubtful]
        swapped = (
            row.predicted.total / other.figure.measured.total - 1
            for row, other in zip(doubtful, reversed(doubtful), strict=True)
        )
        sure = (row.error for row in self.rows if not row.figure.is_label_doubtful)
        return _mean([*sure, *swapped])

    def as_json(self) -> dict[str, object]:
        """Everything, times in ms."""
        return {
            "kernels": self.kernels,
            "network": self.network,
            "mean_error": self.mean_error,
            "swapped_mean_error": self.swapped_mean_error,
            "lumos_mean_error": self.lumos_mean_error,
            "lumos_stated_mean_error": PAPERS_MEAN_ERROR,
            "teacher": self.teacher.as_json(),
            "rows": [row.as_json() for row in self.rows],
        }

    def to_frame(self) -> pl.DataFrame:
        """One row per scaling and side, the teacher first; times in ms."""
        import polars as pl  # on demand: it takes longer to import than most commands take

        return pl.DataFrame(
            [
                {"name": row.figure.name, "side": side, **bar.as_json()}
                for row in (self.teacher, *self.rows)
                for side, bar in (
                    ("measured", row.figure.measured),
                    ("predicted", row.predicted),
                    ("lumos", row.figure.lumos),
                )
            ]
        )


def _mean(errors: Iterable[float]) -> float:
    return float(np.mean(np.abs(list(errors))))

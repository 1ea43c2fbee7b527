"""What a live test comes to: one row per configuration, and the errors over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl

from foretrace.answer import Plain


@dataclass(frozen=True)
class LiveComponent(Plain):
    """A part of a rank's step, mean over ranks and steps."""

    predicted_ns: int | None  # without the profiler
    measured_ns: int | None  # of profiled steps, which take longer; `None`: not recorded


@dataclass(frozen=True, kw_only=True)
class LiveRow:
    """One configuration, predicted from the base's recording and run."""

    name: str
    changes: str  # in words: "layers 4 -> 8"
    num_ranks: int
    measured_ns: int | None  # median over runs of their median step; `None`: not run
    measured_low_ns: int | None  # the fastest run's
    measured_high_ns: int | None  # the slowest run's
    num_runs: int
    predicted_ns: int | None  # `None`: refused
    low_ns: int | None  # 10th percentile
    high_ns: int | None  # 90th
    naive_ns: int
    components: Mapping[str, LiveComponent]
    why: str = ""  # why something is missing

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1."""
        return _error(self.predicted_ns, self.measured_ns)

    @property
    def naive_error(self) -> float | None:
        """The same of naive scaling."""
        return _error(self.naive_ns, self.measured_ns)

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured step lies in the predicted interval."""
        if self.measured_ns is None or self.low_ns is None or self.high_ns is None:
            return None
        return self.low_ns <= self.measured_ns <= self.high_ns

    def as_json(self) -> dict[str, object]:
        """Everything, as builtins."""
        return {
            "name": self.name,
            "changes": self.changes,
            "num_ranks": self.num_ranks,
            "measured_ns": self.measured_ns,
            "measured_low_ns": self.measured_low_ns,
            "measured_high_ns": self.measured_high_ns,
            "num_runs": self.num_runs,
            "predicted_ns": self.predicted_ns,
            "low_ns": self.low_ns,
            "high_ns": self.high_ns,
            "naive_ns": self.naive_ns,
            "error": self.error,
            "naive_error": self.naive_error,
            "components": {name: each.as_json() for name, each in self.components.items()},
            "why": self.why,
        }


def _error(predicted_ns: int | None, measured_ns: int | None) -> float | None:
    if predicted_ns is None or not measured_ns:
        return None
    return predicted_ns / measured_ns - 1


@dataclass(frozen=True, kw_only=True)
class LiveReport:
    """A live test: what was predicted from one recording, and what was measured then."""

    device: str
    num_cores: int
    base: LiveRow  # predicted and run like the others, and not counted in the errors
    rows: tuple[LiveRow, ...]  # every configuration of the list, in its order
    profiler_ns: int  # what the profiler adds to a step of the base
    event_ns: int  # the same for each recorded host event

    @property
    def mean_abs_error(self) -> float | None:
        """Mean size of the errors of all rows that were run; `None` if one was not predicted."""
        return _mean([row.error for row in self.rows if row.measured_ns is not None])

    @property
    def naive_mean_abs_error(self) -> float | None:
        """The same of naive scaling."""
        return _mean([row.naive_error for row in self.rows if row.measured_ns is not None])

    @property
    def num_inside(self) -> int:
        """Rows whose measured step lies in the predicted interval."""
        return sum(row.is_inside is True for row in self.rows)

    def as_json(self) -> dict[str, object]:
        """Everything, as builtins."""
        return {
            "device": self.device,
            "num_cores": self.num_cores,
            "mean_abs_error": self.mean_abs_error,
            "naive_mean_abs_error": self.naive_mean_abs_error,
            "num_inside": self.num_inside,
            "profiler_ns": self.profiler_ns,
            "event_ns": self.event_ns,
            "base": self.base.as_json(),
            "rows": [row.as_json() for row in self.rows],
        }

    def to_frame(self) -> pl.DataFrame:
        """One row per configuration; components are columns of their own."""
        import polars as pl  # on demand: it takes longer to import than most commands take

        names = list(dict.fromkeys(name for row in self.rows for name in row.components))
        missing = LiveComponent(None, None)
        return pl.DataFrame(
            [
                {key: value for key, value in row.as_json().items() if key != "components"}
                | {
                    f"{name}_{key}": value
                    for name in names
                    for key, value in row.components.get(name, missing).as_json().items()
                }
                for row in self.rows
            ],
            infer_schema_length=None,
        )


def _mean(errors: list[float | None]) -> float | None:
    known = [abs(each) for each in errors if each is not None]
    return float(np.mean(known)) if known and len(known) == len(errors) else None

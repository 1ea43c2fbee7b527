"""`Assumed`: what a plan left open, and how much the step depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrace.workload import Assumption

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Alternative:
    """One legal plan that agrees with what was stated."""

    values: Mapping[str, object]  # of the keys that were left open: "memory.recompute"
    step_ns: int
    low_ns: int  # 10th percentile
    high_ns: int  # 90th
    peak_bytes: int | None  # of the fullest stage; `None`: not known
    fits: bool | None

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {
            "values": dict(self.values),
            "step_ns": self.step_ns,
            "low_ns": self.low_ns,
            "high_ns": self.high_ns,
            "peak_bytes": self.peak_bytes,
            "fits": self.fits,
        }


@dataclass(frozen=True)
class Assumed:
    """Keys that were left open, and every plan that was tried."""

    assumptions: tuple[Assumption, ...]
    alternatives: tuple[Alternative, ...]  # the answer first

    @property
    def low_ns(self) -> int:
        """The shortest step of all plans."""
        return min(one.step_ns for one in self.alternatives)

    @property
    def high_ns(self) -> int:
        """The longest step of all plans."""
        return max(one.step_ns for one in self.alternatives)

    def to_frame(self) -> pl.DataFrame:
        """One row per plan, the answer first: open keys, step, interval, memory."""
        import polars as pl  # on demand: it takes longer to import than all else here

        return pl.DataFrame(
            [
                {
                    **{key: str(value) for key, value in one.values.items()},
                    "step_ns": one.step_ns,
                    "low_ns": one.low_ns,
                    "high_ns": one.high_ns,
                    "peak_bytes": one.peak_bytes,
                    "fits": one.fits,
                }
                for one in self.alternatives
            ]
        )

    def as_json(self) -> dict[str, object]:
        """Everything, times in ns."""
        return {
            "low_ns": self.low_ns,
            "high_ns": self.high_ns,
            "assumptions": [one.as_json() for one in self.assumptions],
            "plans": [one.as_json() for one in self.alternatives],
        }

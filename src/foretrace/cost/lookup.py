"""`MeasuredProducts`: the user's own table of matrix products, which wins over every model.

A shape that was measured is answered with its time. Between two measured m of the same batch, n
and k the time is interpolated, log over log, if they are no further apart than a factor of four;
outside of the table there is no answer, since tiles and waves do not extrapolate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s
from foretrace.cost.constants import width_of
from foretrace.cost.gemm import GemmShapes
from foretrace.cost.tables import LIBRARY, Measured

_MOST_APART = 4.0

_Key = tuple[int, int, int, str]  # batch, n, k, width


@dataclass(frozen=True)
class MeasuredProducts:
    """Measured times along m, for each batch, n, k and width of numbers."""

    lines: dict[_Key, tuple[Float64s, Float64s]]  # log m rising, log of the time in ns

    def looked_up_ns(self, shapes: GemmShapes) -> Float64s:
        """Time of each product, float64[rows] in ns; NaN where the table does not reach."""
        width = width_of(shapes.dtype)
        found = np.full(len(shapes), np.nan)
        columns = (shapes.batch, shapes.n, shapes.k, shapes.m)
        for at, (batch, n, k, m) in enumerate(np.stack(columns, axis=1).tolist()):
            line = self.lines.get((batch, n, k, width))
            if line is not None:
                found[at] = _along(line, float(np.log(m)))
        return found


def measured_products(measured: Sequence[Measured], chip: str) -> MeasuredProducts:
    """The products among a chip's measurements; of several times of one shape the median."""
    times: dict[_Key, dict[int, list[float]]] = {}
    for one in measured:
        if one.chip.name != chip or one.model != "gemm" or one.kind != LIBRARY:
            continue
        shapes = one.shapes
        if not isinstance(shapes, GemmShapes):
            continue
        columns = np.stack((shapes.batch, shapes.n, shapes.k, shapes.m), axis=1).tolist()
        for (batch, n, k, m), time_ns in zip(columns, one.measured_ns.tolist(), strict=True):
            by_m = times.setdefault((batch, n, k, width_of(one.dtype)), {})
            by_m.setdefault(m, []).append(time_ns)
    return MeasuredProducts({key: _line(by_m) for key, by_m in times.items()})


def _line(by_m: dict[int, list[float]]) -> tuple[Float64s, Float64s]:
    rising = sorted(by_m)
    medians = np.array([np.median(by_m[m]) for m in rising])
    return np.log(np.array(rising, np.float64)), np.log(medians)


def _along(line: tuple[Float64s, Float64s], log_m: float) -> float:
    log_ms, log_times = line
    after = int(np.searchsorted(log_ms, log_m))
    near = [at for at in (after - 1, after) if 0 <= at < len(log_ms)]
    for at in near:
        if np.isclose(log_ms[at], log_m, rtol=0, atol=1e-9):
            return float(np.exp(log_times[at]))
    is_between = 0 < after < len(log_ms)
    if not is_between or log_ms[after] - log_ms[after - 1] > np.log(_MOST_APART):
        return float("nan")
    return float(np.exp(np.interp(log_m, log_ms, log_times)))

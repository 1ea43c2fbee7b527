"""A start and a rate for each kind of operator, fitted to what one recording shows of it.

`start + FLOPs / rate + bytes / bandwidth`: as many of the three as the distinct shapes can
tell apart. One shape alone says how long its work takes and nothing of a start, which lies between
that of the shortest operators and all but what the recording's quickest work would take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s, Int64s
from foretrace.cost.choosing import UNTESTED_SPREAD
from foretrace.cost.constants import Spread
from foretrace.cost.fitting import Constant, MeasuredRows, fitted

_START, _RATE, _BANDWIDTH = "start_ns", "flops_per_ns", "bytes_per_ns"
# So many times slower or faster than the quickest row: what a rate may be at most.
_APART = 1e4
# A start is at most so many times what the shortest operator takes: more than that is what odd
# kernels do to a line through few shapes. The shortest kernels take 1 to 2 us, and library products
# start in 1.5 to 10 us (constants that `foretrace.cost` ships).
_STARTS_APART = 10
_ROWS_PER_CONSTANT = 2  # fewer distinct shapes cannot be told from noise
# Sizes closer together than this are one size, measured several times: they tell no start.
_SIZES_APART = 2
_LEAST_APART = 0.5  # doublings between two sizes that say something of a rate
_LEAST_PAIRS = 3
_LOW, _HIGH = 10, 90  # percentiles


@dataclass(frozen=True)
class Points:
    """Distinct shapes of one kind of operator; columns of one length."""

    flops: Float64s
    num_bytes: Float64s
    measured_ns: Float64s  # median of a shape's calls
    operator: Int64s  # a number per operator
    total_ns: Float64s  # of all its calls: rows count by it

    def __len__(self) -> int:
        """Number of shapes."""
        return len(self.measured_ns)

    def mean_per_ns(self, work: Float64s) -> float:
        """What all calls together get done of some work in a nanosecond."""
        num_calls = self.total_ns / self.measured_ns
        return float((work * num_calls).sum() / self.total_ns.sum())


@dataclass(frozen=True)
class Line:
    """Constants of one kind of operator."""

    values: Mapping[str, float]
    spread: Spread  # measured over predicted, from one size to another
    smallest: float  # work of the shapes that it was fitted to, in ns
    largest: float
    is_tested: bool  # between recorded sizes; else the spread is that of what nobody tested

    def predicted_ns(self, flops: Float64s, num_bytes: Float64s) -> Float64s:
        """Duration of each row."""
        found: Float64s = self.values.get(_START, 0.0) + self.work_ns(flops, num_bytes)
        return found

    def work_ns(self, flops: Float64s, num_bytes: Float64s) -> Float64s:
        """The same without the start."""
        found = np.zeros(len(flops))
        for name, work in ((_RATE, flops), (_BANDWIDTH, num_bytes)):
            if name in self.values:
                found += work / self.values[name]
        return found

    def ends(self, flops: Float64s, num_bytes: Float64s) -> tuple[Float64s, Float64s]:
        """Low and high end of the interval, over the prediction.

        Beyond the recorded sizes a rate was not tested: with every doubling it may be off once
        more by as much as between recorded ones, independently.
        """
        work = np.maximum(self.work_ns(flops, num_bytes), 1e-9)
        beyond = np.maximum(np.log2(work / self.largest), np.log2(self.smallest / work))
        power = np.sqrt(1 + np.maximum(beyond, 0)) if self.is_tested else np.ones(len(work))
        return self.spread.low**power, self.spread.high**power


@dataclass(frozen=True)
class Quickest:
    """The most that any kind of operator of a recording gets done; 0: not known."""

    flops_per_ns: float = 0.0
    bytes_per_ns: float = 0.0

    @staticmethod
    def of(kinds: Iterable[Points]) -> Quickest:
        """The best mean rate of a kind; bytes of those that do nothing but move them."""
        found = [(one.mean_per_ns(one.flops), one.mean_per_ns(one.num_bytes)) for one in kinds]
        return Quickest(
            max((flops for flops, _ in found), default=0.0),
            max((moved for flops, moved in found if not flops), default=0.0),
        )


def fitted_line(points: Points, shortest_ns: float, quickest: Quickest = Quickest()) -> Line:
    """The line through the points.

    Args:
        points: at least one.
        shortest_ns: what the shortest operators of the recording take.
        quickest: what the recording's best operators get done.
    """
    names = _constants_for(points)
    values = _fit(points, names, shortest_ns, quickest)
    line = Line(values, UNTESTED_SPREAD, 1.0, 1.0, is_tested=False)
    work = np.maximum(line.work_ns(points.flops, points.num_bytes), 1e-9)
    spread = _spread(points, line)
    return Line(
        values,
        spread or UNTESTED_SPREAD,
        float(work.min()),
        float(work.max()),
        is_tested=spread is not None,
    )


def _constants_for(points: Points) -> tuple[str, ...]:
    has_flops, has_bytes = points.flops.max() > 0, points.num_bytes.max() > 0
    work = [name for name, has in ((_RATE, has_flops), (_BANDWIDTH, has_bytes)) if has]
    works = points.flops if has_flops else points.num_bytes
    if works.max() < _SIZES_APART * works.min():
        return tuple(work[:1])
    if len(points) < _ROWS_PER_CONSTANT * 3:
        work = work[:1]
    return (_START, *work)


def _fit(
    points: Points, names: tuple[str, ...], shortest_ns: float, quickest: Quickest
) -> dict[str, float]:
    work = {_RATE: points.flops, _BANDWIDTH: points.num_bytes}
    if _START not in names:
        name = names[0] if names else _START
        if name == _START:
            return {_START: float(np.median(points.measured_ns))}
        best = quickest.flops_per_ns if name == _RATE else quickest.bytes_per_ns
        start_ns = _start_of_one_size(points.measured_ns, work[name], shortest_ns, best=best)
        over = np.maximum(points.measured_ns - start_ns, 1e-3)
        return {_START: start_ns, name: float(np.median(work[name] / over))}
    constants = [
        Constant(
            _START,
            "ns",
            "of every call",
            1e-3,
            _STARTS_APART * shortest_ns,
            shortest_ns,
        )
    ]
    for name in names[1:]:
        best = float((work[name] / points.measured_ns).max())
        constants.append(Constant(name, "", "rate", best / _APART, best * _APART, best))

    def predicted_ns(values: Mapping[str, float]) -> Float64s:
        found: Float64s = Line(values, UNTESTED_SPREAD, 1, 1, is_tested=False).predicted_ns(
            points.flops, points.num_bytes
        )
        return found

    weight = np.sqrt(points.total_ns / points.total_ns.mean())
    rows = MeasuredRows(predicted_ns, points.measured_ns, weight)
    return fitted(constants, [rows], pull=1e-3)


def _start_of_one_size(
    measured_ns: Float64s, work: Float64s, shortest_ns: float, *, best: float
) -> float:
    """What is start of an operator that was seen at one size.

    Its work takes at least what the quickest operators need for as much, at most all but the
    shortest operators' time; the geometric mean of both is taken.
    """
    shortest_ns = min(shortest_ns, 0.5 * float(measured_ns.min()))
    most_ns = float(np.median(measured_ns)) - shortest_ns
    least_ns = min(float(np.median(work)) / best, most_ns) if best > 0 else most_ns
    start_ns = float(np.median(measured_ns)) - float(np.sqrt(least_ns * most_ns))
    return min(start_ns, _STARTS_APART * shortest_ns, 0.9 * float(measured_ns.min()))


def _spread(points: Points, line: Line) -> Spread | None:
    """Measured ratios over predicted ones; none if there are too few pairs of sizes.

    Of two sizes of one operator, both ways: what of an operator no line knows is in the
    measurement that is scaled, and cancels.
    """
    ratio = points.measured_ns / line.predicted_ns(points.flops, points.num_bytes)
    work = line.work_ns(points.flops, points.num_bytes)
    first, second = np.triu_indices(len(points), 1)
    is_pair = points.operator[first] == points.operator[second]
    # Of operators that hardly do more than start, times say nothing of a rate.
    is_long = (work > 0) & (points.measured_ns >= 2 * line.values.get(_START, 0.0))
    is_pair &= is_long[first] & is_long[second]
    first, second = first[is_pair], second[is_pair]
    is_apart = np.abs(np.log2(work[first] / work[second])) >= _LEAST_APART
    first, second = first[is_apart], second[is_apart]
    if len(first) < _LEAST_PAIRS:
        return None
    errors = ratio[first] / ratio[second]
    weight = np.minimum(points.total_ns[first], points.total_ns[second])
    return Spread(*_quantiles(np.concatenate([errors, 1 / errors]), np.tile(weight, 2)))


def _quantiles(values: Float64s, weight: Float64s) -> tuple[float, float]:
    """10th and 90th percentile, each value as often as its weight says."""
    order = np.argsort(values)
    share = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    low, high = np.interp([_LOW / 100, _HIGH / 100], share, values[order])
    return float(low), float(high)

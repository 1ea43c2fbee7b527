"""`FittedKernels`: durations of kernels from their shapes, by models fitted to measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from foretrace.base import Float64s, Int64s, MachineError
from foretrace.cost.attention import CUDNN, FLASH, PROFILED
from foretrace.cost.choosing import UNTESTED_SPREAD, Chosen, chosen_fit, chosen_of_own
from foretrace.cost.constants import Constants, Spread, constants_for, own_constants, width_of
from foretrace.cost.convolution import ConvolutionShapes, convolution_ns
from foretrace.cost.errors import LONG_NS, REGIONS
from foretrace.cost.gemm import BLOCKWISE, LIBRARY, GemmShapes, gemm_ns
from foretrace.cost.measured import Measured
from foretrace.cost.memory_bound import Access, Movements, movement_ns
from foretrace.cost.model import Costs, KernelRequests, Source
from foretrace.cost.older import OLDER, for_older_kernels, is_of_older
from foretrace.cost.operand_formats import operand_formats
from foretrace.cost.predicting import model_ns, shapes_of
from foretrace.cost.signatures import (
    ATTENTION,
    CONVOLUTION,
    DECODE,
    EXPERT_EXCHANGE,
    GEMM,
    MOVEMENT,
    STOOD_IN_FOR,
    UNKNOWN,
    Operation,
    operation_of,
)
from foretrace.cost.tables import read_tables
from foretrace.machine import Chip

_MOST_APART = 4.0
_FOUR_BITS = "fp4"

_Key = tuple[int, int, int, str]  # batch, n, k, width

_UNKNOWN_FAMILY = "unknown"
_OUTSIDE = (Access.HOST.name.lower(), Access.STORAGE.name.lower())
# Without any fit the peaks bound a time from below, and half of the peaks is the rule of thumb that
# bounds it from above: the answer lies between, and no kernel does all that a data sheet promises.
_OF_ROOFLINE = 2**0.5
_ROOFLINE_SPREAD = Spread(1 / _OF_ROOFLINE, _OF_ROOFLINE)


@dataclass(frozen=True)
class MeasuredProducts:
    """The user's own table of matrix products, which wins over every model.

    A shape that was measured is answered with its time. Between two measured m of the same batch,
    n and k the time is interpolated, log over log, if they are no further apart than a factor of
    four; outside of the table there is no answer, since tiles and waves do not extrapolate.
    """

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
        of_four = one.kind == BLOCKWISE and width_of(one.dtype) == _FOUR_BITS
        if one.chip.name != chip or one.model != "gemm" or not (one.kind == LIBRARY or of_four):
            continue
        shapes = one.shapes
        if not isinstance(shapes, GemmShapes):
            continue
        columns = np.stack((shapes.batch, shapes.n, shapes.k, shapes.m), axis=1).tolist()
        for (batch, n, k, m), time_ns in zip(columns, one.measured_ns.tolist(), strict=True):
            by_m = times.setdefault((batch, n, k, width_of(one.dtype)), {})
            by_m.setdefault(m, []).append(time_ns)
    return MeasuredProducts({key: _line(by_m) for key, by_m in times.items()})


@cache
def _own_products(folder: Path, chip: str) -> MeasuredProducts | None:
    """The products of a user's folder; none if it has no table of them."""
    if next(folder.glob("gemm-*.parquet"), None) is None:
        return None
    return measured_products(read_tables(folder, known_only=True), chip)


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


@dataclass(frozen=True)
class _Distinct:
    """Answers for distinct operations."""

    duration_ns: Float64s  # float64[operations]
    low_ns: Float64s
    high_ns: Float64s
    source: Int64s


@dataclass(frozen=True)
class FittedKernels:
    """Kernel costs of one chip."""

    chip: Chip
    stated: tuple[Constants, ...] | None = None  # in place of the chip's own and those shipped

    @cached_property
    def constants(self) -> tuple[Constants, ...]:
        """What its models are evaluated with."""
        return constants_for(self.chip) if self.stated is None else self.stated

    @cached_property
    def table(self) -> MeasuredProducts | None:
        """Products of the chip's folder of costs; they win over every model where they reach."""
        return None if self.chip.costs is None else _own_products(self.chip.costs, self.chip.name)

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """Duration of each call; each distinct operator, signature and kernel is costed once."""
        texts = np.stack([requests.operator, requests.signature, requests.kernel])
        sizes = [len(requests.operators) + 1, len(requests.signatures) + 1]
        code = (texts[2] + 1).astype(np.int64)
        code = (code * sizes[1] + texts[1] + 1) * sizes[0] + texts[0] + 1
        _, first, inverse = _distinct(code)
        operators, signatures, kernels = (
            (*known, "")  # NO_TEXT: the last
            for known in (requests.operators, requests.signatures, requests.kernels)
        )
        operations = [
            operation_of(operators[one], signatures[two], kernels[three])
            for one, two, three in texts[:, first].T.tolist()
        ]
        return _spread_out(self.operation_costs(operations), inverse)

    def operation_costs(self, operations: Sequence[Operation]) -> Costs:
        """Duration of each operation; rows of one model, kind and format are costed together."""
        size = len(operations)
        answer = _Distinct(
            np.zeros(size),
            np.zeros(size),
            np.zeros(size),
            np.full(size, Source.UNKNOWN, np.int64),
        )
        families: dict[str, int] = {_UNKNOWN_FAMILY: 0}
        family = np.zeros(len(operations), np.int32)
        alike: dict[tuple[str, str, str], list[int]] = {}
        for at, one in enumerate(operations):
            if one.model != UNKNOWN:
                alike.setdefault((one.model, one.kind, one.dtype), []).append(at)
        for key, rows in alike.items():
            sizes = _sizes([operations[at].sizes for at in rows])
            self._answer(key, sizes, np.array(rows), answer)
            name = _family_name(key)
            family[rows] = families.setdefault(name, len(families))
        return Costs(
            duration_ns=np.rint(answer.duration_ns).astype(np.int64),
            low_ns=np.rint(answer.low_ns).astype(np.int64),
            high_ns=np.rint(answer.high_ns).astype(np.int64),
            source=answer.source.astype(np.uint8),
            family=family,
            families=tuple(families),
        )

    def _answer(
        self, key: tuple[str, str, str], sizes: Int64s, rows: Int64s, answer: _Distinct
    ) -> None:
        model, kind, dtype = key
        is_stood_in_for = kind.startswith(STOOD_IN_FOR)
        key = self._with_stand_in((model, kind.removeprefix(STOOD_IN_FOR), dtype))
        chosen = self._chosen(key) if _is_described(key, self.chip) else None
        if chosen is None:
            duration_ns = _roofline_ns(key, sizes, self.chip)
            answer.source[rows] = Source.ROOFLINE if duration_ns.any() else Source.UNKNOWN
            spreads: Mapping[str, Spread] = dict.fromkeys(REGIONS, _ROOFLINE_SPREAD)
        else:
            duration_ns = self._model_ns(key, sizes, chosen)
            answer.source[rows] = chosen.source
            spreads = chosen.spread_by_region
        if is_stood_in_for:
            spreads = dict.fromkeys(REGIONS, UNTESTED_SPREAD)
            if chosen is not None:
                answer.source[rows] = Source.TRANSFERRED
        low, high = spread_ends(duration_ns, spreads)
        answer.duration_ns[rows] = duration_ns
        answer.low_ns[rows] = duration_ns * low
        answer.high_ns[rows] = duration_ns * high
        if model == GEMM and self.table is not None and not is_stood_in_for:
            found_ns = self.table.looked_up_ns(GemmShapes.of(sizes, dtype))
            is_found = ~np.isnan(found_ns)
            for column in (answer.duration_ns, answer.low_ns, answer.high_ns):
                column[rows[is_found]] = found_ns[is_found]
            answer.source[rows[is_found]] = Source.TABLE

    def _with_stand_in(self, key: tuple[str, str, str]) -> tuple[str, str, str]:
        """What is costed: cuDNN's attention of no other architecture stands in for a chip's."""
        model, kind, dtype = key
        if kind != CUDNN:
            return key
        width, alike = width_of(dtype), self.chip.architecture
        ones = (one for one in self.constants if one.architecture == alike)
        if any(one.fit(model, kind, width) is not None for one in ones):
            return key
        return model, FLASH if model == ATTENTION else PROFILED, dtype

    def _chosen(self, key: tuple[str, str, str]) -> Chosen | None:
        model, kind, dtype = key
        if kind == OLDER:
            kind = LIBRARY
        of_four = (GEMM, LIBRARY, _FOUR_BITS)
        if (model, kind, width_of(dtype)) == of_four and not self._knows(of_four):
            kind = BLOCKWISE  # all that multiplies such numbers scales them by blocks
        if model == MOVEMENT:  # its kinds share one set of constants, and so do the formats
            return self._nearest((MOVEMENT, "", "any"))
        if model == CONVOLUTION:
            return self._nearest((CONVOLUTION, kind, "any"))
        if self.chip.peak_flops_per_ns(_multiplied(model, dtype)) is None:
            return None
        return self._nearest((model, kind, dtype))

    def _nearest(self, key: tuple[str, str, str]) -> Chosen | None:
        """The nearest constants; other chips' are read only where the chip's own do not answer."""
        own = own_constants(self.chip) if self.stated is None else None
        found = None if own is None else chosen_of_own(key, own)
        return found or chosen_fit(key, self.chip, self.constants)

    def _knows(self, key: tuple[str, str, str]) -> bool:
        """Whether any chip has constants of this model, kind and width."""
        return any(one.fit(*key) is not None for one in self.constants)

    def _model_ns(self, key: tuple[str, str, str], sizes: Int64s, chosen: Chosen) -> Float64s:
        model, kind, dtype = key
        values = chosen.fit.values
        chip = for_older_kernels(self.chip, kind) if is_of_older(kind) else self.chip
        if model == MOVEMENT:
            movements = Movements(sizes[:, 0].astype(np.float64), sizes[:, 1].astype(np.int8))
            return movement_ns(movements, self.chip, values)
        if model == CONVOLUTION:
            return convolution_ns(self.convolution_shapes(sizes, dtype), self.chip, values)
        return model_ns(model, shapes_of(model, sizes, dtype), chip, values=values)

    def convolution_shapes(self, sizes: Int64s, dtype: str) -> ConvolutionShapes:
        """Rows of sizes as `Operation` holds them, their products costed by the model of these."""
        product = GemmShapes.of(sizes[:, :4], dtype)
        chosen = self._chosen((GEMM, LIBRARY, dtype))
        if chosen is None:
            product_ns = _roofline_ns((GEMM, LIBRARY, dtype), sizes[:, :4], self.chip)
        else:
            product_ns = gemm_ns(product, self.chip, chosen.fit.values)
        others = sizes[:, 4:6].T.astype(np.float64)
        return ConvolutionShapes(product_ns, others[0], others[1])


def _family_name(key: tuple[str, str, str]) -> str:
    """What begins alike is corrected alike in steps, what others stand in for too."""
    model, kind, dtype = key
    words = (model, kind.removeprefix(STOOD_IN_FOR), dtype)
    is_stood_in_for = kind.startswith(STOOD_IN_FOR)
    return " ".join(filter(None, (*words, STOOD_IN_FOR.strip() if is_stood_in_for else "")))


def _sizes(sizes: list[tuple[int, ...]]) -> Int64s:
    try:
        return np.array(sizes, np.int64)
    except OverflowError as err:
        largest = max(max(one) for one in sizes)
        raise MachineError(
            f"an operation {largest:,} wide cannot be costed: state smaller sizes"
        ) from err


def _multiplied(model: str, dtype: str) -> str:
    """Number format in which an operation's products are made."""
    if model in {DECODE, EXPERT_EXCHANGE}:
        return "bf16"  # what is kept or sent in fewer bits is widened
    return operand_formats(dtype)[0]


def _is_described(key: tuple[str, str, str], chip: Chip) -> bool:
    """Whether the chip's description says what the model of these kernels needs."""
    model, kind, _ = key
    if model == MOVEMENT:
        ways = (chip.host_bytes_per_ns, chip.storage_bytes_per_ns)
        return dict(zip(_OUTSIDE, ways, strict=True)).get(kind, 1.0) is not None
    if chip.num_processors is None:
        return False
    return model in {GEMM, CONVOLUTION} or chip.cycles_per_ns is not None


def _roofline_ns(key: tuple[str, str, str], sizes: Int64s, chip: Chip) -> Float64s:
    """What the data sheet alone says of kernels; 0 where it says nothing."""
    model, kind, dtype = key
    if model == MOVEMENT and kind not in _OUTSIDE:
        moved_ns: Float64s = sizes[:, 0] / chip.memory_bytes_per_ns * _OF_ROOFLINE
        return moved_ns
    peak = chip.peak_flops_per_ns(_multiplied(model, dtype))
    if peak is None or model in {MOVEMENT, EXPERT_EXCHANGE}:
        return np.zeros(len(sizes))
    if model == CONVOLUTION:
        shapes = shapes_of(GEMM, sizes[:, :4], dtype)
    else:
        shapes = shapes_of(model, sizes, dtype)
    moving_ns = shapes.num_bytes / chip.memory_bytes_per_ns
    duration_ns: Float64s = _OF_ROOFLINE * np.maximum(shapes.num_flops / peak, moving_ns)
    if model == CONVOLUTION:
        duration_ns *= sizes[:, 4]
    return duration_ns


def spread_ends(duration_ns: Float64s, spreads: Mapping[str, Spread]) -> tuple[Float64s, Float64s]:
    """Ends of the interval as shares of each duration."""
    known = list(spreads.values())
    if not known:
        raise MachineError("constants without a spread: make them anew with `foretrace calibrate`")
    short, long = (spreads.get(region, known[-1]) for region in REGIONS)
    is_long = duration_ns >= LONG_NS
    return np.where(is_long, long.low, short.low), np.where(is_long, long.high, short.high)


def _distinct(code: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Distinct values, a first row of each, and each row's value's position."""
    values, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return values, first, inverse.reshape(-1)


def _spread_out(costs: Costs, inverse: Int64s) -> Costs:
    return Costs(
        duration_ns=costs.duration_ns[inverse],
        low_ns=costs.low_ns[inverse],
        high_ns=costs.high_ns[inverse],
        source=costs.source[inverse],
        family=costs.family[inverse],
        families=costs.families,
    )

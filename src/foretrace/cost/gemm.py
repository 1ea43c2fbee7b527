"""How long a matrix product takes on a GPU: tiles, waves, split reductions, memory, launch.

A library cuts the result into tiles, one per processor at a time, and may cut the inner
dimension as well; it has many kernels and picks a fast one. So the model works out the time for
each of a few tile shapes and splits, and takes the least. A tile takes the longer of its
arithmetic and the loading of its operands from the level 2 cache, plus a prologue and the
storing of its result; all tiles run in waves; all of it takes no less than moving the operands
once from memory; long products run at a lower clock, as the chip nears its power limit.

The model's form follows the tile and wave quantisation of NVIDIA's "Matrix Multiplication
Background User's Guide" (DU-09799); its constants are fitted (see `fitting`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.base import FORMAT_BY_NAME, Float64s, Int64s, MachineError
from foretrace.cost.fitting import Constant, at_once, in_turn
from foretrace.cost.operand_formats import kept_bytes, operand_formats
from foretrace.machine import Chip

LIBRARY = "library"  # kind of kernels that a vendor's library picks
# The kind of products whose operands are scaled by blocks of numbers: other kernels, which do not
# cut the inner dimension.
BLOCKWISE = "blockwise"
CONSTANTS = (
    Constant(
        "launch_ns", "ns", "from one kernel to the next, and to fill the chip", 200, 20_000, 2_500
    ),
    Constant("tile_rate", "", "arithmetic inside a tile, of the peak", 0.5, 1.0, 0.9),
    Constant("prologue_ns", "ns", "first loads of a tile, not hidden", 20, 5_000, 200),
    Constant("memory_rate", "", "device memory, of the data sheet's bandwidth", 0.5, 0.95, 0.82),
    Constant("operand_rate", "B/kFLOP", "level 2 to processors, per peak arithmetic", 5, 300, 18),
    Constant("split_ns", "ns", "second kernel of a split reduction", 500, 8_000, 2_500),
    Constant("split_traffic", "", "partial results written and read, of their size", 0.3, 4, 1.5),
    Constant("store_rate", "", "storing a tile, of its share of memory bandwidth", 0.05, 3, 0.6),
    Constant("throttle", "", "lower clock under lasting load", 0.01, 0.4, 0.15),
    Constant("throttle_after_ns", "ns", "when half of that has set in", 2e5, 2e7, 3e6),
    Constant("fluidity", "", "how far the last wave is shared out; 0: not", 0.01, 30, 0.5),
    Constant(
        "quantise_rate", "", "making 8-bit operands of 16-bit ones, of its traffic", 0.01, 10, 1
    ),
)
# A tile of such a product multiplies as it promotes sums and loads scales, step by step: the public
# tables have 124 us of TensorRT-LLM's nvfp4 for 65,536 of an inner dimension, whatever rows and
# columns there are. Scales lie in tiles of 128 rows and 4 blocks of 16 numbers, which are made
# whole (NVIDIA, cuBLAS 13, "1D Block Scaling Factors Layout").
BLOCKWISE_CONSTANTS = (
    *(one for one in CONSTANTS if not one.name.startswith("split")),
    Constant("step_ns", "ns", "128 bytes along the inner dimension, at least", 1, 2_000, 200),
    Constant("row_ns", "ns", "making operands of one row", 1e-3, 20, 0.3),
    Constant("scales_left", "", "rows whose scales leave a tile open, of that", 1e-3, 20, 0.1),
)
_SCALED_AT_ONCE = 64  # numbers whose scales share a tile


def _tiles(*heights: int) -> Float64s:
    """Rows and columns of tiles, and splits, float64[tiles, 3]."""
    return np.array(
        [
            (tile_m, tile_n, split)
            for tile_m in heights
            for tile_n in (32, 64, 128, 256)
            for split in (1, 2, 4, 8, 16)
            if tile_m * tile_n <= 128 * 256  # what registers of one processor hold as sums
        ],
        np.float64,
    )


_TILES = _tiles(64, 128, 256)
_WHOLE_TILES: Float64s = _TILES[_TILES[:, 2] == 1]
# Kernels that unpack weights are made for few tokens, with tiles from 16 rows on (Frantar et al.,
# "MARLIN", arXiv:2408.11743).
_UNPACKING_TILES = _tiles(16, 32, 64, 128, 256)
_STEP_BYTES = 128  # of the inner dimension that a tile takes at once: one line of the cache
_SUM_BYTES = 4  # partial results are kept in 32 bit
_LEAST_RESULT_BYTES = 2  # results of 8-bit operands are 16-bit numbers
_ROWS_AT_ONCE = 20_000


@dataclass(frozen=True)
class GemmShapes:
    """Products of an m x k and a k x n matrix, `batch` of each, all of one number format.

    The second may be weights that are kept in fewer bits, see `operand_formats`.
    """

    batch: Int64s  # int64[rows]
    m: Int64s  # int64[rows]
    n: Int64s  # int64[rows]
    k: Int64s  # int64[rows]
    dtype: str  # "bf16", ...

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.m)

    @classmethod
    def of(cls, sizes: Int64s, dtype: str) -> GemmShapes:
        """Shapes from int64[rows, 4]: batch, m, n, k."""
        batch, m, n, k = sizes.T
        return cls(batch, m, n, k, dtype)

    @property
    def num_flops(self) -> Float64s:
        """Arithmetic of each row, a multiplication and an addition as two."""
        flops: Float64s = (2 * self.batch * self.m * self.n * self.k).astype(np.float64)
        return flops

    @property
    def num_bytes(self) -> Float64s:
        """Least traffic of each row: operands read once, the result written once."""
        item = FORMAT_BY_NAME[operand_formats(self.dtype)[0]].num_bytes
        kept = FORMAT_BY_NAME[operand_formats(self.dtype)[1]].num_bytes
        operands = (self.m * self.k).astype(np.float64) * item + self.n * self.k * kept
        results = (self.m * self.n).astype(np.float64) * _result_bytes(item)
        moved: Float64s = self.batch * (operands + results)
        return moved


def gemm_ns(shapes: GemmShapes, chip: Chip, values: Mapping[str, float]) -> Float64s:
    """Duration of each product, float64[rows], in ns.

    Raises:
        MachineError: if the chip's description lacks the peak or the number of processors.
    """
    operand = FORMAT_BY_NAME[operand_formats(shapes.dtype)[0]]
    peak = chip.peak_flops_per_ns(operand.name)
    if peak is None or chip.num_processors is None:
        raise MachineError(
            f"chip {chip.name!r} gives no {operand.name} peak or no num_processors, which the cost "
            "of matrix products needs: add them to its file."
        )
    is_unpacked = operand.name != shapes.dtype
    limits = _Limits(
        item_bytes=operand.num_bytes,
        kept_bytes=kept_bytes(shapes.dtype) if is_unpacked else operand.num_bytes,
        peak=peak,
        operand_peak=chip.peak_flops_per_ns("bf16") or peak,
        num_processors=chip.num_processors,
        memory_bytes_per_ns=chip.memory_bytes_per_ns,
        is_quantised=operand.is_narrow,
        tiles=_tiles_of(values, is_unpacked=is_unpacked),
    )
    firsts = range(0, len(shapes), _ROWS_AT_ONCE)
    parts = [
        _best_ns(shapes, slice(first, first + _ROWS_AT_ONCE), limits, values) for first in firsts
    ]
    return np.concatenate([*parts, np.zeros(0)])


def without_quantising(values: Mapping[str, float]) -> dict[str, float]:
    """Constants of products whose operands something else has made."""
    return {**values, **dict.fromkeys(("quantise_rate", "row_ns"), 0.0)}


def _tiles_of(values: Mapping[str, float], *, is_unpacked: bool) -> Float64s:
    if "split_ns" not in values:
        return _WHOLE_TILES
    return _UNPACKING_TILES if is_unpacked else _TILES


@dataclass(frozen=True)
class _Limits:
    """What the chip allows in this number format."""

    item_bytes: float
    kept_bytes: float  # of a weight
    peak: float  # operations per ns
    operand_peak: float  # what the cache is built to feed: the 16-bit peak, where there is one
    num_processors: int
    memory_bytes_per_ns: float  # of the data sheet
    is_quantised: bool
    tiles: Float64s  # float64[tiles, 3]


def _best_ns(
    shapes: GemmShapes, rows: slice, limits: _Limits, values: Mapping[str, float]
) -> Float64s:
    """The least time over tile shapes and splits."""
    batch, m, n, k = (
        column[rows, None].astype(np.float64)
        for column in (shapes.batch, shapes.m, shapes.n, shapes.k)
    )
    tile_m, tile_n, split = limits.tiles.T[:, None]
    item, result = limits.item_bytes, _result_bytes(limits.item_bytes)
    memory = limits.memory_bytes_per_ns * values["memory_rate"]
    per_processor = limits.num_processors

    num_tiles = batch * np.ceil(m / tile_m) * np.ceil(n / tile_n) * split
    waves = in_turn(num_tiles / per_processor, values["fluidity"])

    inner = np.ceil(k / split / (_STEP_BYTES / item)) * (_STEP_BYTES / item)
    arithmetic_ns = (
        2 * tile_m * tile_n * inner * per_processor / (limits.peak * values["tile_rate"])
    )
    operand_rate = values["operand_rate"] * 1e-3 * limits.operand_peak / per_processor
    loading_ns = (tile_m * item + tile_n * limits.kept_bytes) * inner / operand_rate
    storing_ns = tile_m * tile_n * result * values["store_rate"] * per_processor / memory
    stepping_ns = inner / (_STEP_BYTES / item) * values.get("step_ns", 0.0)
    tile_ns = at_once(arithmetic_ns, loading_ns, stepping_ns)
    tile_ns = tile_ns + values["prologue_ns"] + storing_ns

    is_split = split > 1
    traffic = split * m * n * _SUM_BYTES * values.get("split_traffic", 0.0)
    partial_bytes = np.where(is_split, traffic, 0)
    operand_bytes = item * m * k + limits.kept_bytes * n * k
    moved_bytes = batch * (operand_bytes + result * m * n + partial_bytes)
    waves_ns = waves * tile_ns + np.where(is_split, values.get("split_ns", 0.0), 0)
    body_ns = at_once(waves_ns, moved_bytes / memory)

    load = waves * arithmetic_ns / body_ns
    body_ns = body_ns * (
        1 + values["throttle"] * load * body_ns / (body_ns + values["throttle_after_ns"])
    )
    best_ns: Float64s = values["launch_ns"] + body_ns.min(axis=1)
    if limits.is_quantised:
        # Measured with the quantisation of one operand: 2 bytes read, 1 written.
        best_ns = best_ns + values["quantise_rate"] * 3 * (batch * m * k)[:, 0] / memory
        left = np.where(k % _SCALED_AT_ONCE > 0, values.get("scales_left", 0.0), 0.0)
        best_ns = best_ns + values.get("row_ns", 0.0) * (batch * m * (1 + left))[:, 0]
    return best_ns


def _result_bytes(item_bytes: float) -> float:
    return max(item_bytes, _LEAST_RESULT_BYTES)

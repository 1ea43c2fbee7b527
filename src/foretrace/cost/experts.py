"""How long the experts of one rank take as fused kernels: two grouped products and what is around.

Rows of tokens are put in order of their experts, multiplied by each expert's weights as one grouped
product, activated, multiplied again, and each token's results are weighed and summed. A grouped
product is costed as products are (`gemm`): tiles in waves, no less than the traffic, the best of a
few tile shapes; its tiles are those of every expert by itself, so that many experts with few rows
fill tiles badly, and weights of every expert with a row are read once.

How rows are spread over experts is a few bins of equally loaded experts (`rows_of_bins`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from foretrace.base import FORMAT_BY_NAME, Bools, Float64s, Int64s, MachineError
from foretrace.cost.fitting import Constant, at_once, in_turn
from foretrace.cost.operand_formats import kept_bytes, operand_formats
from foretrace.machine import Chip

CONSTANTS = (
    Constant("launch_ns", "ns", "all kernels' starts, and sorting rows", 1_000, 200_000, 20_000),
    Constant("expert_ns", "ns", "each expert of the rank", 0.1, 3_000, 20),
    Constant("choice_ns", "ns", "each expert that a token chose", 1e-4, 10, 0.02),
    Constant("tile_rate", "", "arithmetic inside a tile, of the peak", 0.1, 1.0, 0.7),
    Constant("prologue_ns", "ns", "first loads of a tile, not hidden", 20, 5_000, 500),
    Constant("memory_rate", "", "device memory, of the data sheet's bandwidth", 0.2, 1.0, 0.8),
    Constant("operand_rate", "B/kFLOP", "level 2 to processors, per peak arithmetic", 3, 300, 18),
    Constant("move_rate", "", "rows put in order, of the bandwidth", 0.02, 1.2, 0.5),
    Constant("token_rate", "", "tokens' sums written, of the bandwidth", 0.02, 1.2, 0.5),
    Constant("fluidity", "", "how far the last wave is shared out; 0: not", 0.01, 30, 0.5),
    Constant("throttle", "", "lower clock under lasting load", 0.01, 0.6, 0.15),
)
# What Triton compiles takes sizes that 16 divides apart from others, which it loads number by
# number: triton-lang/triton, `JITFunction`, specialisation of arguments by divisibility.
SERVED_CONSTANTS = (
    *CONSTANTS,
    Constant("uneven", "", "widths that 16 does not divide, of the products' time", 1e-3, 20, 0.1),
)
SERVED = "served"  # the kind of kernels of serving libraries other than CUTLASS's and DeepGEMM's
# Those that unpack weights of 4 bits: they issue Ampere's instructions on every chip (Frantar et
# al., "MARLIN", arXiv:2408.11743; vllm-project/vllm, csrc/moe/marlin_moe_wna16, mma.m16n8k16).
MARLIN = "marlin"

_TILES = np.array(
    [(rows, columns) for rows in (16, 32, 64, 128) for columns in (64, 128, 256)], np.float64
)
_DIVIDED_BY = 16
_MADE_BYTES = 2  # tokens and results are 16-bit numbers
_NUM_BINS = 12
_DRAWS = 64
_EVEN = 0  # in place of an exponent


@dataclass(frozen=True)
class ExpertShapes:
    """Experts of one rank, and the tokens that are routed, all of one number format."""

    tokens: Int64s  # int64[rows], routed over all experts of all ranks
    chosen: Int64s  # int64[rows], experts of a token
    experts: Int64s  # int64[rows], of all ranks
    ranks: Int64s  # int64[rows], that divide the experts; the most loaded one is costed
    hidden: Int64s  # int64[rows]
    width: Int64s  # int64[rows], of an expert on this rank
    is_gated: Bools  # bool[rows]
    skew: Int64s  # int64[rows], exponent of the power law of loads in hundredths; 0: even
    dtype: str

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.tokens)

    @classmethod
    def of(cls, sizes: Int64s, dtype: str) -> ExpertShapes:
        """Shapes from int64[rows, 8]: the columns in order."""
        tokens, chosen, experts, ranks, hidden, width, gated, skew = sizes.T
        return cls(tokens, chosen, experts, ranks, hidden, width, gated == 1, skew, dtype)

    @cached_property
    def loads(self) -> tuple[Float64s, Float64s]:
        """Experts of each bin and rows of each of them, both float64[rows, bins]."""
        columns = (self.tokens, self.chosen, self.experts, self.ranks, self.skew)
        counts, rows = np.zeros((2, len(self), _NUM_BINS))
        for at, sizes in enumerate(np.stack(columns, axis=1).tolist()):
            for bin_at, (count, mean) in enumerate(rows_of_bins(*sizes[:3], (sizes[3], sizes[4]))):
                counts[at, bin_at], rows[at, bin_at] = count, mean
        return counts, rows

    @property
    def num_rows(self) -> Float64s:
        """Rows of all experts of the rank; float64[rows]."""
        counts, rows = self.loads
        total: Float64s = (counts * rows).sum(axis=1)
        return total

    @property
    def num_flops(self) -> Float64s:
        """Arithmetic of the products; float64[rows]."""
        flops: Float64s = 2.0 * self.num_rows * self.hidden * self.width * (2 + self.is_gated)
        return flops

    @property
    def num_bytes(self) -> Float64s:
        """Least traffic: weights of experts with a row once, rows in and out; float64[rows]."""
        counts, rows = self.loads
        used = (counts * np.minimum(rows, 1)).sum(axis=1)
        weights = used * self.hidden * self.width * (2 + self.is_gated)
        kept = FORMAT_BY_NAME[operand_formats(self.dtype)[1]].num_bytes
        moved: Float64s = weights * kept + 2 * _MADE_BYTES * self.num_rows * self.hidden
        return moved


@lru_cache(maxsize=65_536)
def rows_of_bins(
    tokens: int, chosen: int, experts: int, division: tuple[int, int]
) -> tuple[tuple[int, float], ...]:
    """Experts of the most loaded rank in bins of alike ones: how many, and rows of each.

    Uneven loads are the mean of many draws by a power law (`power_law_rows`).

    Args:
        tokens: that are routed.
        chosen: experts of each.
        experts: of all ranks.
        division: ranks, and the power law's exponent in hundredths; 0: even.
    """
    ranks, skew = division
    local, total = experts // ranks, tokens * chosen
    if skew == _EVEN:
        if total >= experts:
            return ((local, total / experts),)
        used = min(local, max(1, round(total / ranks)))
        return ((used, 1.0),)
    drawn = power_law_rows((tokens, chosen, experts), skew / 100, num_draws=_DRAWS)
    loads = drawn.reshape(_DRAWS, ranks, local)
    worst = loads[np.arange(_DRAWS), loads.sum(axis=2).argmax(axis=1)]
    rows = np.sort(worst, axis=1)[:, ::-1].mean(axis=0)
    edges = np.unique(np.round(np.geomspace(1, local + 1, _NUM_BINS + 1)).astype(int)) - 1
    if local <= _NUM_BINS:
        edges = np.arange(local + 1)
    return tuple(
        (int(end - start), float(rows[start:end].mean())) for start, end in pairwise(edges)
    )


def power_law_rows(
    sizes: tuple[int, int, int], exponent: float, *, num_draws: int, seed: int = 0
) -> Float64s:
    """Rows of each expert, float64[draws, experts], drawn by a power law.

    Between one row and 0.8 of all tokens, as public tables draw theirs (ai-dynamo/aiconfigurator,
    collector/helper.py, with exponents 1.01 and 1.2). What is above all tokens is left out.

    Args:
        sizes: tokens that are routed, experts of each, experts of all ranks.
        exponent: of the law; 1 falls between two cases and is taken as slightly more.
        num_draws: how many.
        seed: of them.
    """
    tokens, chosen, experts = sizes
    total = tokens * chosen
    least, most = (1.0, max(0.8 * tokens, 1.0001)) if total > experts else (0.01, 2.0)
    power = 1 - exponent or -1e-6
    share = np.random.default_rng(seed).random((num_draws, experts))
    drawn = (share * (most**power - least**power) + least**power) ** (1 / power)
    rows: Float64s = np.minimum(drawn / drawn.sum(axis=1, keepdims=True) * total, tokens)
    return rows


def experts_ns(shapes: ExpertShapes, chip: Chip, values: Mapping[str, float]) -> Float64s:
    """Duration of each row, float64[rows], in ns.

    Raises:
        MachineError: if the chip's description lacks the peak or the number of processors.
    """
    operands, _ = operand_formats(shapes.dtype)
    if chip.peak_flops_per_ns(operands) is None or chip.num_processors is None:
        raise MachineError(
            f"chip {chip.name!r} gives no {operands} peak or no num_processors, which the cost of "
            "experts needs: add them to its file."
        )
    loads = shapes.loads
    up = (1 + shapes.is_gated) * shapes.width
    products_ns = _grouped_ns(shapes, loads, (up, shapes.hidden), chip=chip, values=values)
    products_ns += _grouped_ns(
        shapes, loads, (shapes.width, shapes.hidden)[::-1], chip=chip, values=values
    )
    is_uneven = shapes.width % _DIVIDED_BY > 0
    products_ns = products_ns * np.where(is_uneven, 1 + values.get("uneven", 0.0), 1.0)
    total = (loads[0] * loads[1]).sum(axis=1)
    item = FORMAT_BY_NAME[operands].num_bytes
    moved = total * shapes.hidden * (2 * _MADE_BYTES + item)
    moved += total * shapes.width * (2.0 * (1 + shapes.is_gated) + 2 * item)
    written = shapes.tokens * shapes.hidden * float(_MADE_BYTES)
    moving_ns = (moved / values["move_rate"] + written / values["token_rate"]) / (
        chip.memory_bytes_per_ns
    )
    local = shapes.experts / shapes.ranks
    choosing_ns = values["choice_ns"] * shapes.tokens * shapes.chosen
    fixed_ns = values["launch_ns"] + values["expert_ns"] * local + choosing_ns
    duration_ns: Float64s = np.asarray(fixed_ns + products_ns + moving_ns, np.float64)
    return duration_ns


def _grouped_ns(
    shapes: ExpertShapes,
    loads: tuple[Float64s, Float64s],
    matrix: tuple[Int64s, Int64s],
    *,
    chip: Chip,
    values: Mapping[str, float],
) -> Float64s:
    """One grouped product: rows of each expert by its weights of so many columns and inner."""
    operands = FORMAT_BY_NAME[operand_formats(shapes.dtype)[0]]
    peak, processors = chip.peak_flops_per_ns(operands.name) or 1.0, chip.num_processors or 1
    counts, rows = (one[:, :, None] for one in loads)
    columns, inner = (size.astype(np.float64)[:, None] for size in matrix)
    tile_rows, tile_columns = _TILES.T[:, None]
    has_row = np.minimum(1, rows)
    tiles = (counts * has_row * np.ceil(np.maximum(rows, 1) / tile_rows[None])).sum(axis=1)
    waves = in_turn(tiles * np.ceil(columns / tile_columns) / processors, values["fluidity"])
    arithmetic_ns = 2 * tile_rows * tile_columns * inner * processors / (peak * values["tile_rate"])
    fed = values["operand_rate"] * 1e-3 * (chip.peak_flops_per_ns("bf16") or peak) / processors
    weights = kept_bytes(shapes.dtype)
    loading_ns = (tile_rows * operands.num_bytes + tile_columns * weights) * inner / fed
    tile_ns = at_once(arithmetic_ns, loading_ns) + values["prologue_ns"]
    used = (counts * has_row).sum(axis=1)
    total = (counts * rows).sum(axis=1)
    moved = used * columns * inner * weights
    moved = moved + total * (inner * operands.num_bytes + columns * _MADE_BYTES)
    body_ns = at_once(waves * tile_ns, moved / (chip.memory_bytes_per_ns * values["memory_rate"]))
    body_ns = body_ns * (1 + values["throttle"] * waves * arithmetic_ns / body_ns)
    least_ns: Float64s = body_ns.min(axis=1)
    return least_ns

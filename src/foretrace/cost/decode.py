"""How long attention of new tokens takes: one query per sequence against all keys kept so far.

Each block of a processor goes along the keys of one key head for up to 64 of its queries' heads;
few sequences are cut along their keys into as many pieces as fill the chip, and pieces are
combined after. A block takes the longer of drawing keys from memory and working on them; all of it
takes no less than reading what is kept once, at the rate of the level 2 cache as far as that holds
it. Values may be part of the keys (latent attention); both may lie in pages.

Some libraries work on each head of queries alone where heads do not share keys, or where more than
32 do: then what is kept is read head by head, from the cache.

Source:
    Dao et al., "Flash-Decoding for long-context inference" (2023); DeepSeek-AI, "DeepSeek-V2",
    arXiv:2405.04434, section 2.1, for keys and values as one latent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from foretrace.base import FORMAT_BY_NAME, Bools, Float64s, Int64s, MachineError
from foretrace.cost.fitting import Constant, at_once, in_turn
from foretrace.machine import Chip

CONSTANTS = (
    Constant("launch_ns", "ns", "from one kernel to the next", 500, 60_000, 8_000),
    Constant("memory_rate", "", "device memory, of the data sheet's bandwidth", 0.3, 1.0, 0.92),
    Constant("cache_rate", "", "level 2 cache, of what memory reaches", 1, 12, 4),
    Constant("fill_ns", "ns", "until memory is drawn from at its rate", 100, 60_000, 10_000),
    Constant("processor_rate", "", "what one processor draws, of its share", 0.3, 8, 2),
    Constant("matrix_rate", "", "arithmetic of the products, of the peak", 0.02, 1, 0.5),
    Constant("row_cycles", "cycles", "softmax of one key for one row of queries", 1e-4, 5, 0.05),
    Constant("block_cycles", "cycles", "start and end of a block", 50, 20_000, 1_500),
    Constant("size_cycles", "cycles", "the same, for each number of a head", 1e-3, 60, 1),
    Constant(
        "sequence_cycles", "cycles", "a block's search for its sequence, each", 1e-3, 200, 0.1
    ),
    Constant("further_rows", "", "each further 64 rows of queries, of a block", 0.02, 1, 0.9),
    Constant("tiles_read", "", "what further tiles of 16 heads read again", 1e-3, 1.5, 0.5),
    Constant("straddled", "", "keys beside a window that blocks work on", 1, 256, 32),
    Constant("split_ns", "ns", "a second kernel that combines pieces", 100, 1e8, 3_000),
    Constant("combine", "", "partial results read and written, of their size", 0.01, 20, 1),
    Constant("fluidity", "", "how far the last wave is shared out; 0: not", 0.01, 30, 0.5),
    Constant("beside", "", "traffic before and after (rotation), of queries", 0.01, 30, 2),
)
# Of a library that has kernels of one head alone, too.
OPERATOR_CONSTANTS = (
    *CONSTANTS,
    Constant("most_waves", "", "pieces of all sequences, at most", 0.3, 30, 5),
    Constant("piece_keys", "", "keys of a piece, at least", 16, 4_096, 128),
    Constant("uneven", "", "head sizes of no power of two, of a block's time", 1e-3, 3, 0.1),
    Constant("head_cycles", "cycles", "16 numbers of a key for a head alone", 1e-4, 3, 0.2),
    Constant("head_block_cycles", "cycles", "a block of one head alone", 50, 20_000, 1_500),
    Constant("head_split_ns", "ns", "combining pieces of one head alone", 50, 20_000, 1_500),
    Constant("head_waves", "", "pieces of heads alone, at most", 0.1, 30, 0.8),
    Constant("held", "", "blocks at once on a processor, whose keys are cached", 0.01, 64, 4),
)
OPERATOR = "operator"  # the kind of kernels of such a library

_PIECES = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256], np.float64)
_KEYS_AT_ONCE = 32
_ROWS_OF_BLOCK, _ROWS_AT_ONCE = 64, 16
_MOST_HEAD = 256  # numbers; above, a size is no question of powers of two
_QUERY_BYTES = 2  # queries and results are 16-bit numbers, whatever the keys are
_PARTIAL_BYTES = 8  # a partial result in 32 bit is written and read
_USUAL_CACHE = 126 << 20  # of a Blackwell, whose data sheet gives none: its chip files' neighbours'

# What the public tables show of TensorRT-LLM's kernels by chip: where heads that share keys are
# taken together (32, on Blackwell 16 of up to 128 numbers), that its Blackwell kernels take single
# heads like shared ones and cut by what pays, that latent attention's kernel before Hopper never
# cuts keys, and that Blackwell's reads the latents again for each 16 of less than 64 heads.
_MOST_SHARED, _MOST_SHARED_NEWER = 32, 16
_SMALL_HEAD = 128
_NEWER = "Blackwell"
_UNCUT = ("Volta", "Turing", "Ampere", "Ada")
_MANY_HEADS = 64
# vLLM's `flash_attn_max_num_splits_for_cuda_graph` and its largest captured batch, by default.
_FIXED_PIECES, _MOST_CAPTURED = 32, 512


class Cutting(IntEnum):
    """How a library cuts sequences along their keys."""

    BEST = 0  # into as many pieces as pay
    FILLED = 1  # into as many as fill the chip so often; it has kernels of one head alone, too
    FIXED = 2  # always into as many, for batches that graphs are captured of


@dataclass(frozen=True)
class DecodeShapes:
    """One new token of each of `batch` sequences, all with as many keys kept, in one format."""

    batch: Int64s  # int64[rows], sequences
    heads: Int64s  # int64[rows], of queries
    key_heads: Int64s  # int64[rows]
    head_size: Int64s  # int64[rows], numbers of a query and of a key
    value_size: Int64s  # int64[rows], numbers of a result
    kept_size: Int64s  # int64[rows], numbers kept of a token for a key head
    total_length: Int64s  # int64[rows], keys kept
    length: Int64s  # int64[rows], keys that a query sees: the last ones
    cutting: Int64s  # int64[rows], Cutting
    dtype: str  # of keys and values

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.batch)

    @classmethod
    def of(cls, sizes: Int64s, dtype: str) -> DecodeShapes:
        """Shapes from int64[rows, 9]: the columns in order."""
        batch, heads, key_heads, *numbers, total_length, length, cutting = sizes.T
        head_size, value_size, kept_size = numbers
        sizes_of_head = (head_size, value_size, kept_size)
        return cls(batch, heads, key_heads, *sizes_of_head, total_length, length, cutting, dtype)

    @property
    def may_go_by_head(self) -> Bools:
        """Whether the library has kernels of one head alone; bool[rows]."""
        by_head: Bools = self.cutting == Cutting.FILLED
        return by_head

    @property
    def is_latent(self) -> Bools:
        """Whether values are part of the keys; bool[rows]."""
        latent: Bools = self.kept_size < self.head_size + self.value_size
        return latent

    @property
    def num_flops(self) -> Float64s:
        """Arithmetic of the products; float64[rows]."""
        flops: Float64s = (2.0 * self.batch * self.heads * self.length) * (
            self.head_size + self.value_size
        )
        return flops

    @property
    def kept_bytes(self) -> Float64s:
        """What is kept of all tokens; float64[rows]."""
        numbers = (self.batch * self.key_heads * self.length * self.kept_size).astype(np.float64)
        return numbers * FORMAT_BY_NAME[self.dtype].num_bytes

    @property
    def query_bytes(self) -> Float64s:
        """Queries and results; float64[rows]."""
        numbers = self.batch * self.heads * (self.head_size + self.value_size)
        return numbers.astype(np.float64) * _QUERY_BYTES

    @property
    def num_bytes(self) -> Float64s:
        """Least traffic; float64[rows]."""
        return self.kept_bytes + self.query_bytes


def decode_ns(shapes: DecodeShapes, chip: Chip, values: Mapping[str, float]) -> Float64s:
    """Duration of each row, float64[rows], in ns.

    Raises:
        MachineError: if the chip's description lacks the peak, the clock or the processors.
    """
    peak = chip.peak_flops_per_ns("bf16")
    if peak is None or chip.num_processors is None or chip.cycles_per_ns is None:
        raise MachineError(
            f"chip {chip.name!r} gives no bf16 peak, no num_processors or no boost_clock, which "
            "the cost of attention of new tokens needs: add them to its file."
        )
    memory = chip.memory_bytes_per_ns * values["memory_rate"]
    blocks, block_ns, key_ns = _blocks(shapes, chip, peak=peak, values=values)
    pieces, is_set = _pieces(shapes, chip, values, blocks)
    keys = np.ceil(shapes.length[:, None] / pieces / _KEYS_AT_ONCE) * _KEYS_AT_ONCE
    is_empty = ~is_set & (pieces > 1) & (keys * (pieces - 1) >= shapes.length[:, None])
    straddled = np.where(shapes.total_length > shapes.length, values["straddled"], 0)
    waves = in_turn(blocks[:, None] * pieces / chip.num_processors, values["fluidity"])
    keys = keys + straddled[:, None] / pieces
    working_ns = waves * (block_ns[:, None] + keys * key_ns[:, None])
    partial = shapes.batch * shapes.heads * shapes.value_size * float(_PARTIAL_BYTES)
    together = _goes_together(shapes, chip)
    start_ns = np.where(together, values["split_ns"], values.get("head_split_ns", 0.0))[:, None]
    combining_ns = start_ns + values["combine"] * partial[:, None] * pieces / (2 * memory)
    body_ns = at_once(working_ns, _reading_ns(shapes, chip, values)[:, None])
    body_ns = body_ns + np.where(pieces > 1, combining_ns, 0)
    least_ns: Float64s = np.where(is_empty, np.inf, body_ns).min(axis=1)
    return values["launch_ns"] + least_ns + values["beside"] * shapes.query_bytes / memory


def _pieces(
    shapes: DecodeShapes, chip: Chip, values: Mapping[str, float], blocks: Float64s
) -> tuple[Float64s, Bools]:
    """Numbers of pieces to try, float64[rows, tries], and bool[rows, 1] whether a row's is set."""
    is_fixed = shapes.cutting == Cutting.FIXED
    is_uncut = shapes.is_latent & (chip.architecture in _UNCUT)
    is_filled = shapes.may_go_by_head
    if _is_newer(chip):
        is_filled = is_filled & ~_goes_together(shapes, chip)
    is_set = is_fixed | is_uncut | is_filled
    tries = _PIECES[:1] if is_set.all() else _PIECES
    pieces = np.repeat(tries[None, :], len(shapes), axis=0)
    pieces[is_uncut] = 1
    pieces[is_fixed] = np.where(shapes.batch[is_fixed, None] <= _MOST_CAPTURED, _FIXED_PIECES, 1)
    if is_filled.any():
        pieces[is_filled] = _filling(shapes, chip, values, blocks)[is_filled, None]
    return pieces, is_set[:, None]


def _filling(
    shapes: DecodeShapes, chip: Chip, values: Mapping[str, float], blocks: Float64s
) -> Float64s:
    """Pieces that fill the chip so often; kernels of 16-bit keys count those before a window."""
    together = _goes_together(shapes, chip)
    most = np.where(together, values["most_waves"], values["head_waves"])
    is_wide = FORMAT_BY_NAME[shapes.dtype].num_bytes >= _QUERY_BYTES
    length = shapes.total_length if is_wide else shapes.length
    filling = np.minimum(most * (chip.num_processors or 1) / blocks, length / values["piece_keys"])
    pieces: Float64s = np.maximum(1, filling)
    return pieces


def _is_newer(chip: Chip) -> bool:
    return chip.architecture.startswith(_NEWER)


def _goes_together(shapes: DecodeShapes, chip: Chip) -> Bools:
    """Whether a block works on all heads of a key head."""
    group = shapes.heads / shapes.key_heads
    is_newer = _is_newer(chip)
    is_narrow = is_newer & (shapes.head_size <= _SMALL_HEAD)
    most = np.where(is_narrow, _MOST_SHARED_NEWER, _MOST_SHARED)
    together: Bools = ~shapes.may_go_by_head | (((group > 1) | is_newer) & (group <= most))
    return together


def _reading_ns(shapes: DecodeShapes, chip: Chip, values: Mapping[str, float]) -> Float64s:
    """What is kept, read once: from memory what the level 2 cache does not hold."""
    memory = chip.memory_bytes_per_ns * values["memory_rate"]
    from_memory = _distinct_bytes(shapes, chip, values)
    from_memory = from_memory * np.clip(from_memory / (chip.l2_bytes or _USUAL_CACHE), 0, 1)
    cached_ns = shapes.kept_bytes / (memory * values["cache_rate"])
    reading_ns = at_once(from_memory / memory, cached_ns)
    if _is_newer(chip):
        tiles = np.where(shapes.heads < _MANY_HEADS, np.ceil(shapes.heads / _ROWS_AT_ONCE), 1)
        again = np.where(shapes.is_latent, values["tiles_read"] * (tiles - 1), 0)
        reading_ns = reading_ns * (1 + again)
    filling_ns = -np.expm1(-reading_ns / values["fill_ns"]) * values["fill_ns"]
    together_ns: Float64s = reading_ns + filling_ns
    return together_ns


def _distinct_bytes(shapes: DecodeShapes, chip: Chip, values: Mapping[str, float]) -> Float64s:
    """What is kept, less where a benchmark's keys and values lie in the same memory.

    The public tables of one library hold more bytes than their chip's memory can deliver, wherever
    heads share keys by powers of two: keys and values of its benchmark are one allocation. Kernels
    of one head alone read values after all keys, and find them cached where they are few.
    """
    group = shapes.heads / shapes.key_heads
    is_small = shapes.may_go_by_head & (shapes.head_size <= _SMALL_HEAD)
    is_one = is_small & (group > 1) & (group <= _MOST_SHARED) & (np.log2(group) % 1 == 0)
    if _is_newer(chip):
        is_one = is_small & (group > 1) & (shapes.head_size == _SMALL_HEAD)
    held = (chip.num_processors or 0) * values.get("held", 0.0) * shapes.length * shapes.head_size
    held = held * FORMAT_BY_NAME[shapes.dtype].num_bytes
    again = np.clip(held / (chip.l2_bytes or _USUAL_CACHE), 0, 1)
    kept = shapes.kept_bytes
    alone = np.where(is_small & (group == 1), kept * (1 + again) / 2, kept)
    distinct: Float64s = np.where(is_one, kept / 2, alone)
    return distinct


def _blocks(
    shapes: DecodeShapes, chip: Chip, *, peak: float, values: Mapping[str, float]
) -> tuple[Float64s, Float64s, Float64s]:
    """Blocks before sequences are cut, the start and end of one, and its time for one key."""
    processors, clock = chip.num_processors or 1, chip.cycles_per_ns or 1.0
    together = _goes_together(shapes, chip)
    group = shapes.heads / shapes.key_heads
    tiles = np.ceil(group / _ROWS_OF_BLOCK)
    rows = np.ceil(group / _ROWS_AT_ONCE) * _ROWS_AT_ONCE / tiles
    tiles = 1 + values["further_rows"] * (tiles - 1)
    heads = np.where(together, shapes.key_heads * tiles, shapes.heads)
    numbers = shapes.head_size + shapes.value_size
    products_ns = 2 * rows * numbers * processors / (peak * values["matrix_rate"])
    working_ns = np.where(
        together,
        products_ns + rows * values["row_cycles"] / clock,
        values.get("head_cycles", 0.0) * numbers / 16 / clock,
    )
    item = FORMAT_BY_NAME[shapes.dtype].num_bytes
    rate = chip.memory_bytes_per_ns * values["memory_rate"] * values["processor_rate"] / processors
    distinct = _distinct_bytes(shapes, chip, values) / shapes.kept_bytes
    drawing_ns = shapes.kept_size * item * distinct / rate
    is_cached = ~together & (group > 1)
    drawing_ns = drawing_ns / np.where(is_cached, values["cache_rate"], 1)
    cycles = values["block_cycles"] + values["size_cycles"] * shapes.head_size
    cycles = np.where(together, cycles, values.get("head_block_cycles", 0.0))
    cycles = cycles + values["sequence_cycles"] * shapes.batch
    is_uneven = (shapes.head_size <= _MOST_HEAD) & (np.log2(shapes.head_size) % 1 != 0)
    slower = np.where(is_uneven, 1 + values.get("uneven", 0.0), 1.0)
    blocks: Float64s = (shapes.batch * heads).astype(np.float64)
    return blocks, slower * cycles / clock, slower * at_once(working_ns, drawing_ns)

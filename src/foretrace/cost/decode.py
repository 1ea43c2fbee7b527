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

import numpy as np

from foretrace.base import FORMAT_BY_NAME, Bools, Float64s, Int64s, MachineError
from foretrace.cost.fitting import Constant, at_once
from foretrace.machine import Chip

CONSTANTS = (
    Constant("launch_ns", "ns", "from one kernel to the next", 500, 60_000, 8_000),
    Constant("memory_rate", "", "device memory, of the data sheet's bandwidth", 0.3, 1.0, 0.85),
    Constant("cache_rate", "", "level 2 cache, of what memory reaches", 1, 12, 2),
    Constant("processor_rate", "", "what one processor draws, of its share", 0.3, 8, 2),
    Constant("matrix_rate", "", "arithmetic of the products, of the peak", 0.02, 1, 0.5),
    Constant("row_cycles", "cycles", "softmax of one key for one row of queries", 1e-4, 5, 0.05),
    Constant("block_cycles", "cycles", "start and end of a block", 50, 20_000, 1_500),
    Constant("further_rows", "", "each further 64 rows of queries, of a block", 0.02, 1, 0.9),
    Constant("split_ns", "ns", "a second kernel that combines pieces", 100, 1e8, 3_000),
    Constant("combine", "", "partial results read and written, of their size", 0.01, 20, 1),
    Constant("fluidity", "", "how far the last wave is shared out; 0: not", 0.01, 30, 0.5),
    Constant("beside", "", "traffic before and after (rotation), of queries", 0.01, 30, 2),
    Constant("head_cycles", "cycles", "16 numbers of a key for a head alone", 1e-4, 3, 0.2),
    Constant("head_block_cycles", "cycles", "a block of one head alone", 50, 20_000, 1_500),
    Constant("head_split_ns", "ns", "combining pieces of one head alone", 50, 20_000, 1_500),
    Constant("joined", "", "keys and values that benchmarks keep as one, read", 0.3, 1, 0.9),
    Constant("held", "", "blocks at once on a processor, whose keys are cached", 0.01, 64, 4),
)

_PIECES = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256], np.float64)
_KEYS_AT_ONCE = 32
_ROWS_OF_BLOCK, _ROWS_AT_ONCE = 64, 16
_MOST_SHARED = 32  # heads on one key head that kernels which may go head by head take together
_MOST_JOINED_HEAD = 128
_QUERY_BYTES = 2  # queries and results are 16-bit numbers, whatever the keys are
_PARTIAL_BYTES = 8  # a partial result in 32 bit is written and read
_USUAL_CACHE = 126 << 20  # of a Blackwell, whose data sheet gives none: its chip files' neighbours'


@dataclass(frozen=True)
class DecodeShapes:
    """One new token of each of `batch` sequences, all with as many keys kept, in one format."""

    batch: Int64s  # int64[rows], sequences
    heads: Int64s  # int64[rows], of queries
    key_heads: Int64s  # int64[rows]
    head_size: Int64s  # int64[rows], numbers of a query and of a key
    value_size: Int64s  # int64[rows], numbers of a result
    kept_size: Int64s  # int64[rows], numbers kept of a token for a key head
    length: Int64s  # int64[rows], keys that a query sees
    may_go_by_head: Bools  # bool[rows], whether the library has kernels of one head alone
    dtype: str  # of keys and values

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.batch)

    @classmethod
    def of(cls, sizes: Int64s, dtype: str) -> DecodeShapes:
        """Shapes from int64[rows, 8]: the columns in order."""
        batch, heads, key_heads, *numbers, length, by_head = sizes.T
        head_size, value_size, kept_size = numbers
        sizes_of_head = (head_size, value_size, kept_size)
        return cls(batch, heads, key_heads, *sizes_of_head, length, by_head == 1, dtype)

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
    read = shapes.kept_bytes * _read_share(shapes, chip, values)
    cached = np.clip(1 - read / (chip.l2_bytes or _USUAL_CACHE), 0, 1)
    reading_ns = read * (1 - cached + cached / values["cache_rate"]) / memory
    together = _goes_together(shapes)
    pieces = _PIECES[None, :]
    keys = np.ceil(shapes.length[:, None] / pieces / _KEYS_AT_ONCE) * _KEYS_AT_ONCE
    blocks, block_ns, key_ns = _blocks(shapes, chip, peak=peak, values=values)
    waves = blocks[:, None] * pieces / chip.num_processors
    sharing = values["fluidity"] / (1 + values["fluidity"])
    waves = np.maximum(1, (1 - sharing) * np.ceil(waves) + sharing * waves)
    working_ns = waves * (block_ns[:, None] + keys * key_ns[:, None])
    partial = shapes.batch * shapes.heads * shapes.value_size * float(_PARTIAL_BYTES)
    start_ns = np.where(together, values["split_ns"], values["head_split_ns"])[:, None]
    combining_ns = start_ns + values["combine"] * partial[:, None] * pieces / (2 * memory)
    body_ns = at_once(working_ns, reading_ns[:, None]) + np.where(pieces > 1, combining_ns, 0)
    is_empty = (pieces > 1) & (keys * (pieces - 1) >= shapes.length[:, None])
    least_ns: Float64s = np.where(is_empty, np.inf, body_ns).min(axis=1)
    return values["launch_ns"] + least_ns + values["beside"] * shapes.query_bytes / memory


def _goes_together(shapes: DecodeShapes) -> Bools:
    """Whether a block works on all heads of a key head."""
    group = shapes.heads / shapes.key_heads
    together: Bools = ~shapes.may_go_by_head | ((group > 1) & (group <= _MOST_SHARED))
    return together


def _read_share(shapes: DecodeShapes, chip: Chip, values: Mapping[str, float]) -> Float64s:
    """What is read of what is kept: less than 1 where a benchmark keeps one copy of both.

    The public tables of one library hold more bytes than their chip's memory can deliver, wherever
    heads share keys by powers of two: keys and values of its benchmark are one allocation. Kernels
    of one head alone read values after all keys, and find them cached where they are few.
    """
    group = shapes.heads / shapes.key_heads
    is_small = shapes.may_go_by_head & (shapes.head_size <= _MOST_JOINED_HEAD)
    is_power = is_small & (group > 1) & (group <= _MOST_SHARED) & (np.log2(group) % 1 == 0)
    item = FORMAT_BY_NAME[shapes.dtype].num_bytes
    again = (chip.num_processors or 0) * values["held"] * shapes.length * shapes.head_size * item
    again = np.clip(again / (chip.l2_bytes or _USUAL_CACHE), 0, 1)
    alone = np.where(is_small & (group == 1), (1 + again) / 2, 1.0)
    share: Float64s = np.where(is_power, values["joined"], alone)
    return share


def _blocks(
    shapes: DecodeShapes, chip: Chip, *, peak: float, values: Mapping[str, float]
) -> tuple[Float64s, Float64s, Float64s]:
    """Blocks before sequences are cut, the start and end of one, and its time for one key."""
    processors, clock = chip.num_processors or 1, chip.cycles_per_ns or 1.0
    together = _goes_together(shapes)
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
        values["head_cycles"] * numbers / 16 / clock,
    )
    item = FORMAT_BY_NAME[shapes.dtype].num_bytes
    rate = chip.memory_bytes_per_ns * values["memory_rate"] * values["processor_rate"] / processors
    drawing_ns = shapes.kept_size * item * _read_share(shapes, chip, values) / rate
    is_cached = ~together & (group > 1)
    drawing_ns = drawing_ns / np.where(is_cached, values["cache_rate"], 1)
    cycles = np.where(together, values["block_cycles"], values["head_block_cycles"])
    blocks: Float64s = (shapes.batch * heads).astype(np.float64)
    return blocks, cycles / clock, at_once(working_ns, drawing_ns)

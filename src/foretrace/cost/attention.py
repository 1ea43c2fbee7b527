"""How long fused attention takes on a GPU: blocks of query rows against all their keys.

Each processor takes 128 query rows of one head at a time and goes along the keys: two matrix
products per pair of query and key, and the exponential of the softmax, which other units work
out. With a causal mask a block sees the keys before it and its own diagonal. The form follows
FlashAttention (Dao et al., arXiv:2205.14135 and arXiv:2307.08691); constants are fitted, for
each kind of kernel apart, and for the backward pass apart. Rows of one launch (sequences of
several lengths, packed) share its waves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.base import FORMAT_BY_NAME, Bools, Float64s, Int64s, MachineError
from foretrace.cost.fitting import Constant, at_once, in_turn
from foretrace.machine import Chip

# Kinds of kernels: what is newest on a chip, FlashAttention 2, which PyTorch brings, and cuDNN's,
# which PyTorch and Transformer Engine call where they can.
FLASH, PROFILED, CUDNN = "flash", "flash2", "cudnn"
# Of encoders: heads that an instruction divides evenly, and others, which run in kernels of another
# kind.
EVEN, UNEVEN = "even", "uneven"
CONSTANTS = (
    Constant("launch_ns", "ns", "from one kernel to the next", 500, 30_000, 5_000),
    Constant("matrix_rate", "", "arithmetic of the products, of the peak", 0.1, 1.0, 0.7),
    Constant(
        "softmax_cycles", "cycles", "exponential of one score, one processor", 1e-4, 0.5, 0.02
    ),
    Constant("block_cycles", "cycles", "start and end of a block of rows", 10, 50_000, 2_500),
    Constant("memory_rate", "", "device memory, of the data sheet's bandwidth", 0.4, 0.95, 0.8),
    Constant("fluidity", "", "how far the last wave is shared out; 0: not", 1e-3, 50, 0.5),
    Constant("diagonal", "", "keys beyond the mask that a block still works on", 0.3, 3, 1),
    Constant("uneven", "", "cost of a head size that is no multiple of 32", 1e-3, 1, 0.2),
    Constant("wide", "", "cost of head sizes above 128, whose blocks are cut", 1e-3, 3, 0.1),
    Constant(
        "beside", "", "traffic before and after (rotation, cache), of the inputs", 0.01, 8, 0.3
    ),
)
# Encoders' kernels take heads in turn: once keys and values of all of them are more than the
# level 2 cache holds, each block of rows reads them from memory.
ENCODER_CONSTANTS = (
    *CONSTANTS,
    Constant("again", "", "keys beyond the cache that each block of rows reads", 0.001, 1.5, 0.2),
)

_BLOCK_ROWS = 128
# Blocks of heads above 256 numbers have fewer rows of queries, for want of registers: 32 of what
# Triton compiles (sgl-project/sglang, triton_ops/extend_attention.py, block sizes by head size).
_BROAD_HEAD, _BROAD_ROWS = 256, 32
_LEAST_ROWS = 64
_HEAD_STEP = 32
_WIDE_HEAD = 128
# Results of 2**x in a clock on one processor of all chips that constants were fitted to: CUDA C++
# Programming Guide, throughput of arithmetic instructions.
_USUAL_EXPONENTIALS = 16
# FLOPs per pair and unit of head size: two products forward; five backward, the scores again.
_FORWARD_FLOPS = 4.0
_BACKWARD_FLOPS = 10.0


@dataclass(frozen=True)
class AttentionShapes:
    """Attention of `length` queries over `key_length` keys, all of one number format.

    With a causal mask the last query sees all keys, as in a chunk of a longer prompt.
    """

    batch: Int64s  # int64[rows]
    heads: Int64s  # int64[rows], of queries
    key_heads: Int64s  # int64[rows]; fewer than `heads` where keys are shared
    head_size: Int64s  # int64[rows]
    length: Int64s  # int64[rows]
    key_length: Int64s  # int64[rows]
    is_causal: Bools  # bool[rows]
    dtype: str
    is_backward: bool = False
    launch: Int64s | None = None  # int64[rows], from 0; None: each row is a launch of its own

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.batch)

    @classmethod
    def of(cls, sizes: Int64s, dtype: str, *, is_backward: bool = False) -> AttentionShapes:
        """Shapes from int64[rows, 7]: the six sizes in order, and 1 where masked causally."""
        batch, heads, key_heads, head_size, length, key_length, causal = sizes.T
        return cls(
            batch=batch,
            heads=heads,
            key_heads=key_heads,
            head_size=head_size,
            length=length,
            key_length=key_length,
            is_causal=causal == 1,
            dtype=dtype,
            is_backward=is_backward,
        )

    @property
    def num_flops(self) -> Float64s:
        """Arithmetic of the products that the mask leaves; float64[rows]."""
        each = _BACKWARD_FLOPS if self.is_backward else _FORWARD_FLOPS
        full = each * self.batch * self.heads * self.length * self.key_length * self.head_size
        flops: Float64s = full.astype(np.float64) * np.where(self.is_causal, 1 - self.unseen, 1)
        return flops

    @property
    def block_rows(self) -> Int64s:
        """Rows of queries of a block; int64[rows]."""
        rows: Int64s = np.where(self.head_size > _BROAD_HEAD, _BROAD_ROWS, _BLOCK_ROWS)
        return rows

    @property
    def unseen(self) -> Float64s:
        """Share of all pairs that a causal mask hides; float64[rows]."""
        stairs = np.minimum(self.length, self.key_length).astype(np.float64)
        share: Float64s = stairs / (2 * self.key_length)
        return share

    @property
    def num_bytes(self) -> Float64s:
        """Least traffic: queries, keys, values and result once, backward twice; float64[rows]."""
        per_head = self.length * self.heads + self.key_length * self.key_heads
        times = 4 if self.is_backward else 2
        moved = times * self.batch * self.head_size * per_head
        return moved.astype(np.float64) * FORMAT_BY_NAME[self.dtype].num_bytes


def attention_ns(shapes: AttentionShapes, chip: Chip, values: Mapping[str, float]) -> Float64s:
    """Duration of each launch, float64[launches], in ns.

    Raises:
        MachineError: if the chip's description lacks the peak or the number of processors.
    """
    # Kernels that take 8-bit inputs work out the second product in them too.
    peak = chip.peak_flops_per_ns(shapes.dtype)
    if peak is None or chip.num_processors is None or chip.cycles_per_ns is None:
        raise MachineError(
            f"chip {chip.name!r} gives no {shapes.dtype} peak, no num_processors or no "
            "boost_clock, which the cost of attention needs: add them to its file."
        )
    faster = (chip.num_exponentials or _USUAL_EXPONENTIALS) / _USUAL_EXPONENTIALS
    in_cycles = values["softmax_cycles"] / (chip.cycles_per_ns * faster)
    score_ns = _score_ns(shapes, peak / chip.num_processors, values) + in_cycles
    whole_ns, mean_ns = _block_ns(shapes, score_ns, values)
    block_ns = values["block_cycles"] / chip.cycles_per_ns
    whole_ns, mean_ns = whole_ns + block_ns, mean_ns + block_ns
    blocks = shapes.batch * shapes.heads * np.ceil(shapes.length / shapes.block_rows)
    launch = np.arange(len(shapes)) if shapes.launch is None else shapes.launch
    all_blocks = np.bincount(launch, blocks)
    mean_ns = np.bincount(launch, blocks * mean_ns) / all_blocks
    longest_ns = np.zeros(len(all_blocks))
    np.maximum.at(longest_ns, launch, whole_ns)

    waves = all_blocks / chip.num_processors
    working_ns = np.maximum(
        in_turn(waves, values["fluidity"]) * mean_ns, np.where(waves < 1, longest_ns, 0)
    )

    memory = chip.memory_bytes_per_ns * values["memory_rate"]
    read_again = values.get("again", 0.0) * _beyond_cache(shapes, chip) * blocks
    moving_ns = np.bincount(launch, shapes.num_bytes + read_again) / memory
    together_ns = at_once(working_ns, moving_ns)
    duration_ns: Float64s = values["launch_ns"] + together_ns + values["beside"] * moving_ns
    return duration_ns


def _beyond_cache(shapes: AttentionShapes, chip: Chip) -> Float64s:
    """Bytes of one head's keys and values that the level 2 cache does not hold; float64[rows]."""
    item = FORMAT_BY_NAME[shapes.dtype].num_bytes
    kept = 2 * shapes.key_length * shapes.head_size * item
    missed = 1 - (chip.l2_bytes or 0) / np.maximum(1, shapes.batch * shapes.key_heads * kept)
    beyond: Float64s = (kept * np.clip(missed, 0, 1)).astype(np.float64)
    return beyond


def _score_ns(shapes: AttentionShapes, peak: float, values: Mapping[str, float]) -> Float64s:
    """Time of the products for one pair of query and key, on one processor of that peak."""
    padded = np.ceil(shapes.head_size / _HEAD_STEP) * _HEAD_STEP
    slower = np.where(padded == shapes.head_size, 1.0, 1 + values["uneven"])
    slower = slower * np.where(padded > _WIDE_HEAD, 1 + values["wide"], 1.0)
    flops = _BACKWARD_FLOPS if shapes.is_backward else _FORWARD_FLOPS
    score_ns: Float64s = flops * padded * slower / (peak * values["matrix_rate"])
    return score_ns


def _block_ns(
    shapes: AttentionShapes, score_ns: Float64s, values: Mapping[str, float]
) -> tuple[Float64s, Float64s]:
    """Time of the longest and of the mean block of each row's queries, on one processor."""
    keys = np.ceil(shapes.key_length / _BLOCK_ROWS) * _BLOCK_ROWS
    rows = np.minimum(shapes.block_rows, np.ceil(shapes.length / _LEAST_ROWS) * _LEAST_ROWS)
    whole_ns = rows * keys * score_ns
    seen = 1 - shapes.unseen + values["diagonal"] * shapes.block_rows / keys / 2
    return whole_ns, whole_ns * np.where(shapes.is_causal, seen, 1)

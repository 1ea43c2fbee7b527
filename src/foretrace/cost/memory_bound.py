"""How long operators take that memory bounds: a start, and their bytes at a rate of their kind.

A chip's memory streams best where every thread reads and writes in memory order; operands of
another shape or order (a broadcast, a transpose) and sums along rows reach less, rows picked by
index still less. Normalisation, softmax, losses and reductions read a row, wait for its sum and
go on: a longer start. The bytes are the least that the shapes demand (`foretrace.operators`).
What an operator before has just written is read from the chip's cache as far as that holds it, and
what goes in order is written there; threads that look for their addresses are no faster for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from foretrace.base import Float64s, Int8s, MachineError
from foretrace.cost.fitting import Constant
from foretrace.machine import Chip

CONSTANTS = (
    Constant("launch_ns", "ns", "start and end of a kernel", 300, 20_000, 1_500),
    Constant("rows_ns", "ns", "the same of one that sums along rows, besides", 100, 30_000, 1_500),
    Constant("stream_rate", "", "bytes in order, of the data sheet's bandwidth", 0.2, 1.2, 0.85),
    Constant("uneven_rate", "", "bytes of broadcasts and transposes, likewise", 0.05, 1.2, 0.5),
    Constant("rows_rate", "", "bytes of sums along rows, likewise", 0.05, 1.2, 0.6),
    Constant("gather_rate", "", "bytes of rows by index, likewise", 0.02, 1.2, 0.3),
    Constant("host_rate", "", "bytes to or from the host, of the link's bandwidth", 0.02, 1, 0.4),
    Constant("cache_rate", "", "bytes in order that the cache holds, of that rate", 1, 12, 1.7),
)
# Rows that are put in order are a part of fused experts' kernels: 0.64 of an A100's bandwidth,
# 0.61 of an H100's, 0.57 of an H200's, all with 16-bit numbers, or 0.7 of what streams reach.
# Source: `move_rate` of docs/cost/experts.md.
_OF_STREAMS = 0.7
_RATES = ("stream_rate", "uneven_rate", "rows_rate", "gather_rate", "host_rate")


class Access(IntEnum):
    """How an operator goes through memory; each has its own rate."""

    STREAM = 0  # all operands alike, in order: activations, dropout, optimizers, casts, fills
    UNEVEN = 1  # operands of other shapes or order: broadcasts, transposes, rotary, concatenation
    ROWS = 2  # sums along rows: normalisation, softmax, cross entropy, reductions
    GATHER = 3  # rows by index: embedding, EmbeddingBag, index, scatter
    HOST = 4  # over the link to the host
    PERMUTE = 5  # whole rows of a kilobyte and more by index: tokens in order of their experts
    STORAGE = 6  # from disks of the host


@dataclass(frozen=True)
class Movements:
    """Operators by the bytes they move."""

    num_bytes: Float64s  # float64[rows]
    access: Int8s  # int8[rows], Access

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.num_bytes)


def movement_ns(movements: Movements, chip: Chip, values: Mapping[str, float]) -> Float64s:
    """Duration of each row, float64[rows], in ns.

    Raises:
        MachineError: for a copy to the host, or from its disks, if the way is not described.
    """
    is_host = movements.access == Access.HOST
    if is_host.any() and chip.host_bytes_per_ns is None:
        raise MachineError(
            f"chip {chip.name!r} gives no host_bandwidth, which copies to the host need: add it "
            "to its file."
        )
    is_stored = movements.access == Access.STORAGE
    if is_stored.any() and chip.storage_bytes_per_ns is None:
        raise MachineError(
            f"chip {chip.name!r} has no share of a storage_bandwidth, which rows on disks need: "
            "add it to the file of its host, or keep tables in HBM and in memory of the host"
        )
    bandwidth = np.where(is_host, chip.host_bytes_per_ns or 1.0, chip.memory_bytes_per_ns)
    bandwidth = np.where(is_stored, chip.storage_bytes_per_ns or 1.0, bandwidth)
    # Of disks nothing was measured but what their data sheets say.
    rates = [*(values[name] for name in _RATES), _OF_STREAMS * values["stream_rate"], 1.0]
    rate = np.array(rates)[movements.access]
    start_ns = values["launch_ns"] + values["rows_ns"] * (movements.access == Access.ROWS)
    drawn = movements.num_bytes * _drawn(movements, chip, values.get("cache_rate", 1.0))
    duration_ns: Float64s = start_ns + drawn / (bandwidth * rate)
    return duration_ns


def _drawn(movements: Movements, chip: Chip, cache_rate: float) -> Float64s:
    """Share of each row's bytes that memory takes as long for as for all; float64[rows].

    The fuller the cache, the less of an operand is still in it when its reader gets there.
    """
    held = chip.l2_bytes or 1
    is_cached = np.isin(movements.access, (Access.STREAM, Access.PERMUTE))
    cached = np.where(is_cached, np.clip(1 - movements.num_bytes / held, 0, 1), 0)
    drawn: Float64s = 1 - cached + cached / cache_rate
    return drawn

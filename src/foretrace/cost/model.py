"""`CostModel`: what is asked of a cost model, and what every one answers: the plug-in point.

Requests are columns of positions in tables of distinct texts, as an `ExecutionGraph` keeps them,
so that two million nodes with a thousand distinct signatures cost a thousand evaluations.
`Costs` are how long operations take, where each number comes from, and how sure it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from foretrace.base import Int32s, Int64s, UInt8s

NO_TEXT = -1  # in place of a position: the operator, the signature or the kernel is not known


class Source(IntEnum):
    """Where a duration comes from, the surest first."""

    MEASURED = 0  # this very operation was recorded
    TABLE = 1  # the user's table of measurements has this shape
    SCALED = 2  # measured at another shape, times the ratio of the model's answers
    LEARNT = 3  # a model whose constants the user's own recordings of steps on this chip taught
    FITTED = 4  # a model whose constants were fitted to benchmarks of this chip
    TRANSFERRED = 5  # the same, fitted to another chip
    ROOFLINE = 6  # the data sheet's peaks alone
    UNKNOWN = 7  # the operation's shapes are not known: nothing is predicted


@dataclass(frozen=True)
class Costs:
    """One row per operation that was asked for."""

    duration_ns: Int64s  # int64[rows]
    low_ns: Int64s  # int64[rows], 10th percentile
    high_ns: Int64s  # int64[rows], 90th percentile
    source: UInt8s  # uint8[rows], Source
    family: Int32s  # int32[rows], position in `families`
    families: tuple[str, ...]  # "gemm bf16", "attention forward bf16", ...

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.duration_ns)


@dataclass(frozen=True)
class KernelRequests:
    """One row per call of an operator on a device."""

    operator: Int32s  # int32[rows], position in `operators`; NO_TEXT
    signature: Int32s  # int32[rows], position in `signatures`; NO_TEXT
    kernel: Int32s  # int32[rows], position in `kernels`, tells tf32 from fp32; NO_TEXT
    operators: tuple[str, ...]  # "aten::addmm", ...
    signatures: tuple[str, ...]  # JSON text of shapes, as `trace` keeps it
    kernels: tuple[str, ...]  # names of kernels

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.operator)


@dataclass(frozen=True)
class CollectiveRequests:
    """One row per collective of one group of ranks; sizes as nccl-tests counts them."""

    collective: Int32s  # int32[rows], position in `collectives`
    num_bytes: Int64s  # int64[rows]: all-gather: total output; reduce-scatter: total input
    dtype: Int32s  # int32[rows], position in `dtypes`
    group: Int32s  # int32[rows], position in `groups`
    collectives: tuple[str, ...]  # "all_reduce", "reduce_scatter", "all_gather", ...
    dtypes: tuple[str, ...]  # "bf16", ...
    groups: tuple[tuple[int, ...], ...]  # places of the members in the machine, from 0

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.collective)


class CostModel(Protocol):
    """What predicts durations; any other may take its place."""

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """Duration of each call on the device, its source and its spread."""
        ...

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """Duration of each collective from the last arrival on, its source and its spread."""
        ...

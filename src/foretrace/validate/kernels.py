"""`CallTimes`: how long each distinct operation took in a recording, beside what is predicted.

Kernels of one call of an operator count together; calls with the same operator, shapes and main
kernel are one row with their median.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze import calls_of, step_of
from foretrace.base import Float64s, Int64s
from foretrace.cost import (
    RECORDINGS,
    Constants,
    FittedKernels,
    KernelRequests,
    Measured,
    Operation,
    measured_operations,
    operation_of,
)
from foretrace.graph import Timeline
from foretrace.machine import Chip


@dataclass(frozen=True)
class CallTimes:
    """One row per distinct operator, shapes and main kernel."""

    operators: tuple[str, ...]
    signatures: tuple[str, ...]
    kernels: tuple[str, ...]  # name of the longest kernel
    kinds: tuple[str, ...]  # operator class of the longest kernel
    num_calls: Int64s  # int64[rows]
    total_ns: Int64s  # int64[rows], of all calls
    median_ns: Float64s  # float64[rows], of one call

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.operators)

    def operations(self) -> tuple[Operation, ...]:
        """What the shapes say each row does."""
        texts = zip(self.operators, self.signatures, self.kernels, strict=True)
        return tuple(operation_of(*one) for one in texts)

    def requests(self) -> KernelRequests:
        """All rows, to be costed."""
        position = np.arange(len(self), dtype=np.int32)
        return KernelRequests(
            position, position, position, self.operators, self.signatures, self.kernels
        )


def call_times(timeline: Timeline) -> CallTimes:
    """How long each distinct operation of the typical step took."""
    calls = calls_of(timeline, step_of(timeline, None))
    if not len(calls):
        empty = np.zeros(0, np.int64)
        return CallTimes((), (), (), (), empty, empty, np.zeros(0))
    duration_ns = timeline.duration_ns[calls.node]
    order = np.lexsort((duration_ns, calls.call))
    is_longest = np.ones(len(order), np.bool_)
    is_longest[:-1] = calls.call[order][1:] != calls.call[order][:-1]
    kind_of_call = calls.kind[order][is_longest]
    time_of_call = np.bincount(calls.call, duration_ns).astype(np.int64)

    present, row = np.unique(kind_of_call, return_inverse=True)
    row = row.reshape(-1)
    by_row = np.argsort(row, kind="stable")
    parts = np.split(time_of_call[by_row], np.flatnonzero(np.diff(row[by_row])) + 1)
    found = [calls.kinds[at] for at in present.tolist()]
    return CallTimes(
        operators=tuple(one.operator for one in found),
        signatures=tuple(one.signature for one in found),
        kernels=tuple(one.name for one in found),
        kinds=tuple(str(one.what.kind) for one in found),
        num_calls=np.bincount(row).astype(np.int64),
        total_ns=np.bincount(row, time_of_call).astype(np.int64),
        median_ns=np.array([np.median(part) for part in parts]),
    )


def measured_calls(
    timeline: Timeline, chip: Chip, constants: tuple[Constants, ...]
) -> tuple[Measured, ...]:
    """What a recording teaches about its chip: every operation whose shapes tell its work.

    Args:
        timeline: what was measured.
        chip: what it ran on.
        constants: those of products, which convolutions build on.

    """
    times = call_times(timeline)
    return measured_operations(
        times.operations(),
        times.median_ns,
        FittedKernels(chip, constants),
        gpu=chip.name,
        source=RECORDINGS,
    )

"""Operations of a recording become measurements: every kernel with known shapes is one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrace.base import Float64s, Int64s
from foretrace.cost.baselines import RowWork
from foretrace.cost.gemm import LIBRARY
from foretrace.cost.kernels import FittedKernels
from foretrace.cost.measured import ANY_DTYPE, Measured
from foretrace.cost.memory_bound import Movements
from foretrace.cost.older import OLDER, is_of_older
from foretrace.cost.predicting import ModelShapes, shapes_of
from foretrace.cost.signatures import (
    CONVOLUTION,
    MOVEMENT,
    UNKNOWN,
    Operation,
)


def measured_operations(
    operations: Sequence[Operation],
    measured_ns: Float64s,
    kernels: FittedKernels,
    *,
    gpu: str,
    source: str,
) -> tuple[Measured, ...]:
    """Operations as measurements, one table per model, kind and number format.

    Args:
        operations: distinct ones.
        measured_ns: float64[operations], time of one call.
        kernels: the chip, and the constants of products, which convolutions build on.
        gpu: what to call the chip in tables of errors.
        source: what to call the recording.
    """
    alike: dict[tuple[str, str, str], list[int]] = {}
    for at, one in enumerate(operations):
        if one.model == UNKNOWN or not measured_ns[at] > 0:
            continue
        is_movement = one.model == MOVEMENT
        key = (one.model, "", ANY_DTYPE) if is_movement else (one.model, one.kind, one.dtype)
        alike.setdefault(key, []).append(at)
    return tuple(
        _table(
            key,
            [operations[at] for at in rows],
            measured_ns[rows],
            kernels=kernels,
            labels=(gpu, source),
        )
        for key, rows in alike.items()
        if key[0] == MOVEMENT or kernels.chip.peak_flops_per_ns(key[2]) is not None
    )


def _table(
    key: tuple[str, str, str],
    operations: Sequence[Operation],
    measured_ns: Float64s,
    *,
    kernels: FittedKernels,
    labels: tuple[str, str],
) -> Measured:
    model, kind, dtype = key
    sizes = np.array([one.sizes for one in operations], np.int64)
    shapes, work = _shapes(model, operations, sizes, kernels)
    _, group = np.unique(sizes, axis=0, return_inverse=True)
    return Measured(
        model=model,
        kind=LIBRARY if kind == OLDER else kind,
        family=model,
        gpu=labels[0],
        chip=kernels.chip,
        shapes=shapes,
        work=work,
        measured_ns=measured_ns,
        group=group.reshape(-1).astype(np.int64),
        source=labels[1],
        dtype=ANY_DTYPE if model == CONVOLUTION else dtype,
        is_older=is_of_older(kind),
    )


def _shapes(
    model: str, operations: Sequence[Operation], sizes: Int64s, kernels: FittedKernels
) -> tuple[ModelShapes, RowWork]:
    dtype = operations[0].dtype
    if model == MOVEMENT:
        num_bytes = sizes[:, 0].astype(np.float64)
        movements = Movements(num_bytes, sizes[:, 1].astype(np.int8))
        return movements, RowWork(np.zeros(len(sizes)), num_bytes, dtype)
    if model == CONVOLUTION:
        flops = 2.0 * sizes[:, :5].prod(axis=1)
        convolutions = kernels.convolution_shapes(sizes, dtype)
        return convolutions, RowWork(flops, convolutions.num_bytes, dtype)
    shapes = shapes_of(model, sizes, dtype)
    return shapes, RowWork(shapes.num_flops, shapes.num_bytes, dtype)

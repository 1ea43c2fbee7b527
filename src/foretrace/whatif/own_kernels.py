"""Kernels that somebody wrote, Triton's among them, beside what their line of index notation needs.

A recording says a kernel's name, its grid and what it took; a line says its arithmetic and its
traffic. Both together are its place under the roofline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import fitting, mean_span, selected
from foretrace.answer import Plain
from foretrace.base import FORMAT_BY_NAME, Bools, Int64s, ScenarioError
from foretrace.cost import NO_TEXT, FittedKernels, described_costs
from foretrace.graph import ExecutionGraph, Timeline
from foretrace.operators import IndexedOperator, kernel_family

if TYPE_CHECKING:
    from foretrace.whatif.edits.own_kernel import OwnKernel

_GENERATOR = "Triton"


@dataclass(frozen=True)
class OwnKernelRow(Plain):
    """One kernel on one grid."""

    kernel: str
    grid: str  # "64 x 8 x 1"; "" unknown
    num_calls: int  # in a step, over all ranks that were simulated
    time_ns: int  # of each, mean
    operator: str  # that its line describes; "": no line was given
    work_flops: int | None
    num_bytes: int | None  # distinct ones
    flops_per_byte: float | None
    bound: str  # "memory" or "arithmetic" of the chip, by the data sheet; "": no line
    best_ns: int | None  # what the operator takes at best on the chip
    reached_share: float | None  # of the best; above 1: faster than the models allow


def own_kernel_rows(
    timeline: Timeline, kernels: FittedKernels, lines: Sequence[OwnKernel]
) -> tuple[OwnKernelRow, ...]:
    """Kernels that lines describe, and Triton's without one; those first that take most.

    Raises:
        ScenarioError: if a line is of nothing in the job, or two are of one kernel.
    """
    graph = timeline.graph
    span = mean_span(timeline, None, None)
    is_left = graph.is_device
    triton = [kernel_family(name).startswith(_GENERATOR) for name in graph.names]
    chosen: list[tuple[Bools, IndexedOperator | None]] = []
    for line in lines:
        selected(graph, line.of)
        mask = fitting(graph, line.of) & graph.is_device
        if any((mask & other).any() for other, _ in chosen):
            raise ScenarioError(f"{line.file} and another line are of the same kernels")
        chosen.append((mask, line.operator))
        is_left = is_left & ~mask
    chosen.append((np.array(triton, np.bool_)[graph.name] & is_left, None))
    in_step = np.isin(graph.step, span.steps)
    found = [
        row
        for mask, operator in chosen
        for row in _rows(
            timeline, np.flatnonzero(mask & in_step), kernels, of=(operator, len(span.steps))
        )
    ]
    return tuple(sorted(found, key=lambda row: -row.num_calls * row.time_ns))


def _rows(
    timeline: Timeline,
    nodes: Int64s,
    kernels: FittedKernels,
    *,
    of: tuple[IndexedOperator | None, int],
) -> Iterator[OwnKernelRow]:
    """A row for each name and grid."""
    graph, (operator, num_steps) = timeline.graph, of
    best_ns = None if operator is None else int(described_costs(operator, kernels).duration_ns[0])
    columns = np.stack([graph.name[nodes], graph.signature[nodes]])
    distinct, rows = np.unique(columns, axis=1, return_inverse=True)
    for at, (name, signature) in enumerate(distinct.T.tolist()):
        mine = nodes[rows.reshape(-1) == at]
        mean_ns = float(timeline.duration_ns[mine].mean())
        yield OwnKernelRow(
            kernel=graph.names[name],
            grid=_grid(graph, signature),
            num_calls=len(mine) // num_steps,
            time_ns=round(mean_ns),
            operator="" if operator is None else operator.name,
            work_flops=None if operator is None else operator.flops,
            num_bytes=None if operator is None else operator.num_bytes,
            flops_per_byte=None if operator is None else operator.intensity,
            bound="" if operator is None else _bound(operator, kernels),
            best_ns=best_ns,
            reached_share=None if best_ns is None else best_ns / max(1.0, mean_ns),
        )


def _grid(graph: ExecutionGraph, signature: int) -> str:
    """Blocks of a launch in each direction."""
    if signature == NO_TEXT:
        return ""
    try:
        said = json.loads(graph.names[signature])
    except (ValueError, RecursionError):  # the text is the file's, and may be anything
        return ""
    grid = said.get("grid") if isinstance(said, dict) else None
    return " x ".join(map(str, grid)) if isinstance(grid, list) else ""


def _bound(operator: IndexedOperator, kernels: FittedKernels) -> str:
    """Which roof is over it: a product's is that of matrix units."""
    dtype = next(iter(operator.formats.values()))
    peak = kernels.chip.peak_flops_per_ns(dtype)
    if operator.product_sizes is None or peak is None:
        is_wide = FORMAT_BY_NAME[dtype].num_bytes > FORMAT_BY_NAME["fp32"].num_bytes
        peak = kernels.chip.peak_flops_per_ns(dtype if is_wide else "fp32", on_matrix_units=False)
    balance = (peak or 0.0) / kernels.chip.memory_bytes_per_ns
    return "arithmetic" if peak and operator.intensity > balance else "memory"

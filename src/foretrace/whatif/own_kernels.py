"""Kernels, and contractions made by copies, beside what their line of index notation needs.

A recording says a kernel's name, its grid and what it took; a line says its arithmetic and its
traffic. Both together are its place under the roofline.

A library's product wants groups of indices to lie together, so that operands, or the result, are
copied in another order of dimensions (TTGT). A product that gathers its tiles through all strides
(block-scatter) wants none of these copies. See `contraction_steps` of `cost` for a contraction by
itself; here a recording's shapes and strides say which copies serve which product.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import fitting, mean_span, selected
from foretrace.answer import Plain
from foretrace.base import FORMAT_BY_NAME, Bools, Int32s, Int64s, ScenarioError
from foretrace.cost import NO_TEXT, FittedKernels, Operation, described_costs, node_operations
from foretrace.graph import ExecutionGraph, Timeline
from foretrace.operators import IndexedOperator, kernel_family, parsed_shapes
from foretrace.simulate import simulate

if TYPE_CHECKING:
    from foretrace.whatif.edits.substituting import OwnKernel


_GENERATOR = "Triton"

_GEMM = "gemm"
_COPIES = ("copy_", "clone", "contiguous")
_MOST_BETWEEN = 2  # copies between a copy and the product that it serves: of its other operand
_MOST_ROWS = 8  # patterns that are simulated, those first whose copies take most


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


@dataclass(frozen=True)
class ContractionRow(Plain):
    """One product with the copies around it."""

    family: str  # "gemm bf16"
    shape: str
    copied: str  # "left 0 2 1 3, result": dimensions of what is copied, as they lay in memory
    num_calls: int  # in a step, over all ranks that were simulated
    time_ns: int  # of each product, mean
    copies_ns: int  # of the copies of each, mean
    gain: float  # how many times as fast without copies
    worth_ns: int  # saved of the step, simulated
    worth_share: float


@dataclass(frozen=True)
class _Copy:
    elements: int
    dtype: str
    order: str  # of dimensions in memory; "" unknown


def copied_contractions(timeline: Timeline) -> tuple[ContractionRow, ...]:
    """Products whose operands or results are copied beside them, those first that lose most."""
    graph = timeline.graph
    span = mean_span(timeline, None, None)
    nodes = np.flatnonzero(graph.is_device & np.isin(graph.step, span.steps))
    nodes = nodes[np.lexsort((nodes, graph.lane[nodes]))]  # stream by stream, in order
    operations, rows = node_operations(graph, nodes)
    ops = [operations[row] for row in rows.tolist()]
    copies = _copies(graph, nodes, ops)
    by_product: dict[int, list[tuple[str, int]]] = {}
    for at in copies:
        served = max(_served(at, ops, copies, graph.lane[nodes]), default=None)
        if served is not None:
            by_product.setdefault(-served[1], []).append((served[2], at))
    alike: dict[tuple[Operation, str], list[int]] = {}
    for at, found in by_product.items():
        words = ", ".join(sorted(f"{side} {copies[one].order}".strip() for side, one in found))
        alike.setdefault((ops[at], words), []).append(at)
    spans_ns = timeline.duration_ns
    step_ns, num_steps = span.duration_ns / len(span.steps), len(span.steps)

    def row(pattern: tuple[Operation, str]) -> ContractionRow:
        products = alike[pattern]
        made = nodes[[one for at in products for _, one in by_product[at]]]
        product_ns, copies_ns = (
            float(spans_ns[chosen].sum()) / len(products) for chosen in (nodes[products], made)
        )
        worth_ns = step_ns - _step_without(timeline, made)
        return ContractionRow(
            family=f"{_GEMM} {pattern[0].dtype}",
            shape=shape_text(pattern[0].sizes),
            copied=pattern[1],
            num_calls=len(products) // num_steps,
            time_ns=round(product_ns),
            copies_ns=round(copies_ns),
            gain=(product_ns + copies_ns) / max(1.0, product_ns),
            worth_ns=round(worth_ns),
            worth_share=worth_ns / step_ns,
        )

    def lost_ns(pattern: tuple[Operation, str]) -> float:
        made = [one for at in alike[pattern] for _, one in by_product[at]]
        return -float(spans_ns[nodes[made]].sum())

    told = [row(pattern) for pattern in sorted(alike, key=lost_ns)[:_MOST_ROWS]]
    return tuple(sorted(told, key=lambda one: -one.worth_ns))


def shape_text(sizes: Sequence[int]) -> str:
    """`2048 x 64 x 2048, 32 at once`."""
    batch, *sides = sizes
    return " x ".join(map(str, sides)) + (f", {batch} at once" if batch > 1 else "")


def _step_without(timeline: Timeline, made: Int64s) -> float:
    """The mean step where some kernels take no time, in ns."""
    durations_ns = timeline.duration_ns.copy()
    durations_ns[made] = 0
    span = mean_span(simulate(timeline.graph, durations_ns), None, None)
    return span.duration_ns / len(span.steps)


def _copies(graph: ExecutionGraph, nodes: Int64s, ops: Sequence[Operation]) -> dict[int, _Copy]:
    """Kernels that write a tensor in another order of its dimensions, by position."""
    names = (*graph.names, "")  # NO_TEXT: the last
    found = {}
    for at, (one, name, signature) in enumerate(
        zip(
            ops,
            graph.operator[nodes].tolist(),
            graph.operator_signature[nodes].tolist(),
            strict=True,
        )
    ):
        if one.kind == "uneven" and NO_TEXT not in {name, signature}:
            copy = _copy_of(names[name], names[signature])
            if copy is not None:
                found[at] = copy
    return found


def _copy_of(operator: str, signature: str) -> _Copy | None:
    shapes = parsed_shapes(signature)
    if operator.rsplit("::", 1)[-1] not in _COPIES or shapes is None:
        return None
    large = [one for one in shapes.single if one.num_elements > 1]
    if not large or len({(one.shape, one.dtype) for one in large}) > 1:
        return None
    source = large[-1]  # what is written stands first
    dims = sorted(range(len(source.strides)), key=lambda at: (-source.strides[at], at))
    return _Copy(source.num_elements, source.dtype, " ".join(map(str, dims)))


def _served(
    at: int, ops: Sequence[Operation], copies: dict[int, _Copy], lane: Int32s
) -> Iterator[tuple[int, int, str]]:
    """Products that a copy is of an operand of, or of the result: batch, -position, side."""
    later = range(at + 1, min(at + 2 + _MOST_BETWEEN, len(ops)))
    following = next((other for other in later if other not in copies), at)
    for other, is_result in ((following, False), (max(0, at - 1), True)):
        one = ops[other]
        if other == at or one.model != _GEMM or lane[other] != lane[at]:
            continue
        if copies[at].dtype not in {one.dtype, {"tf32": "fp32"}.get(one.dtype)}:
            continue
        batch, m, n, k = one.sizes
        sides = {"result": m * n} if is_result else {"left": m * k, "right": n * k}
        fitting = [side for side, size in sides.items() if batch * size == copies[at].elements]
        if fitting:
            yield batch, -other, fitting[0] if len(fitting) == 1 else "operand"

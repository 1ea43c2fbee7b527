"""`RecordedCosts`: what a recording's own operators and transfers say of others.

Operators are put into classes by what a cost model would cost them with (products, attention,
movements by how they go through memory); each class has its own line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Float64s, Int64s
from foretrace.cost.attention import AttentionShapes
from foretrace.cost.model import NO_TEXT, CollectiveRequests, Costs, KernelRequests, Source
from foretrace.cost.of_recording.lines import Line, Points, Quickest, fitted_line
from foretrace.cost.of_recording.transfers import TransferLines
from foretrace.cost.signatures import (
    ATTENTION,
    ATTENTION_BACKWARD,
    CONVOLUTION,
    GEMM,
    MOVEMENT,
    UNKNOWN,
    Operation,
    operation_of,
)
from foretrace.operators import work_of

_UNKNOWN_FAMILY = "unknown"
_CACHE_LINE = 64  # bytes; what moves fewer only reads a number
_SHORT = 10  # percentile of operators' times: on a CPU the very shortest only make views

_Shape = tuple[str, float, float]  # operator, FLOPs, bytes
_Took = tuple[float, float]  # median of calls and their sum, in ns


@dataclass(frozen=True)
class RecordedCosts:
    """Costs from one recording."""

    lines: Mapping[str, Line]  # by class
    transfers: TransferLines | None = None
    shortest_ns: float = 0.0  # what the shortest operators take

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """Duration of each call, by the line of its class; unknown where the class was not met."""
        works = [_work(one) for one in _operations(requests)]
        families = (_UNKNOWN_FAMILY, *self.lines)
        place = {name: at for at, name in enumerate(families)}
        answers = np.zeros((3, len(works)))
        source = np.full(len(works), Source.UNKNOWN, np.uint8)
        family = np.zeros(len(works), np.int32)
        for at, (name, flops, num_bytes) in enumerate(works):
            line = self.lines.get(name)
            if line is None:
                continue
            row = (np.array([flops]), np.array([num_bytes]))
            ns = float(line.predicted_ns(*row)[0])
            low, high = line.ends(*row)
            answers[:, at] = ns, ns * low[0], ns * high[0]
            source[at], family[at] = Source.FITTED, place[name]
        duration_ns, low_ns, high_ns = np.rint(answers).astype(np.int64)
        return Costs(duration_ns, low_ns, high_ns, source, family, families)

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """Duration of each collective, by the line of all transfers; unknown without any."""
        answers = np.zeros((3, len(requests)))
        is_known = self.transfers is not None
        for at in range(len(requests) if self.transfers is not None else 0):
            group = requests.groups[int(requests.group[at])]
            if self.transfers is not None and len(group) > 1:
                answers[:, at] = self.transfers.costs_ns(
                    group,
                    requests.collectives[int(requests.collective[at])],
                    num_ranks=len(group),
                    num_bytes=int(requests.num_bytes[at]),
                )
        source = Source.FITTED if is_known else Source.UNKNOWN
        duration_ns, low_ns, high_ns = np.rint(answers).astype(np.int64)
        return Costs(
            duration_ns,
            low_ns,
            high_ns,
            np.full(len(requests), source, np.uint8),
            requests.collective.astype(np.int32),
            requests.collectives,
        )


def costs_of_recording(
    requests: KernelRequests, measured_ns: Int64s, *, transfers: TransferLines | None = None
) -> RecordedCosts:
    """Lines through recorded operators.

    Args:
        requests: one row per recorded call.
        measured_ns: int64[rows], how long each took.
        transfers: of the same recording, if any.
    """
    codes = np.stack([requests.operator, requests.signature, requests.kernel], axis=1)
    distinct, inverse = np.unique(codes, axis=0, return_inverse=True)
    of = inverse.reshape(-1)
    medians = _medians(of, measured_ns, len(distinct))
    totals = np.bincount(of, measured_ns, len(distinct))
    operator, signature, kernel = distinct.astype(np.int32).T
    alone = replace(requests, operator=operator, signature=signature, kernel=kernel)
    rows: dict[str, dict[_Shape, list[_Took]]] = {}
    triples = zip(_operations(alone), medians.tolist(), totals.tolist(), strict=True)
    for call, ns, total_ns in triples:
        name, flops, num_bytes = _work(call)
        if name and ns > 0:
            key = (call[1], flops, num_bytes)
            rows.setdefault(name, {}).setdefault(key, []).append((ns, total_ns))
    times = [
        ns
        for found in rows.values()
        for (_, flops, num_bytes), each in found.items()
        for ns, _ in each
        if flops or num_bytes > _CACHE_LINE
    ]
    shortest_ns = float(np.percentile(times, _SHORT)) if times else 1.0
    points = {name: _points(found) for name, found in rows.items()}
    quickest = Quickest.of(points.values())
    lines = {name: fitted_line(one, shortest_ns, quickest) for name, one in points.items()}
    return RecordedCosts(lines, transfers, shortest_ns)


def _medians(group: Int64s, values: Int64s, size: int) -> Float64s:
    order = np.lexsort((values, group))
    ends = np.searchsorted(group[order], np.arange(size + 1))
    middle = (ends[:-1] + ends[1:]) // 2
    found: Float64s = values[order][np.minimum(middle, len(order) - 1)].astype(np.float64)
    return found


def _points(found: Mapping[_Shape, Sequence[_Took]]) -> Points:
    operators = list(dict.fromkeys(operator for operator, _, _ in found))
    return Points(
        flops=np.array([flops for _, flops, _ in found]),
        num_bytes=np.array([num_bytes for _, _, num_bytes in found]),
        measured_ns=np.array([float(np.median([ns for ns, _ in one])) for one in found.values()]),
        total_ns=np.array([sum(total for _, total in one) for one in found.values()]),
        operator=np.array([operators.index(operator) for operator, _, _ in found], np.int64),
    )


def _operations(requests: KernelRequests) -> list[tuple[Operation, str, str]]:
    tables = (requests.operators, requests.signatures, requests.kernels)
    columns = (requests.operator, requests.signature, requests.kernel)
    known: dict[tuple[int, ...], tuple[Operation, str, str]] = {}
    found = []
    for row in zip(*(one.tolist() for one in columns), strict=True):
        if row not in known:
            operator, signature, kernel = (
                "" if at == NO_TEXT else table[at] for at, table in zip(row, tables, strict=True)
            )
            one = operation_of(operator, signature, kernel)
            known[row] = (one, operator, signature)
        found.append(known[row])
    return found


def _work(call: tuple[Operation, str, str]) -> tuple[str, float, float]:
    """Class, FLOPs and bytes of one call; class "" where nothing is known of it."""
    one, operator, signature = call
    if one.model == UNKNOWN:
        return "", 0.0, 0.0
    if one.model == GEMM:
        batch, m, n, k = one.sizes
        kind = "many" if batch > 1 else "one"
        elements = batch * (m * k + k * n + m * n)
        return f"{GEMM} {kind} {one.dtype}", 2.0 * batch * m * n * k, float(elements)
    if one.model == MOVEMENT:
        return f"{MOVEMENT} {one.kind}", 0.0, float(one.sizes[0])
    if one.model == CONVOLUTION:
        return f"{CONVOLUTION} {one.dtype}", 2.0 * math.prod(one.sizes[:5]), float(one.sizes[5])
    work = work_of(operator, signature)
    if work is None and one.model in {ATTENTION, ATTENTION_BACKWARD}:
        shapes = AttentionShapes.of(
            np.array([one.sizes]), one.dtype, is_backward=one.model == ATTENTION_BACKWARD
        )
        return one.model, float(shapes.num_flops[0]), 0.0
    return one.model, float(work.flops if work is not None else 0), 0.0

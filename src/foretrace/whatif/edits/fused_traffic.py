"""`fused_share`: what memory traffic and arithmetic leave of the time of work that is fused.

Operators one by one read and write each intermediate result; fused, only what the run begins and
ends with moves. How much that is, shapes bound: below, one tensor in and one out; above, every
further operand of every operator too. Of an optimizer it is known: parameters, gradients and what
is kept of them. Arithmetic that memory did not hide (roots, exponentials) stays. Traffic and
arithmetic may or may not overlap in what is fused, so that the answer is the middle of the two.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from foretrace.analyze import Selection
from foretrace.base import Bools, Float64s, Int64s, begins_run, numbered_rows
from foretrace.graph import ExecutionGraph, NodeKind, Phase, medians_alone
from foretrace.operators import Tensor, parsed_shapes, work_of
from foretrace.whatif.edits.fusing import first_of_fused

# Tensors as large as the parameters that one update reads and writes, in fp32: torch/optim, 2.13.
# Parameters are read and written, gradients read, each state read and written.
_MOVED_BY = {"adam": 7, "adamw": 7, "nadam": 7, "radam": 7, "adamax": 7, "sgd": 5, "rmsprop": 5}
_MOVED_BY |= {"adagrad": 5, "lion": 5, "adadelta": 7}
_STEP = re.compile(r"Optimizer\.step#(\w+)\.step")
_WORD = 4  # bytes of an element whose format a list of tensors does not tell
_SMALL = 1 << 14  # bytes; below, the call is what takes time
_ACHIEVED = 0.9  # share of the traffic that is no faster than the memory is taken to be


@dataclass(frozen=True)
class _Calls:
    """Selected work of which shapes tell what it moves; one row per node."""

    run: Int64s  # int64[rows], first node of the run
    took_ns: Float64s
    num_bytes: Float64s  # read and written
    result: Float64s  # bytes of the largest tensor
    name: Int64s  # int64[rows]


def fused_share(graph: ExecutionGraph, of: Selection) -> float:
    """What is left of the time of runs of selected work; 1 where shapes tell nothing.

    Args:
        graph: of a recording.
        of: what is fused.

    Raises:
        ScenarioError: if the selection cannot be read.
    """
    first = first_of_fused(graph, of)
    num_in_run = np.bincount(first, minlength=graph.num_nodes)
    rows = np.flatnonzero(num_in_run[first] > 1)
    calls = _calls(graph, rows, first)
    all_ns = float(calls.took_ns.sum())
    if not all_ns or not calls.num_bytes.any():
        return 1.0
    is_small = calls.num_bytes < _SMALL
    call_ns = float(np.median(calls.took_ns[is_small])) if is_small.any() else 0.0
    rate = _rate(calls, is_small)
    if not rate:
        return 1.0
    hidden_ns = np.minimum(calls.num_bytes / rate + call_ns, calls.took_ns)
    rest_ns = np.where(is_small, 0.0, _arithmetic_ns(calls, calls.took_ns - hidden_ns, ~is_small))
    kept_ns = hidden_ns + rest_ns
    states = _moved_by_optimizer(graph, rows)
    left = 0.0
    for run in np.unique(calls.run).tolist():
        own = calls.run == run
        took_ns, moved = float(kept_ns[own].sum()), float(calls.num_bytes[own].sum())
        needed = min(_needed(calls, own, states), moved)
        apart_ns = float(rest_ns[own].sum()) + needed / rate + call_ns
        together_ns = took_ns * needed / moved if moved else 0.0
        left += min(math.sqrt(apart_ns * together_ns), took_ns)
    return min(left / all_ns, 1.0)


def _calls(graph: ExecutionGraph, rows: Int64s, first: Int64s) -> _Calls:
    """What each node moves; nothing where shapes do not tell. Kernels of one call share it."""
    pair = np.stack([graph.operator[rows], graph.operator_signature[rows], first[rows]])
    is_new = begins_run(*pair)
    call = np.cumsum(is_new) - 1
    is_host = graph.kind[rows] == NodeKind.OPERATOR
    shared = np.where(is_host, 1, np.bincount(call, minlength=1)[call]) if len(rows) else call
    names = (*graph.names, "")
    found: dict[tuple[int, int], tuple[float, float]] = {}
    moved = np.zeros((2, len(rows)))
    for at, key in enumerate(zip(pair[0].tolist(), pair[1].tolist(), strict=True)):
        if key not in found:
            found[key] = _moved(names[key[0]], names[key[1]])
        moved[:, at] = found[key]
    return _Calls(
        run=first[rows],
        took_ns=_usual_ns(graph.measured_ns[rows], pair[:2]),
        num_bytes=moved[0] / shared,
        result=moved[1] / shared,
        name=graph.operator[rows].astype(np.int64),
    )


def _usual_ns(took_ns: Int64s, call: Int64s) -> Float64s:
    """The median of calls of one operator and shape: one that stalled tells nothing of memory."""
    is_any = np.ones(len(took_ns), np.bool_)
    usual_ns = medians_alone(took_ns, numbered_rows(list(call)), is_any)
    return usual_ns.astype(np.float64)


def _moved(operator: str, signature: str) -> tuple[float, float]:
    """Bytes that a call reads and writes, and those of its largest tensor; lists of tensors too."""
    shapes = parsed_shapes(signature)
    if shapes is None:
        return 0.0, 0.0
    lists = [one for one in shapes.inputs if isinstance(one, tuple) and one]
    if lists:
        sizes = [sum(_size(each) for each in one) for one in lists]
        return float(sum(sizes) + sizes[0]), float(max(sizes))
    largest = max((_size(one) for one in shapes.single), default=0)
    work = work_of(operator, signature)
    num_bytes = 0 if work is None else max(work.num_bytes, 0)
    return float(num_bytes), float(largest)


def _size(tensor: Tensor) -> int:
    return tensor.num_elements * (tensor.element_bytes or _WORD)


def _rate(calls: _Calls, is_small: Bools) -> float:
    """Bytes per ns that memory gives: what nine tenths of the traffic stay below."""
    rows = np.flatnonzero(~is_small & (calls.took_ns > 0))
    if not len(rows):
        return 0.0
    rate = calls.num_bytes[rows] / calls.took_ns[rows]
    order = np.argsort(rate)
    share = np.cumsum(calls.num_bytes[rows][order])
    return float(rate[order][np.searchsorted(share, _ACHIEVED * share[-1])])


def _arithmetic_ns(calls: _Calls, beyond_ns: Float64s, is_large: Bools) -> Float64s:
    """What each call's arithmetic takes beyond its traffic.

    An operator computes as much for each byte whatever the size, so the least of all sizes counts:
    what large results take more for is memory that they fetch anew, which what is fused does not.
    """
    per_byte = np.full(int(calls.name.max(initial=0)) + 2, np.inf)
    each = beyond_ns / np.maximum(calls.num_bytes, 1.0)
    rows = np.flatnonzero(is_large)
    np.minimum.at(per_byte, calls.name[rows], each[rows])
    found: Float64s = np.where(is_large, per_byte[calls.name], 0.0) * calls.num_bytes
    return found


def _moved_by_optimizer(graph: ExecutionGraph, rows: Int64s) -> int:
    """Tensors that an update moves, of the optimizer whose step was marked; 0: it is none."""
    if not len(rows) or not (graph.phase[rows] == Phase.OPTIMIZER).all():
        return 0
    known = {found[1].lower() for one in graph.names if (found := _STEP.search(one))}
    return max((_MOVED_BY.get(one, 0) for one in known), default=0)


def _needed(calls: _Calls, own: Bools, states: int) -> float:
    """Bytes that a run must move when it is one."""
    largest = calls.result[own]
    if states:
        # Each kind of operator meets each parameter once or twice: once is what most do.
        sums = [float(largest[calls.name[own] == one].sum()) for one in np.unique(calls.name[own])]
        return states * float(np.median([one for one in sums if one > max(sums) / 4] or [0.0]))
    whole = 2 * float(largest.max(initial=0.0))
    further = float(np.maximum(calls.num_bytes[own] - 2 * largest, 0).sum())
    return math.sqrt(whole * (whole + further))

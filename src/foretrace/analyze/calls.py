"""`Calls`: which kernels one call of an operator launched together, and what each is.

A graph names the operator that launched a kernel, not the call. Kernels of one operator with the
same shapes that follow each other on a stream belong to one call until a kernel of the
operator's own class comes again: the same kernel, or, in classes whose operators launch one
kernel that does the work, any such kernel. A product and its split-K reduction are one call, two
products two. A call that launches the same kernel twice counts as two.

Held against the operators' events of 12 public traces: exact on 6; on the others 0.1 to 6% of the
calls are off, most of them operators with many kernels (lists of tensors, convolutions'
backward); FLOPs by at most 0.004%. A test keeps six of these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze.activity import is_compute
from foretrace.analyze.windows import windows
from foretrace.base import Bools, Int32s, Int64s, numbered_rows, turns_within
from foretrace.graph import NO_STEP, ExecutionGraph, Timeline
from foretrace.operators import OperatorClass, Recognised, operator_class, recognised

# Classes whose operators launch one kernel that does the work, and families that are exceptions.
_ONE_KERNEL = frozenset(
    (OperatorClass.GEMM, OperatorClass.ELEMENTWISE, OperatorClass.SOFTMAX, OperatorClass.COPY)
)
_SEVERAL = frozenset(
    ("cuBLAS split-K reduction", "cuBLAS epilogue", "cuBLAS dot", "grouped product arguments")
)


@dataclass(frozen=True)
class Calls:
    """Kernels, or operators on hosts without a device, by lane, then start."""

    node: Int64s  # int64[rows]
    kind: Int32s  # int32[rows], position in `kinds`: the kernel, its operator and its shapes
    call: Int64s  # int64[rows], rising from 0
    kinds: tuple[CallKind, ...]
    num_calls: int

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.node)


@dataclass(frozen=True)
class CallKind:
    """A kernel as launched by an operator with certain shapes."""

    name: str
    operator: str  # "" unknown
    signature: str  # "" unknown
    what: Recognised
    is_main: bool  # does what the operator is for, and does not only help
    is_alone: bool  # is main, and a call launches one such kernel, whatever its name


def step_of(timeline: Timeline, step: str | int | None) -> int:
    """Position of a step in the graph's names, the typical one without a name; NO_STEP: no steps.

    Raises:
        GraphError: if there is no step of that name.
    """
    found = windows(timeline)
    if not len(found) and step is None:
        return NO_STEP
    return int(found.step[found.row_of(step)])


def in_step(graph: ExecutionGraph, step: int) -> Bools:
    """Nodes of a step; all of a graph without steps; bool[nodes]."""
    if step == NO_STEP:
        return np.ones(graph.num_nodes, np.bool_)
    is_inside: Bools = graph.step == step
    return is_inside


def calls_of(timeline: Timeline, step: int, among: Bools | None = None) -> Calls:
    """The calls of one step, or of all where the graph has none; of some nodes, bool[nodes]."""
    graph = timeline.graph
    chosen = is_compute(graph) & in_step(graph, step)
    node = np.flatnonzero(chosen if among is None else chosen & among)
    node = node[np.lexsort((timeline.start_ns[node], graph.lane[node]))]
    kind, kinds = _kinds(graph, node)
    is_main = np.array([one.is_main for one in kinds], np.bool_)
    by = _Keys(graph.operator[node], graph.operator_signature[node], graph.lane[node])
    # kinds of which a call has one are told apart by nothing
    alike = np.array([-1 if one.is_alone else at for at, one in enumerate(kinds)], np.int32)
    call = _call(by, alike[kind], is_main[kind])
    return Calls(node, kind, call, kinds, int(call[-1]) + 1 if len(call) else 0)


@dataclass(frozen=True)
class _Keys:
    operator: Int32s
    signature: Int32s
    lane: Int32s

    def changes(self) -> Bools:
        """Where any of the three differs from the row before; bool[rows]."""
        changed = np.ones(len(self.lane), np.bool_)
        changed[1:] = (
            (self.operator[1:] != self.operator[:-1])
            | (self.signature[1:] != self.signature[:-1])
            | (self.lane[1:] != self.lane[:-1])
        )
        return changed


def _kinds(graph: ExecutionGraph, node: Int64s) -> tuple[Int32s, tuple[CallKind, ...]]:
    """Each row's kind, and all kinds."""
    size = np.int64(len(graph.names) + 1)
    pair = graph.name[node] * size + graph.operator[node] + 1
    pairs, of_pair = np.unique(pair, return_inverse=True)
    triple = of_pair.reshape(-1) * size + graph.operator_signature[node] + 1
    triples, kind = np.unique(triple, return_inverse=True)
    names = (*graph.names, "")  # -1: none
    found = [
        (names[pairs[at] // size], names[pairs[at] % size - 1], names[signature - 1])
        for at, signature in zip((triples // size).tolist(), (triples % size).tolist(), strict=True)
    ]
    whats = {pair: recognised(*pair) for pair in {one[:2] for one in found}}
    return kind.reshape(-1).astype(np.int32), tuple(_kind(one, whats[one[:2]]) for one in found)


def _kind(names: tuple[str, str, str], what: Recognised) -> CallKind:
    is_main = not names[1] or what.kind == operator_class(names[1])
    is_alone = is_main and what.kind in _ONE_KERNEL and what.family not in _SEVERAL
    return CallKind(*names, what=what, is_main=is_main, is_alone=is_alone)


def _call(by: _Keys, kind: Int32s, is_main: Bools) -> Int64s:
    """Number of each row's call; int64[rows]."""
    rows = len(kind)
    if not rows:
        return np.zeros(0, np.int64)
    run = np.cumsum(by.changes()) - 1
    # the how-manieth of its kind in its run each main kernel is
    again = turns_within(numbered_rows([run, kind]))
    has_main = np.zeros(int(run[-1]) + 1, np.bool_)
    has_main[run[is_main]] = True
    counted = np.where(is_main | ~has_main[run], again, 0)
    latest = np.maximum.accumulate(run * np.int64(rows) + counted)
    begins = np.ones(rows, np.bool_)
    begins[1:] = latest[1:] != latest[:-1]
    call: Int64s = np.cumsum(begins) - 1
    return call

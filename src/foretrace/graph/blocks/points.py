"""`WorkPoints`: where on the host device work is asked for, in the order of the program.

A rank's threads pass the turn to each other, so the order of time over all its threads is the
order of its program: forward on one, backward on another. Evidence labels points; every other
node of the host takes its label from the point that its thread comes to next.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrace.base import Bools, Int32s, Int64s, UInt8s, used_positions
from foretrace.graph.assembly import DraftNodes
from foretrace.graph.blocks.facts import inherited, names_by_rank
from foretrace.graph.nodes import DEVICE_KINDS, NodeKind
from foretrace.graph.operations import Operations
from foretrace.graph.operations.scopes import NO_SCOPE, Scopes

# Operators that stand around others and say nothing of what runs directly inside them.
_WRAPPER = re.compile(r"autograd::|torch::|profiler::")
_NAMESPACED = re.compile(r"\w+::\w")
_SILENT = re.compile(
    r"autograd::|Compiled|Checkpoint|DistributedDataParallel|FullyShardedDataParallel|##|forward"
)


@dataclass(frozen=True)
class WorkPoints:
    """One row per launched device operation or operator of the host, by rank, then time."""

    node: Int64s  # int64[points], number of the collected node
    rank: Int32s  # int32[points], position among the traces
    lane: Int32s  # int32[points], host thread
    at_ns: Int64s  # int64[points], raw clock of the rank
    scope: Int32s  # int32[points], innermost scope; NO_SCOPE
    step: Int32s  # int32[points]
    kind: UInt8s  # uint8[points], NodeKind
    name: Int32s  # int32[points], position in the graph's names
    token: Int32s  # int32[points], name by which repetition is looked for
    call: Int32s  # int32[points], scope of the operator's call that the token names; NO_SCOPE
    collective: Int32s  # int32[points], of communication; -1
    work_ns: Int64s  # int64[points]

    def __len__(self) -> int:
        """Number of points."""
        return len(self.node)

    @property
    def is_communication(self) -> Bools:
        """Points that begin a communication, bool[points]."""
        is_arrival: Bools = self.kind == NodeKind.ARRIVE
        return is_arrival


def work_points(
    operations: Operations,
    nodes: DraftNodes,
    scopes: Scopes,
    scope: Int32s,
    names: dict[str, int],
) -> WorkPoints:
    """The points of all ranks.

    Args:
        operations: of all ranks.
        nodes: collected, their operators known.
        scopes: of all ranks.
        scope: innermost scope of every node.
        names: of nodes and operators, with their positions; tokens' names are added.
    """
    columns = nodes.columns
    kinds = (*DEVICE_KINDS, NodeKind.ARRIVE, NodeKind.OPERATOR)
    is_kind = np.zeros(256, np.bool_)
    is_kind[list(kinds)] = True
    host_lane = columns["host_lane"].astype(np.int32)
    node = np.flatnonzero(is_kind[columns["kind"]] & (host_lane >= 0))
    rank = _positions_of_ranks(operations, columns["rank"][node])
    at_ns = columns["host_ns"][node].astype(np.int64)
    order = np.lexsort((node, at_ns, rank))
    node, rank, at_ns = node[order], rank[order], at_ns[order]
    name = columns["name"][node].astype(np.int32)
    call, call_name = _calls(operations, scopes, names)
    own_call = call[scope[node]]
    operator = columns["operator"][node].astype(np.int32)
    by_operator = np.where(_speaks(operator, list(names)), operator, name)
    token = np.where(own_call >= 0, call_name[own_call], by_operator)
    return WorkPoints(
        node=node,
        rank=rank,
        lane=host_lane[node],
        at_ns=at_ns,
        scope=scope[node],
        step=columns["step"][node].astype(np.int32),
        kind=columns["kind"][node].astype(np.uint8),
        name=name,
        token=token.astype(np.int32),
        call=own_call,
        collective=columns["collective"][node].astype(np.int32),
        work_ns=columns["recorded_ns"][node].astype(np.int64),
    )


def _positions_of_ranks(operations: Operations, rank: NDArray[np.generic]) -> Int32s:
    """Position among the traces of each rank number."""
    numbers = np.array(operations.ranks, np.int64)
    order = np.argsort(numbers)
    return order[np.searchsorted(numbers[order], rank)].astype(np.int32)


def _calls(operations: Operations, scopes: Scopes, names: dict[str, int]) -> tuple[Int32s, Int32s]:
    """The outermost namespaced operator around each scope, and each such scope's name.

    What a user called: `aten::linear`, whatever it called in turn, which may change with shapes.
    """
    own = np.full(len(scopes), NO_SCOPE, np.int64)
    name = np.full(len(scopes) + 1, -1, np.int32)
    for trace, of_scope, rows in names_by_rank(operations.traces, scopes):
        table = np.full(len(trace.strings) + 1, -1, np.int32)
        for index in used_positions(of_scope, len(trace.strings)).tolist():
            text = trace.strings[index]
            if _NAMESPACED.match(text) and not _WRAPPER.match(text):
                table[index] = names.setdefault(text, len(names))
        name[rows] = table[of_scope]
        first = rows.start
        named = first + np.flatnonzero((table[of_scope] >= 0) & scopes.is_operator[rows])
        own[named] = named
    found = inherited(scopes.parent, own, NO_SCOPE, is_inner=False)
    return np.append(found, NO_SCOPE).astype(np.int32), name


def _speaks(operator: Int32s, names: Sequence[str]) -> Bools:
    """Operators whose name says what is computed directly inside them."""
    speaks = np.zeros(len(names) + 1, np.bool_)
    for index in used_positions(operator, len(names)).tolist():
        speaks[index] = not _SILENT.search(names[index])
    return speaks[operator]

"""`Scopes`: operators and annotations of host threads, and which of them is at work at a moment.

Every node has a place on the host: the thread and moment at which its work was done or asked
for (a device operation's: those of its launch call). What encloses that place says which
operator the node belongs to. Names stay positions in each trace's own strings until they are
used: most operators never launch anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int32s, Int64s, row_starts, used_positions
from foretrace.graph._compiled import counted_order, innermost_scopes, scope_tree
from foretrace.graph.assembly import DraftNodes
from foretrace.graph.nodes import NodeKind
from foretrace.graph.operations.table import Operations
from foretrace.trace import STEP_MARK, Category, Trace, batch_of_mark, step_marks

NO_SCOPE = -1
# What encloses other work and says nothing of it, beside step marks: gloo's transfers, whose spans
# stay open on the thread that asked for them until it waits (torch 2.13).
_SILENT = (STEP_MARK, "gloo:send", "gloo:recv")


@dataclass(frozen=True)
class Scopes:
    """Operators and annotations of all ranks, sorted by lane, then start, longer first."""

    rank: Int32s  # int32[scopes], position among the traces
    lane: Int32s  # int32[scopes], position in `Operations.lanes`
    start_ns: Int64s  # int64[scopes], raw clock
    end_ns: Int64s  # int64[scopes]
    event: Int32s  # int32[scopes], row in the rank's trace
    is_operator: Bools  # bool[scopes]; False: an annotation
    parent: Int32s  # int32[scopes], scope around it on its thread; NO_SCOPE
    speaker: Int32s  # int32[scopes], whose name and shapes stand for work directly inside
    first: Int64s  # int64[lanes + 1], where each lane's scopes begin

    def __len__(self) -> int:
        """Number of scopes."""
        return len(self.lane)

    def innermost(self, lane: Int32s, at_ns: Int64s) -> Int32s:
        """The innermost scope open at moments of lanes; NO_SCOPE where none is or lane is -1."""
        found = np.empty(len(lane), np.int32)
        innermost_scopes(self.first, self.start_ns, self.end_ns, self.parent, lane, at_ns, found)
        return found


def scopes_of(operations: Operations) -> Scopes:
    """The scopes of all ranks; step marks and spans of transfers are left out."""
    ranks, lanes, starts, ends, events, are_operators, have_shapes = ([] for _ in range(7))
    first_lanes = first_lane_of_ranks(operations)
    for position, trace in enumerate(operations.traces):
        rows, is_operator = _scope_rows(trace)
        lane = trace.lane[rows]
        rows, is_operator = _by_lane(rows, is_operator, lane, len(trace.lanes))
        start_ns = trace.start_ns[rows]
        ranks.append(np.full(len(rows), position, np.int32))
        lanes.append((trace.lane[rows] + np.int32(first_lanes[position])).astype(np.int32))
        starts.append(start_ns)
        ends.append(start_ns + trace.duration_ns[rows])
        events.append(rows.astype(np.int32))
        are_operators.append(is_operator)
        have_shapes.append(is_operator & (trace.signature[rows] >= 0))
    lane, start_ns, end_ns = (np.concatenate(parts) for parts in (lanes, starts, ends))
    is_operator = np.concatenate(are_operators)
    parent, speaker = np.empty((2, len(lane)), np.int32)
    scope_tree(lane, start_ns, end_ns, is_operator, np.concatenate(have_shapes), parent, speaker)
    num_lanes = len(operations.lanes)
    first = row_starts(lane, num_lanes)
    return Scopes(
        rank=np.concatenate(ranks),
        lane=lane,
        start_ns=start_ns,
        end_ns=end_ns,
        event=np.concatenate(events),
        is_operator=is_operator,
        parent=parent,
        speaker=speaker,
        first=first,
    )


def first_lane_of_ranks(operations: Operations) -> list[int]:
    """Position in `Operations.lanes` of each trace's lane 0."""
    first: dict[int, int] = {}
    for index, lane in enumerate(operations.lanes):
        first.setdefault(lane.rank, index)
    return [first.get(rank, 0) for rank in operations.ranks]


def _scope_rows(trace: Trace) -> tuple[Int64s, Bools]:
    """Rows of a trace that are operators or annotations on the host, and which are operators."""
    category = trace.category
    is_scope = (category == Category.OPERATOR) | (category == Category.ANNOTATION)
    rows = np.flatnonzero(is_scope)
    used = used_positions(trace.name[rows], len(trace.strings)).tolist()
    steps = {mark.words for mark in step_marks(trace)}
    marks = [
        index
        for index in used
        if (text := trace.strings[index]).startswith(_SILENT)
        or text in steps
        or batch_of_mark(text) is not None
    ]
    if marks:
        is_mark = np.zeros(len(trace.strings), np.bool_)
        is_mark[marks] = True
        rows = rows[~is_mark[trace.name[rows]]]
    return rows, category[rows] == Category.OPERATOR


def _by_lane(
    rows: Int64s, is_operator: Bools, lane: Int32s, num_lanes: int
) -> tuple[Int64s, Bools]:
    """Rows sorted by lane; inside a lane a trace's own order is by start, longer first."""
    first = row_starts(lane, num_lanes)
    order = np.empty(len(rows), np.int64)
    counted_order(lane.astype(np.int64), first, order)
    return rows[order], is_operator[order]


def scopes_of_nodes(scopes: Scopes, nodes: DraftNodes) -> Int32s:
    """The innermost scope at each node's place on the host, int32[nodes]; NO_SCOPE."""
    columns = nodes.columns
    return scopes.innermost(
        columns["host_lane"].astype(np.int32), columns["host_ns"].astype(np.int64)
    )


def with_operators(
    operations: Operations,
    scopes: Scopes,
    nodes: DraftNodes,
    scope: Int32s,
    names: Sequence[str],
) -> tuple[DraftNodes, tuple[str, ...]]:
    """Collected nodes with the operator that speaks for each, and all names then in use.

    A node that is an operator itself speaks for itself.
    """
    columns = nodes.columns
    speaker = np.append(scopes.speaker, np.int32(NO_SCOPE))[scope]
    name_of, signature_of, all_names = _used_names(operations, scopes, speaker, names)
    is_own = columns["kind"] == NodeKind.OPERATOR
    operator = np.where(is_own, columns["name"], name_of[speaker])
    signature = np.where(is_own, columns["signature"], signature_of[speaker])
    changed = {"operator": operator, "operator_signature": signature}
    return DraftNodes({**columns, **changed}), all_names


def _used_names(
    operations: Operations, scopes: Scopes, speaker: Int32s, names: Sequence[str]
) -> tuple[Int32s, Int32s, tuple[str, ...]]:
    """Name and signature of each scope that speaks, int32[scopes + 1], -1 elsewhere; all names."""
    position = {text: index for index, text in enumerate(names)}
    is_used = np.zeros(len(scopes) + 1, np.bool_)
    is_used[speaker] = True
    used = np.flatnonzero(is_used[:-1])
    name_of, signature_of = np.full((2, len(scopes) + 1), -1, np.int32)
    bounds = np.searchsorted(scopes.rank[used], np.arange(len(operations.traces) + 1))
    for trace, low, high in zip(operations.traces, bounds[:-1], bounds[1:], strict=True):
        chosen = used[low:high]
        event = scopes.event[chosen]
        for column, target in ((trace.name, name_of), (trace.signature, signature_of)):
            target[chosen] = _positions(trace.strings, column[event], position)
    return name_of, signature_of, tuple(position)


def _positions(strings: Sequence[str], used: Int32s, position: dict[str, int]) -> Int32s:
    """Positions of strings in a growing table; -1 stays -1."""
    table = np.full(len(strings) + 1, -1, np.int32)
    for index in used_positions(used, len(strings)).tolist():
        table[index] = position.setdefault(strings[index], len(position))
    return table[used]

"""A recording cut into pieces: runs of one block's nodes, in the order in which they are issued."""

from __future__ import annotations

import numpy as np

from foretrace.base import Int64s
from foretrace.graph import ExecutionGraph, NodeKind, Part, Phase, Recording
from foretrace.whatif.recorded.issue_order import IssueOrder, issue_order, next_where
from foretrace.whatif.recorded.program import RecordedPiece

# Work of its own; all else on the host belongs to the work that comes next.
_WORKING = (
    NodeKind.LAUNCH,
    NodeKind.OPERATOR,
    NodeKind.KERNEL,
    NodeKind.MEMCPY,
    NodeKind.MEMSET,
    NodeKind.ARRIVE,
    NodeKind.FINISH,
)
_MARKS = (NodeKind.RANK_START, NodeKind.STEP_BEGIN, NodeKind.STEP_END)


def pieces_of(recording: Recording) -> dict[int, tuple[RecordedPiece, ...]]:
    """The pieces of every recorded rank, in issue order; each node but hubs and ghosts in one."""
    graph = recording.graph
    order = issue_order(graph, recording.measured)
    owner = _owners(graph, order)
    key = np.stack(
        [
            graph.rank[order.nodes],
            graph.step[owner],
            graph.part[owner],
            graph.phase[owner],
            graph.layer[owner],
            graph.microbatch[owner],
            graph.is_of(*_MARKS)[order.nodes],
        ]
    ).astype(np.int64)
    first = np.flatnonzero(np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0)))
    runs = np.split(order.nodes, first[1:]) if len(order.nodes) else []
    pieces: dict[int, list[RecordedPiece]] = {rank: [] for rank in graph.ranks}
    for nodes, (rank, step, part, phase, layer, microbatch, is_mark) in zip(
        runs, key[:, first].T.tolist(), strict=True
    ):
        piece = RecordedPiece(
            rank=rank,
            step=step,
            part=Part.UNKNOWN if is_mark else Part(part),
            phase=Phase.UNKNOWN if is_mark else Phase(phase),
            layer=layer,
            microbatch=microbatch,
            nodes=nodes,
        )
        pieces[rank].append(piece)
    return {rank: tuple(own) for rank, own in pieces.items()}


def _owners(graph: ExecutionGraph, order: IssueOrder) -> Int64s:
    """Node whose block each node in issue order belongs to; int64[nodes in order].

    What launches nothing belongs to what is launched next, unless its step ends before that: also
    on a thread that slept from one step into the next.
    """
    nodes = order.nodes
    owner = order.anchor[nodes]
    kind = graph.kind[owner]
    is_idle = ~np.isin(kind, (*_WORKING, *_MARKS))
    following = next_where(~is_idle)
    is_idle &= following < len(nodes)
    after = owner[following[is_idle]]
    is_same = (graph.rank[after] == graph.rank[owner[is_idle]]) & ~graph.is_of(*_MARKS)[after]
    owner[is_idle] = np.where(is_same, after, owner[is_idle])
    return owner

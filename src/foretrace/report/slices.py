"""`DrawnSlices`: what a timeline's drawing is made of; few enough for a page after `thinned`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from foretrace.analyze import FRAME_KINDS, CollectiveTable, HostFrames, IdleCauses, Stillness
from foretrace.base import Bools, Int32s, Int64s, UInt8s, begins_run
from foretrace.graph import DEVICE_KINDS, ExecutionGraph, NodeKind, Timeline

TRACKS = ("optimizer", "Python", "operators", "host", "compute", "communication", "why idle")
OPTIMIZER, PYTHON, OPERATORS, HOST, COMPUTE, COMMUNICATION, IDLE = range(len(TRACKS))
SLICE_KINDS = (
    "host call",
    "operator",
    "kernel",
    "copy",
    "wait for other ranks",
    "transfer",
    "idle",
    "only waiting",
    *FRAME_KINDS,
)
_HOST_CALL, _OPERATOR, _KERNEL, _COPY, _WAIT, _TRANSFER, _IDLE, _ONLY_WAITING, _FRAME = range(
    len(SLICE_KINDS) - len(FRAME_KINDS) + 1
)  # frames have the last kinds, in the order of `FRAME_KINDS`
_TRACK_OF_FRAME = np.array([OPERATORS, OPERATORS, PYTHON, OPTIMIZER, OPTIMIZER], np.uint8)
MERGED = -1  # node of a slice that stands for several

# Coarsest tick: a window of 2,000 ticks is about one tick per pixel of the page.
COARSEST = 2_000

_NOT_DRAWN = 255
_KIND = np.full(256, _NOT_DRAWN, np.uint8)
# The track on which a node's time stands, drawn as a slice or not.
TRACK_OF_KIND = np.full(256, HOST, np.uint8)
for _node_kind, _slice_kind in (
    (NodeKind.CALL, _HOST_CALL),
    (NodeKind.LAUNCH, _HOST_CALL),
    (NodeKind.SYNC, _HOST_CALL),
    (NodeKind.OPERATOR, _OPERATOR),
    *((kind, _KERNEL if kind == NodeKind.KERNEL else _COPY) for kind in DEVICE_KINDS),
):
    _KIND[_node_kind] = _slice_kind
TRACK_OF_KIND[list(DEVICE_KINDS)] = COMPUTE
TRACK_OF_KIND[[NodeKind.ARRIVE, NodeKind.HUB, NodeKind.FINISH]] = COMMUNICATION


@dataclass(frozen=True)
class DrawnSlices:
    """Slices of one timeline; sorted by rank, track, kind, start."""

    rank: Int32s  # int32[slices]
    track: UInt8s  # uint8[slices], position in `TRACKS`
    kind: UInt8s  # uint8[slices], position in `SLICE_KINDS`
    node: Int64s  # int64[slices]; of a collective's parts its finish; a reason's number; MERGED
    start_ns: Int64s  # int64[slices]
    end_ns: Int64s  # int64[slices]

    def __len__(self) -> int:
        """Number of slices."""
        return len(self.rank)

    def of(self, rank: int, track: int) -> DrawnSlices:
        """One row of the drawing, by start."""
        own = self.chosen((self.rank == rank) & (self.track == track))
        return own.chosen(np.argsort(own.start_ns, kind="stable"))

    def chosen(self, rows: Int64s | Bools) -> DrawnSlices:
        """These rows alone."""
        return DrawnSlices(
            self.rank[rows],
            self.track[rows],
            self.kind[rows],
            self.node[rows],
            self.start_ns[rows],
            self.end_ns[rows],
        )

    def joined(self, other: DrawnSlices) -> DrawnSlices:
        """Both."""
        both = DrawnSlices(
            *(
                np.concatenate([getattr(self, one.name), getattr(other, one.name)])
                for one in fields(self)
            )
        )
        return both.chosen(np.lexsort((both.start_ns, both.kind, both.track, both.rank)))

    def numbered_from(self, first: int) -> DrawnSlices:
        """The same with `first` as the number of the graph's first node."""
        return replace(self, node=np.where(self.node == MERGED, self.node, self.node + first))


def slices(timeline: Timeline, collectives: CollectiveTable, ranks: tuple[int, ...]) -> DrawnSlices:
    """All slices of these ranks: calls, operators, kernels, copies, collectives in two parts."""
    graph = timeline.graph
    nodes = np.flatnonzero((_KIND[graph.kind] != _NOT_DRAWN) & np.isin(graph.rank, ranks))
    finish = _finish_nodes(graph, collectives)
    is_shown = np.isin(collectives.rank, ranks)
    sides = []
    for side_kind, start_ns, end_ns in (
        (_WAIT, collectives.arrive_ns, collectives.transfer_begin_ns),
        (_TRANSFER, collectives.transfer_begin_ns, collectives.finish_ns),
    ):
        side = np.flatnonzero(is_shown & (end_ns > start_ns))
        sides.append((np.full(len(side), side_kind, np.uint8), side, start_ns[side], end_ns[side]))
    kinds, places, starts, ends = (np.concatenate(part) for part in zip(*sides, strict=True))
    kind = np.concatenate([_KIND[graph.kind[nodes]], kinds])
    of_collective = np.full(len(places), COMMUNICATION, np.uint8)
    found = DrawnSlices(
        rank=np.concatenate([graph.rank[nodes], collectives.rank[places]]),
        track=np.concatenate([TRACK_OF_KIND[graph.kind[nodes]], of_collective]),
        kind=kind,
        node=np.concatenate([nodes, finish[places]]),
        start_ns=np.concatenate([timeline.start_ns[nodes], starts]),
        end_ns=np.concatenate([timeline.end_ns[nodes], ends]),
    )
    return found.chosen(np.lexsort((found.start_ns, found.kind, found.track, found.rank)))


def with_idle(
    slices: DrawnSlices, idle: IdleCauses, reason: Int64s, ranks: tuple[int, ...]
) -> DrawnSlices:
    """The slices, and a track of the stretches in which nothing was done, each with its reason."""
    chosen = np.flatnonzero(np.isin(idle.rank, ranks))
    is_waiting = idle.kind[chosen] == Stillness.WAITING
    return slices.joined(
        DrawnSlices(
            rank=idle.rank[chosen],
            track=np.full(len(chosen), IDLE, np.uint8),
            kind=np.where(is_waiting, _ONLY_WAITING, _IDLE).astype(np.uint8),
            node=reason[chosen],
            start_ns=idle.begin_ns[chosen],
            end_ns=idle.end_ns[chosen],
        )
    )


def frame_slices(frames: HostFrames, ranks: tuple[int, ...], first: int) -> DrawnSlices:
    """What host threads were inside of; a frame's number is its name's place from `first` on."""
    rows = np.flatnonzero(np.isin(frames.rank, ranks))
    return DrawnSlices(
        rank=frames.rank[rows],
        track=_TRACK_OF_FRAME[frames.kind[rows]],
        kind=frames.kind[rows] + np.uint8(_FRAME),
        node=frames.name[rows] * np.int64(len(FRAME_KINDS)) + frames.kind[rows] + first,
        start_ns=frames.start_ns[rows],
        end_ns=frames.end_ns[rows],
    )


def frame_kind_text(kind: int) -> str:
    """What a frame is called: "framework operator", ..."""
    return SLICE_KINDS[_FRAME + kind]


def thinned(
    whole: Mapping[str, DrawnSlices], *, window_ns: int, max_slices: int
) -> tuple[Mapping[str, DrawnSlices], int]:
    """Slices that are few enough for a page, and the tick in ns that it took."""
    tick_ns = max(1, window_ns >> 31)  # a tick and its count fit 32 bits
    merged = whole
    num_ticks = 1 << 16
    while sum(len(rows) for rows in merged.values()) > max_slices and num_ticks >= COARSEST:
        tick_ns = max(1, window_ns // num_ticks)
        merged = {title: _merged(rows, tick_ns) for title, rows in whole.items()}
        num_ticks //= 2
    return merged, tick_ns


def _finish_nodes(graph: ExecutionGraph, collectives: CollectiveTable) -> Int64s:
    """The node that ends each row's collective on its rank; int64[rows]."""
    finish = graph.nodes_of(NodeKind.FINISH)
    num_ranks = int(graph.rank.max(initial=0)) + 1
    key = graph.collective[finish].astype(np.int64) * num_ranks + graph.rank[finish]
    order = np.argsort(key, kind="stable")
    wanted = collectives.collective.astype(np.int64) * num_ranks + collectives.rank
    place = np.searchsorted(key[order], wanted)
    return finish[order][place]


def _merged(rows: DrawnSlices, tick_ns: int) -> DrawnSlices:
    """Slices of one kind that stand closer than a tick as one."""
    if not len(rows):
        return rows
    key = (rows.rank.astype(np.int64) << 16) | (rows.track.astype(np.int64) << 8) | rows.kind
    is_new_key = begins_run(key)
    # Lanes of one track overlap: what counts is the latest end so far. Keys get their own range
    # of time, so that one running maximum serves all.
    span_ns = int(rows.end_ns.max()) + tick_ns + 1
    base_ns = (np.cumsum(is_new_key) - 1) * span_ns
    latest_end_ns = np.maximum.accumulate(rows.end_ns + base_ns)
    starts_new = is_new_key | np.append(
        True, rows.start_ns[1:] + base_ns[1:] >= latest_end_ns[:-1] + tick_ns
    )
    first = np.flatnonzero(starts_new)
    last = np.append(first[1:], len(starts_new)) - 1
    blocks = rows.chosen(first)
    return DrawnSlices(
        rank=blocks.rank,
        track=blocks.track,
        kind=blocks.kind,
        node=np.where(first == last, blocks.node, MERGED),
        start_ns=blocks.start_ns,
        end_ns=latest_end_ns[last] - base_ns[last],
    )

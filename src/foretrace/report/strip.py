"""`Strip`: timelines packed small enough to be drawn, zoomed and hovered inside one page.

In: timelines by title. Out: per rank and title three tracks (host, compute, communication) of
slices in ticks. Where there are too many slices to ship, neighbours of one kind that stand closer
than a tick are drawn as one; nothing else is left out.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.analyze import CollectiveTable
from foretrace.base import Bools, Int32s, Int64s, UInt8s
from foretrace.graph import DEVICE_KINDS, NodeKind, Timeline

# A page of this many slices stays below about 1 MB and redraws at once in a browser.
MAX_SLICES = 40_000
# More rows than this nobody reads; the Perfetto file has them all.
MAX_RANKS = 16
MAX_NAME_LENGTH = 90
# Coarsest tick: a window of 2,000 ticks is about one tick per pixel of the page.
COARSEST = 2_000

TRACKS = ("host", "compute", "communication")
SLICE_KINDS = ("host call", "operator", "kernel", "copy", "wait", "transfer")
_HOST_CALL, _OPERATOR, _KERNEL, _COPY, _WAIT, _TRANSFER = range(len(SLICE_KINDS))
MERGED = -1  # name of a slice that stands for several

_NOT_DRAWN = 255
_KIND = np.full(256, _NOT_DRAWN, np.uint8)
_TRACK = np.full(256, _NOT_DRAWN, np.uint8)
for _node_kind, _slice_kind, _track in (
    (NodeKind.CALL, _HOST_CALL, 0),
    (NodeKind.LAUNCH, _HOST_CALL, 0),
    (NodeKind.SYNC, _HOST_CALL, 0),
    (NodeKind.OPERATOR, _OPERATOR, 0),
    *((kind, _KERNEL if kind == NodeKind.KERNEL else _COPY, 1) for kind in DEVICE_KINDS),
):
    _KIND[_node_kind] = _slice_kind
    _TRACK[_node_kind] = _track


@dataclass(frozen=True)
class _Rows:
    """Slices of one timeline; sorted by rank, track, kind, start."""

    rank: Int32s  # int32[slices]
    track: UInt8s  # uint8[slices], position in `TRACKS`
    kind: UInt8s  # uint8[slices], position in `SLICE_KINDS`
    name: Int64s  # int64[slices], position in the graph's names; MERGED
    start_ns: Int64s  # int64[slices]
    end_ns: Int64s  # int64[slices]

    def chosen(self, rows: Int64s | Bools) -> _Rows:
        """These rows alone."""
        return _Rows(
            self.rank[rows],
            self.track[rows],
            self.kind[rows],
            self.name[rows],
            self.start_ns[rows],
            self.end_ns[rows],
        )


def strip(
    timeline_by_title: Mapping[str, Timeline],
    collectives_by_title: Mapping[str, CollectiveTable],
    *,
    max_slices: int = MAX_SLICES,
    max_ranks: int = MAX_RANKS,
) -> dict[str, object]:
    """The packed timelines as builtins, for the page's script.

    Times are in ticks of `tick_ns`; the columns of each track are little-endian numbers in
    base64: `start` and `length` uint32, `kind` uint8, `name` int32.
    """
    (graph,) = {id(each.graph): each.graph for each in timeline_by_title.values()}.values()
    shown_ranks = graph.ranks[:max_ranks]
    rows_by_title = {
        title: _rows(timeline, collectives_by_title[title], shown_ranks)
        for title, timeline in timeline_by_title.items()
    }
    window_ns = max((int(t.end_ns.max(initial=1)) for t in timeline_by_title.values()), default=1)
    tick_ns = max(1, window_ns >> 31)  # a tick and its count fit 32 bits
    finest = 1 << 16
    merged = rows_by_title
    while sum(len(rows.rank) for rows in merged.values()) > max_slices and finest >= COARSEST:
        tick_ns = max(1, window_ns // finest)
        merged = {title: _merged(rows, tick_ns) for title, rows in rows_by_title.items()}
        finest //= 2
    names = np.unique(np.concatenate([rows.name for rows in merged.values()]))
    names = names[names >= 0]
    return {
        "window_ns": window_ns,
        "tick_ns": tick_ns,
        "tracks": TRACKS,
        "kinds": SLICE_KINDS,
        "names": [_short(graph.names[index]) for index in names.tolist()],
        "ranks": shown_ranks,
        "num_ranks_left_out": len(graph.ranks) - len(shown_ranks),
        "rows": [
            _packed(rows, rank, track, tick_ns=tick_ns, names=names) | {"title": title}
            for rank in shown_ranks
            for track in range(len(TRACKS))
            for title, rows in merged.items()
        ],
    }


def _rows(timeline: Timeline, collectives: CollectiveTable, ranks: tuple[int, ...]) -> _Rows:
    graph = timeline.graph
    nodes = np.flatnonzero((_TRACK[graph.kind] != _NOT_DRAWN) & np.isin(graph.rank, ranks))
    is_shown = np.isin(collectives.rank, ranks)
    sides = []
    for kind, start_ns, end_ns in (
        (_WAIT, collectives.arrive_ns, collectives.transfer_begin_ns),
        (_TRANSFER, collectives.transfer_begin_ns, collectives.finish_ns),
    ):
        side = np.flatnonzero(is_shown & (end_ns > start_ns))
        sides.append((np.full(len(side), kind, np.uint8), side, start_ns[side], end_ns[side]))
    kinds, places, starts, ends = (np.concatenate(part) for part in zip(*sides, strict=True))
    rows = _Rows(
        rank=np.concatenate([graph.rank[nodes], collectives.rank[places]]),
        track=np.concatenate([_TRACK[graph.kind[nodes]], np.full(len(places), 2, np.uint8)]),
        kind=np.concatenate([_KIND[graph.kind[nodes]], kinds]),
        name=np.concatenate([graph.name[nodes], np.full(len(places), MERGED)]).astype(np.int64),
        start_ns=np.concatenate([timeline.start_ns[nodes], starts]),
        end_ns=np.concatenate([timeline.end_ns[nodes], ends]),
    )
    return rows.chosen(np.lexsort((rows.start_ns, rows.kind, rows.track, rows.rank)))


def _merged(rows: _Rows, tick_ns: int) -> _Rows:
    """Slices of one kind that stand closer than a tick as one."""
    if not len(rows.rank):
        return rows
    key = (rows.rank.astype(np.int64) << 16) | (rows.track.astype(np.int64) << 8) | rows.kind
    is_new_key = np.append(True, key[1:] != key[:-1])
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
    return _Rows(
        rank=blocks.rank,
        track=blocks.track,
        kind=blocks.kind,
        name=np.where(first == last, blocks.name, MERGED),
        start_ns=blocks.start_ns,
        end_ns=latest_end_ns[last] - base_ns[last],
    )


def _packed(
    rows: _Rows, rank: int, track: int, *, tick_ns: int, names: Int64s
) -> dict[str, object]:
    own = rows.chosen((rows.rank == rank) & (rows.track == track))
    own = own.chosen(np.argsort(own.start_ns, kind="stable"))
    start = own.start_ns // tick_ns
    length = np.maximum(-(-own.end_ns // tick_ns) - start, 1)
    name = np.where(own.name < 0, MERGED, np.searchsorted(names, own.name))
    return {
        "rank": rank,
        "track": track,
        "start": _base64(start, "<u4"),
        "length": _base64(length, "<u4"),
        "kind": _base64(own.kind, "u1"),
        "name": _base64(name, "<i4"),
    }


def _base64(values: Int64s | UInt8s, dtype: str) -> str:
    return base64.b64encode(values.astype(dtype).tobytes()).decode()


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME_LENGTH else name[: MAX_NAME_LENGTH - 3] + "..."

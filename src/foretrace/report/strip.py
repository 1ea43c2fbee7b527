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

from foretrace.analyze import CollectiveTable, StepTable
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
SLICE_KINDS = ("host call", "operator", "kernel", "copy", "wait for other ranks", "transfer")
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
class KindShown:
    """An entry of the legend."""

    index: int  # position in `SLICE_KINDS`
    name: str


@dataclass(frozen=True)
class Strip:
    """Timelines in ticks of `tick_ns`, small enough for a page.

    The columns of each row are little-endian numbers in base64: `start` and `length` uint32,
    `kind` uint8, `name` int32; `marks` are the begins of steps.
    """

    window_ns: int
    tick_ns: int
    names: tuple[str, ...]
    ranks: tuple[int, ...]
    num_ranks_left_out: int
    rows: tuple[dict[str, object], ...]
    kinds_shown: tuple[KindShown, ...]

    def as_json(self) -> dict[str, object]:
        """Builtins, for the page's script."""
        return {
            "window_ns": self.window_ns,
            "tick_ns": self.tick_ns,
            "tracks": TRACKS,
            "kinds": SLICE_KINDS,
            "names": self.names,
            "num_ranks_left_out": self.num_ranks_left_out,
            "rows": self.rows,
        }


@dataclass(frozen=True)
class _Rows:
    """Slices of one timeline; sorted by rank, track, kind, start."""

    rank: Int32s  # int32[slices]
    track: UInt8s  # uint8[slices], position in `TRACKS`
    kind: UInt8s  # uint8[slices], position in `SLICE_KINDS`
    name: Int64s  # int64[slices], position in the graph's names; MERGED
    start_ns: Int64s  # int64[slices]
    end_ns: Int64s  # int64[slices]

    def __len__(self) -> int:
        """Number of slices."""
        return len(self.rank)

    def of(self, rank: int, track: int) -> _Rows:
        """One row of the drawing, by start."""
        own = self.chosen((self.rank == rank) & (self.track == track))
        return own.chosen(np.argsort(own.start_ns, kind="stable"))

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
    steps_by_title: Mapping[str, StepTable],
    *,
    max_slices: int = MAX_SLICES,
    max_ranks: int = MAX_RANKS,
) -> Strip:
    """Timelines of the same job, packed for drawing one above the other."""
    graph = next(iter(timeline_by_title.values())).graph
    ranks = graph.ranks[:max_ranks]
    window_ns = max(int(each.end_ns.max(initial=1)) for each in timeline_by_title.values())
    whole = {
        title: _rows(timeline, collectives_by_title[title], ranks)
        for title, timeline in timeline_by_title.items()
    }
    rows_by_title, tick_ns = _thinned(whole, window_ns, max_slices)
    used = np.unique(np.concatenate([rows.name for rows in rows_by_title.values()]))
    used = used[used >= 0]
    kinds = np.unique(np.concatenate([rows.kind for rows in rows_by_title.values()]))
    return Strip(
        window_ns=window_ns,
        tick_ns=tick_ns,
        names=tuple(_short(graph.names[index]) for index in used.tolist()),
        ranks=ranks,
        num_ranks_left_out=len(graph.ranks) - len(ranks),
        rows=tuple(
            _packed(rows.of(rank, track), tick_ns=tick_ns, used=used)
            | {"rank": rank, "track": track, "title": title}
            | {"marks": (_step_begins_ns(steps_by_title[title], rank) // tick_ns).tolist()}
            for rank in ranks
            for track in range(len(TRACKS))
            for title, rows in rows_by_title.items()
        ),
        kinds_shown=tuple(KindShown(index, SLICE_KINDS[index]) for index in kinds.tolist()),
    )


def _thinned(
    whole: Mapping[str, _Rows], window_ns: int, max_slices: int
) -> tuple[Mapping[str, _Rows], int]:
    """Rows that are few enough, and the tick it took."""
    tick_ns = max(1, window_ns >> 31)  # a tick and its count fit 32 bits
    merged = whole
    num_ticks = 1 << 16
    while sum(len(rows) for rows in merged.values()) > max_slices and num_ticks >= COARSEST:
        tick_ns = max(1, window_ns // num_ticks)
        merged = {title: _merged(rows, tick_ns) for title, rows in whole.items()}
        num_ticks //= 2
    return merged, tick_ns


def _step_begins_ns(steps: StepTable, rank: int) -> Int64s:
    begins_ns: Int64s = steps.begin_ns[steps.rank == rank]
    return begins_ns


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
    if not len(rows):
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


def _packed(rows: _Rows, *, tick_ns: int, used: Int64s) -> dict[str, object]:
    start = rows.start_ns // tick_ns
    length = np.maximum(-(-rows.end_ns // tick_ns) - start, 1)
    name = np.where(rows.name < 0, MERGED, np.searchsorted(used, rows.name))
    return {
        "start": _base64(start, "<u4"),
        "length": _base64(length, "<u4"),
        "kind": _base64(rows.kind, "u1"),
        "name": _base64(name, "<i4"),
    }


def _base64(values: Int64s | UInt8s, dtype: str) -> str:
    return base64.b64encode(values.astype(dtype).tobytes()).decode()


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME_LENGTH else name[: MAX_NAME_LENGTH - 3] + "..."

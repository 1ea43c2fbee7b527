"""`Strip`: timelines packed small enough to be drawn, zoomed and searched inside one page.

In: timelines by title. Out: per rank and title four tracks (host, compute, communication, idle) of
slices in ticks, each saying what it is: name, operator, class, block. Where there are too many
slices to ship, neighbours of one kind that stand closer than a tick are drawn as one; of many
ranks some are drawn; nothing else is left out.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from foretrace.analyze import CollectiveTable, IdleCauses, NodeLabels, StepTable
from foretrace.base import Int32s, Int64s, UInt8s
from foretrace.graph import ExecutionGraph, Timeline
from foretrace.report.reasons import Reasons, reasons
from foretrace.report.slices import (
    MERGED,
    SLICE_KINDS,
    TRACK_OF_KIND,
    TRACKS,
    Slices,
    slices,
    thinned,
    with_idle,
)
from foretrace.report.subjects import FACETS, Subjects, subjects

# 194,000 slices (a public trace, both sides) take 0.5 MB; a page of this many stays below 2 MB.
MAX_SLICES = 250_000
# More rows than this nobody reads; the Perfetto file has them all.
MAX_RANKS = 16


@dataclass(frozen=True)
class PathSpans:
    """Spans on the critical path: on whose track each lies."""

    node: Int64s  # int64[spans]
    begin_ns: Int64s  # int64[spans]
    end_ns: Int64s  # int64[spans]


@dataclass(frozen=True)
class Drawn:
    """One timeline to be drawn, with what is drawn of it."""

    timeline: Timeline
    collectives: CollectiveTable
    steps: StepTable
    path: PathSpans | None = None  # the critical path of one of its steps
    idle: IdleCauses | None = None
    labels: NodeLabels | None = None  # of its graph, where that is not the first timeline's


@dataclass(frozen=True)
class StripRow:
    """One track of one rank in one timeline; slices by start."""

    rank: int
    track: int  # position in `TRACKS`
    title: str  # of the timeline
    start: Int32s  # int32[slices], in ticks
    length: Int32s  # int32[slices], at least 1
    subject: Int32s  # int32[slices], position in the strip's `facets`; MERGED
    kind: UInt8s  # uint8[slices], position in `SLICE_KINDS`
    path_start: Int32s  # int32[spans], in ticks, of the critical path
    path_length: Int32s  # int32[spans]
    marks: tuple[int, ...]  # begins of steps, in ticks

    @property
    def words(self) -> tuple[Int32s, ...]:
        """The columns of 32 bits; starts as differences, which pack better."""
        starts = (_differences(self.start), _differences(self.path_start))
        return starts[0], self.length, self.subject, starts[1], self.path_length


@dataclass(frozen=True)
class Strip:
    """Timelines in ticks of `tick_ns`, small enough for a page."""

    window_ns: int
    tick_ns: int
    texts: tuple[str, ...]
    facets: tuple[tuple[int, ...], ...]  # per subject, positions in `texts` by `FACETS`; -1: none
    ranks: tuple[int, ...]
    num_ranks_left_out: int
    rows: tuple[StripRow, ...]
    kinds_shown: tuple[int, ...]  # positions in `SLICE_KINDS`

    def as_json(self) -> dict[str, object]:
        """Builtins, for the page's script.

        The rows' columns stand in `packed`, little-endian, deflated, in base64: those of 32 bits
        row by row in the order of `StripRow.words`, then the kinds of all rows.
        """
        columns: list[Int32s | UInt8s] = [column for row in self.rows for column in row.words]
        columns += [row.kind for row in self.rows]
        deflate = zlib.compressobj(level=9, wbits=-zlib.MAX_WBITS)
        packed = [deflate.compress(_little_endian(column)) for column in columns]
        return {
            "window_ns": self.window_ns,
            "tick_ns": self.tick_ns,
            "tracks": TRACKS,
            "kinds": SLICE_KINDS,
            "kinds_shown": self.kinds_shown,
            "facet_names": FACETS,
            "texts": self.texts,
            "facets": self.facets,
            "ranks": self.ranks,
            "num_ranks_left_out": self.num_ranks_left_out,
            "rows": [
                {
                    "rank": row.rank,
                    "track": row.track,
                    "title": row.title,
                    "num_slices": len(row.start),
                    "num_spans": len(row.path_start),
                    "marks": row.marks,
                }
                for row in self.rows
            ],
            "packed": base64.b64encode(b"".join([*packed, deflate.flush()])).decode(),
        }


def strip(
    drawn_by_title: Mapping[str, Drawn],
    labels: NodeLabels,
    *,
    first_ranks: Sequence[int] = (),
    max_slices: int = MAX_SLICES,
    max_ranks: int = MAX_RANKS,
) -> Strip:
    """Timelines of the same job, packed for drawing one above the other.

    Args:
        labels: of the first timeline's graph, and of all that share it.
        first_ranks: ranks to draw if not all fit, most important first; then the lowest.
    """
    known = _numbered(drawn_by_title, labels)
    all_ranks = tuple(sorted({rank for one in known.graphs for rank in one.ranks}))
    ranks = _chosen_ranks(all_ranks, first_ranks, max_ranks)
    window_ns = max(int(each.timeline.end_ns.max(initial=1)) for each in drawn_by_title.values())
    why = reasons(
        {title: one.idle for title, one in drawn_by_title.items() if one.idle is not None},
        first=known.num_nodes,
    )
    slices_by_title, tick_ns = thinned(
        {
            title: _whole(title, one, why, (known.first_by_title[title], ranks))
            for title, one in drawn_by_title.items()
        },
        window_ns=window_ns,
        max_slices=max_slices,
    )
    nodes = np.unique(np.concatenate([rows.node for rows in slices_by_title.values()]))
    nodes = nodes[nodes != MERGED]
    about = known.subjects(nodes[nodes < why.first]).extended(
        [why.facets[number] for number in (nodes[nodes >= why.first] - why.first).tolist()]
    )
    kinds = np.unique(np.concatenate([rows.kind for rows in slices_by_title.values()]))
    return Strip(
        window_ns=window_ns,
        tick_ns=tick_ns,
        texts=about.texts,
        facets=about.facets,
        ranks=ranks,
        num_ranks_left_out=len(all_ranks) - len(ranks),
        rows=tuple(
            _row(
                one,
                slices_by_title[title].of(rank, track),
                (rank, track, title),
                tick_ns=tick_ns,
                subject_of=(nodes, about.of_node),
            )
            for rank in ranks
            for track in range(len(TRACKS))
            for title, one in drawn_by_title.items()
        ),
        kinds_shown=tuple(kinds.tolist()),
    )


@dataclass(frozen=True)
class _Numbered:
    """Nodes of several graphs under numbers of one range."""

    graphs: tuple[ExecutionGraph, ...]  # each once
    labels: tuple[NodeLabels, ...]  # of each
    firsts: tuple[int, ...]  # number of each graph's first node
    first_by_title: Mapping[str, int]
    num_nodes: int  # of all of them

    def subjects(self, numbers: Int64s) -> Subjects:
        """What these nodes are about; `numbers` rise."""
        parts = [
            subjects(graph, own - first, labels)
            for graph, labels, first in zip(self.graphs, self.labels, self.firsts, strict=True)
            for own in (numbers[(numbers >= first) & (numbers < first + graph.num_nodes)],)
        ]
        return reduce(Subjects.joined, parts)


def _numbered(drawn_by_title: Mapping[str, Drawn], labels: NodeLabels) -> _Numbered:
    graphs: list[ExecutionGraph] = []
    of_graphs: list[NodeLabels] = []
    firsts = [0]
    first_by_title = {}
    for title, one in drawn_by_title.items():
        graph = one.timeline.graph
        at = next((at for at, known in enumerate(graphs) if known is graph), len(graphs))
        if at == len(graphs):
            graphs.append(graph)
            of_graphs.append(labels if one.labels is None else one.labels)
            firsts.append(firsts[-1] + graph.num_nodes)
        first_by_title[title] = firsts[at]
    return _Numbered(
        tuple(graphs), tuple(of_graphs), tuple(firsts[:-1]), first_by_title, firsts[-1]
    )


def _whole(title: str, one: Drawn, why: Reasons, place: tuple[int, tuple[int, ...]]) -> Slices:
    """All slices of one timeline, its nodes under their numbers."""
    first, ranks = place
    found = slices(one.timeline, one.collectives, ranks).numbered_from(first)
    if one.idle is None:
        return found
    return with_idle(found, one.idle, why.number_by_title[title], ranks)


def _chosen_ranks(ranks: tuple[int, ...], first: Sequence[int], max_ranks: int) -> tuple[int, ...]:
    if len(ranks) <= max_ranks:
        return ranks
    wanted = dict.fromkeys([*(rank for rank in first if rank in set(ranks)), *ranks])
    return tuple(sorted(list(wanted)[:max_ranks]))


def _step_begins_ns(steps: StepTable, rank: int) -> Int64s:
    begins_ns: Int64s = steps.begin_ns[steps.rank == rank]
    return begins_ns


def _row(
    drawn: Drawn,
    rows: Slices,
    place: tuple[int, int, str],
    *,
    tick_ns: int,
    subject_of: tuple[Int64s, Int64s],
) -> StripRow:
    """One row in ticks, its nodes as subjects."""
    rank, track, title = place
    nodes, subject_of_node = subject_of
    start = rows.start_ns // tick_ns
    length = np.maximum(-(-rows.end_ns // tick_ns) - start, 1)
    subject = np.full(len(rows), MERGED, np.int32)
    is_single = rows.node != MERGED
    subject[is_single] = subject_of_node[np.searchsorted(nodes, rows.node[is_single])]
    path_start, path_length = _path(drawn, rank, track, tick_ns=tick_ns)
    return StripRow(
        rank=rank,
        track=track,
        title=title,
        start=start.astype(np.int32),
        length=length.astype(np.int32),
        subject=subject,
        kind=rows.kind,
        path_start=path_start,
        path_length=path_length,
        marks=tuple((_step_begins_ns(drawn.steps, rank) // tick_ns).tolist()),
    )


def _path(drawn: Drawn, rank: int, track: int, *, tick_ns: int) -> tuple[Int32s, Int32s]:
    """The spans of the critical path on one row; those closer than a tick as one."""
    none = np.empty(0, np.int32)
    if drawn.path is None:
        return none, none
    graph, path = drawn.timeline.graph, drawn.path
    own = (graph.rank[path.node] == rank) & (TRACK_OF_KIND[graph.kind[path.node]] == track)
    if not own.any():
        return none, none
    order = np.argsort(path.begin_ns[own], kind="stable")
    start = path.begin_ns[own][order] // tick_ns
    end = np.maximum(-(-path.end_ns[own][order] // tick_ns), start + 1)
    first = np.flatnonzero(np.append(True, start[1:] > np.maximum.accumulate(end)[:-1] + 1))
    end = np.maximum.reduceat(end, first)
    return start[first].astype(np.int32), (end - start[first]).astype(np.int32)


def _differences(rising: Int32s) -> Int32s:
    return np.diff(rising, prepend=np.int32(0)).astype(np.int32)


def _little_endian(column: UInt8s | Int32s) -> bytes:
    return column.astype(column.dtype.newbyteorder("<")).tobytes()

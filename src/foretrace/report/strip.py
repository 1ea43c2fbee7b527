"""`Strip`: timelines packed small enough to be drawn, zoomed and searched inside one page.

In: timelines by title. Out: per rank and title four tracks (host, compute, communication, idle) of
slices in ticks, each saying what it is: name, operator, class, block. Where there are too many
slices to ship, neighbours of one kind that stand closer than a tick are drawn as one; of many
ranks some are drawn; nothing else is left out.
"""

from __future__ import annotations

import base64
import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from foretrace.analyze import (
    FRAME_KINDS,
    CollectiveTable,
    HostFrames,
    IdleCauses,
    NodeLabels,
    StepTable,
)
from foretrace.base import Int32s, Int64s, UInt8s
from foretrace.graph import ExecutionGraph, Timeline
from foretrace.report.awaited import (
    NOBODY,
    Awaited,
    Reasons,
    awaited_culprits,
    awaited_nodes,
    reasons,
)
from foretrace.report.slices import (
    MERGED,
    SLICE_KINDS,
    TRACK_OF_KIND,
    TRACKS,
    DrawnSlices,
    frame_kind_text,
    frame_slices,
    slices,
    thinned,
    with_idle,
)
from foretrace.report.subjects import FACETS, SliceSubjects, shortened, subjects

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
class DrawnTimeline:
    """One timeline to be drawn, with what is drawn of it."""

    timeline: Timeline
    collectives: CollectiveTable
    steps: StepTable
    path: PathSpans | None = None  # the critical path of one of its steps
    idle: IdleCauses | None = None
    labels: NodeLabels | None = None  # of its graph, where that is not the first timeline's
    frames: HostFrames | None = None  # what its host threads were inside of


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
    awaited_row: Int32s  # int32[slices], position of the row that was waited for; NOBODY
    awaited_since: Int32s  # int32[slices], ticks from what was waited for to the slice's start

    @property
    def words(self) -> tuple[Int32s, ...]:
        """The columns of 32 bits; starts as differences, which pack better."""
        starts = (_differences(self.start), _differences(self.path_start))
        awaited = (self.awaited_row, self.awaited_since)
        return starts[0], self.length, self.subject, *awaited, starts[1], self.path_length


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
    steps: tuple[tuple[str, int], ...]  # names, and where their first rank begins, in ticks
    num_frames_left_out: int
    longest_left_out_ns: int  # of frames

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
            "steps": self.steps,
            "num_frames_left_out": self.num_frames_left_out,
            "longest_left_out_ns": self.longest_left_out_ns,
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
    drawn_by_title: Mapping[str, DrawnTimeline],
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
    frames = _Frames(why.first + len(why.facets), drawn_by_title)
    slices_by_title = {
        title: frames.beside(rows, title, ranks) for title, rows in slices_by_title.items()
    }
    nodes = np.unique(np.concatenate([rows.node for rows in slices_by_title.values()]))
    nodes = nodes[nodes != MERGED]
    is_reason = (nodes >= why.first) & (nodes < frames.first)
    about = (
        known.subjects(nodes[nodes < why.first])
        .extended([why.facets[number] for number in (nodes[is_reason] - why.first).tolist()])
        .extended([frames.facets(number) for number in nodes[nodes >= frames.first].tolist()])
    )
    places = {
        place: at
        for at, place in enumerate(itertools.product(ranks, range(len(TRACKS)), drawn_by_title))
    }
    layout = _Layout(tick_ns, nodes, about.of_node, places)
    kinds = np.unique(np.concatenate([rows.kind for rows in slices_by_title.values()]))
    awaited_by_title = {
        title: _awaited(title, one, why, known) for title, one in drawn_by_title.items()
    }
    return Strip(
        window_ns=window_ns,
        tick_ns=tick_ns,
        texts=about.texts,
        facets=about.facets,
        ranks=ranks,
        num_ranks_left_out=len(all_ranks) - len(ranks),
        rows=tuple(
            layout.row(
                drawn_by_title[title],
                slices_by_title[title].of(rank, track),
                (rank, track, title),
                awaited=awaited_by_title[title],
            )
            for rank, track, title in places
        ),
        kinds_shown=tuple(kinds.tolist()),
        steps=_steps(next(iter(drawn_by_title.values())).steps, tick_ns),
        num_frames_left_out=frames.num_left_out,
        longest_left_out_ns=frames.longest_left_out_ns,
    )


def _awaited(title: str, one: DrawnTimeline, why: Reasons, known: _Numbered) -> Awaited:
    """What the slices of one timeline waited for, by their numbers."""
    num_numbers = why.first + len(why.facets)
    found = awaited_nodes(one.timeline).shifted(known.first_by_title[title], num_numbers)
    if one.idle is None:
        return found
    return awaited_culprits(one.idle, why.number_by_title[title], found)


def _steps(steps: StepTable, tick_ns: int) -> tuple[tuple[str, int], ...]:
    """Every step's name, and when the first rank begins it."""
    return tuple(
        (steps.step_names[step], int(steps.begin_ns[steps.step == step].min()) // tick_ns)
        for step in np.unique(steps.step).tolist()
    )


@dataclass(frozen=True)
class _Frames:
    """Frames of host threads under numbers from `first` on."""

    first: int
    drawn_by_title: Mapping[str, DrawnTimeline]

    @property
    def _found(self) -> list[HostFrames]:
        return [one.frames for one in self.drawn_by_title.values() if one.frames is not None]

    @property
    def num_left_out(self) -> int:
        return sum(one.num_left_out for one in self._found)

    @property
    def longest_left_out_ns(self) -> int:
        return max((one.longest_left_out_ns for one in self._found), default=0)

    def beside(self, rows: DrawnSlices, title: str, ranks: tuple[int, ...]) -> DrawnSlices:
        """The slices of a timeline with its frames."""
        frames = self.drawn_by_title[title].frames
        return rows if frames is None else rows.joined(frame_slices(frames, ranks, self.first))

    def facets(self, number: int) -> tuple[str, str, str, str]:
        """Texts by `FACETS` of a frame's number; one timeline alone has frames."""
        name, kind = divmod(number - self.first, len(FRAME_KINDS))
        return (shortened(self._found[0].names[name]), "", frame_kind_text(kind), "")


@dataclass(frozen=True)
class _Numbered:
    """Nodes of several graphs under numbers of one range."""

    graphs: tuple[ExecutionGraph, ...]  # each once
    labels: tuple[NodeLabels, ...]  # of each
    firsts: tuple[int, ...]  # number of each graph's first node
    first_by_title: Mapping[str, int]
    num_nodes: int  # of all of them

    def subjects(self, numbers: Int64s) -> SliceSubjects:
        """What these nodes are about; `numbers` rise."""
        parts = [
            subjects(graph, own - first, labels)
            for graph, labels, first in zip(self.graphs, self.labels, self.firsts, strict=True)
            for own in (numbers[(numbers >= first) & (numbers < first + graph.num_nodes)],)
        ]
        return reduce(SliceSubjects.joined, parts)


def _numbered(drawn_by_title: Mapping[str, DrawnTimeline], labels: NodeLabels) -> _Numbered:
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


def _whole(
    title: str, one: DrawnTimeline, why: Reasons, place: tuple[int, tuple[int, ...]]
) -> DrawnSlices:
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


@dataclass(frozen=True)
class _Layout:
    """Where slices stand: their ticks, what they are about, and the rows that there are."""

    tick_ns: int
    nodes: Int64s  # int64[numbers], rising, of all slices
    subject_of_node: Int64s  # int64[numbers]
    places: Mapping[tuple[int, int, str], int]  # rank, track and title to the row's position

    def row(
        self,
        drawn: DrawnTimeline,
        rows: DrawnSlices,
        place: tuple[int, int, str],
        *,
        awaited: Awaited,
    ) -> StripRow:
        """One row in ticks, its nodes as subjects."""
        rank, track, title = place
        start = rows.start_ns // self.tick_ns
        length = np.maximum(-(-rows.end_ns // self.tick_ns) - start, 1)
        subject = np.full(len(rows), MERGED, np.int32)
        is_single = rows.node != MERGED
        at = np.searchsorted(self.nodes, rows.node[is_single])
        subject[is_single] = self.subject_of_node[at]
        path_start, path_length = _path(drawn, rank, track, tick_ns=self.tick_ns)
        awaited_row, awaited_ns = self._awaited(rows, title, awaited)
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
            marks=tuple((_step_begins_ns(drawn.steps, rank) // self.tick_ns).tolist()),
            awaited_row=awaited_row,
            awaited_since=(start - awaited_ns // self.tick_ns).astype(np.int32),
        )

    def _awaited(self, rows: DrawnSlices, title: str, awaited: Awaited) -> tuple[Int32s, Int64s]:
        """The row, and the moment in ns, that each slice waited for."""
        row = np.full(len(rows), NOBODY, np.int32)
        at_ns = rows.start_ns.copy()
        known = np.flatnonzero((rows.node != MERGED) & (rows.node < len(awaited)))
        number = rows.node[known]
        row[known] = [
            self.places.get((rank, track, title), NOBODY)
            for rank, track in zip(
                awaited.rank[number].tolist(), awaited.track[number].tolist(), strict=True
            )
        ]
        moment_ns = awaited.at_ns[number]
        at_ns[known] = np.where(moment_ns == NOBODY, rows.end_ns[known], moment_ns)
        at_ns[row == NOBODY] = rows.start_ns[row == NOBODY]
        return row, at_ns


def _path(drawn: DrawnTimeline, rank: int, track: int, *, tick_ns: int) -> tuple[Int32s, Int32s]:
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

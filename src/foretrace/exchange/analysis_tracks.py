"""Tracks that callers add: what an analysis found, beside the timeline it was found in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.exchange.blocks import block_name
from foretrace.exchange.rows import ADDED_ORDER, COUNTERS_ORDER
from foretrace.exchange.tracks import (
    MISSING,
    Argument,
    Counter,
    Layout,
    SliceRows,
    Slices,
    Track,
    Values,
    no_nodes,
)
from foretrace.graph import NO_LANE, NO_NODE, Timeline

PATH_TRACK = "critical path"
CAUSE_TRACK = "idle: cause"


@dataclass(frozen=True)
class Processes:
    """The processes of one timeline."""

    title: str
    by_rank: dict[int, int]  # rank -> position in `Layout.processes`
    by_track: dict[str, int]  # name of a track of the job -> the same


def path_slices(
    timeline: Timeline,
    node: Int64s,
    *,
    is_work: Bools,
    begin_ns: Int64s,
    end_ns: Int64s,
    labels: Sequence[str],
) -> Slices:
    """A critical path as a track of the job, with arrows wherever it changes lanes.

    Args:
        node: int64[pieces], in order of time: whose work a piece is, or that waited.
        is_work: bool[pieces]; other pieces are waiting, and go under their label.
        begin_ns: int64[pieces].
        end_ns: int64[pieces].
        labels: class of work or of waiting of each piece.
    """
    graph = timeline.graph
    names: dict[str, int] = {}
    texts = [
        graph.names[name] if works and name >= 0 else label
        for name, works, label in zip(
            graph.name[node].tolist(), is_work.tolist(), labels, strict=True
        )
    ]
    name = np.array([names.setdefault(text, len(names)) for text in texts], np.int64)
    lane, operator = graph.lane[node].tolist(), graph.operator[node].tolist()
    return Slices(
        track=PATH_TRACK,
        rank=None,
        names=tuple(names),
        name=name,
        start_ns=begin_ns,
        end_ns=end_ns,
        node=node,
        arguments=(
            ("class", tuple(labels)),
            ("lane", tuple(graph.lanes[one].label if one != NO_LANE else "" for one in lane)),
            ("operator", tuple(graph.names[one] if one >= 0 else "" for one in operator)),
            ("block", tuple(block_name(graph, one) for one in node.tolist())),
        ),
        is_path=True,
    )


def cause_slices(
    rank: Int64s,
    *,
    begin_ns: Int64s,
    end_ns: Int64s,
    causes: Sequence[str],
    details: Sequence[str],
) -> tuple[Slices, ...]:
    """One track per rank of stretches of idle time, each named by its cause.

    What two steps that overlap on a rank both count is drawn once.

    Args:
        rank: int64[stretches].
        begin_ns: int64[stretches].
        end_ns: int64[stretches].
        causes: of each stretch.
        details: what is responsible, of each stretch; "" unknown.
    """
    names = tuple(dict.fromkeys(causes))
    position = {text: index for index, text in enumerate(names)}
    name = np.array([position[text] for text in causes], np.int64)
    tracks = []
    for one in np.unique(rank).tolist():
        rows = np.flatnonzero(rank == one)
        rows = rows[np.lexsort((end_ns[rows], begin_ns[rows]))]
        rows, from_ns = _drawn_once(rows, begin_ns[rows], end_ns[rows])
        tracks.append(
            Slices(
                track=CAUSE_TRACK,
                rank=one,
                names=names,
                name=name[rows],
                start_ns=from_ns,
                end_ns=end_ns[rows],
                arguments=(("responsible", tuple(details[row] for row in rows.tolist())),),
            )
        )
    return tuple(tracks)


def _drawn_once(rows: Int64s, begin_ns: Int64s, end_ns: Int64s) -> tuple[Int64s, Int64s]:
    """Stretches by begin without what an earlier one covers, and where each now begins."""
    covered_ns = np.maximum.accumulate(np.concatenate([begin_ns[:1], end_ns]))[:-1]
    from_ns = np.maximum(begin_ns, covered_ns)
    kept = np.flatnonzero(from_ns < end_ns)
    return rows[kept], from_ns[kept]


def added_rows(track: Slices, layout: Layout, where: tuple[Processes, int]) -> SliceRows:
    """A caller's slices on a track of their own; `where` says the processes and the order."""
    processes, order = where
    place = layout.place(_process_of(track, processes), track.track, ADDED_ORDER + order)
    first = layout.add_texts(track.names)
    arguments = [
        Argument(
            key, np.array([layout.text(one) if one else MISSING for one in texts]), is_text=True
        )
        for key, texts in track.arguments
        if any(texts)
    ]
    return SliceRows(
        place=np.full(len(track.name), place, np.int64),
        name=first + track.name,
        start_ns=track.start_ns,
        end_ns=track.end_ns,
        node=no_nodes(len(track.name)),
        arguments=tuple(arguments),
    )


def added_values(counter: Counter, where: tuple[Processes, int]) -> Values:
    """A counter in its process."""
    processes, order = where
    return Values(
        process=_process_of(counter, processes),
        name=counter.track,
        unit=counter.unit,
        order=COUNTERS_ORDER + order,
        at_ns=counter.at_ns,
        value=counter.value,
    )


def _process_of(track: Track, processes: Processes) -> int:
    if track.rank is None:
        return processes.by_track[track.track]
    try:
        return processes.by_rank[track.rank]
    except KeyError:
        have = ", ".join(map(str, sorted(processes.by_rank)[:8])) or "none"
        raise ValueError(
            f"track {track.track!r} is of rank {track.rank}, which the timeline "
            f"{processes.title!r} does not have: its ranks are {have}"
        ) from None


def path_nodes(track: Slices) -> Int64s:
    """The nodes that a path goes through, each once in a row."""
    if track.node is None or not track.is_path:
        return np.zeros(0, np.int64)
    node: Int64s = track.node[track.node != NO_NODE]
    changes: Int64s = np.flatnonzero(np.diff(node, prepend=NO_NODE))
    return node[changes]

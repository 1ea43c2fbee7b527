"""Timelines as one file that opens in Perfetto (ui.perfetto.dev).

In: timelines of the same ranks, by title, and what analyses found in them. Out: per rank one
process for each title, side by side, with its steps, blocks, streams, threads and counters; what
belongs to the whole job, as the critical path does, stands above them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, cast

from isal import igzip

from foretrace.base import written_beside
from foretrace.exchange.analysis_tracks import Processes, added_rows, added_values, path_nodes
from foretrace.exchange.chrome import write_chrome
from foretrace.exchange.counters import timeline_counters
from foretrace.exchange.protobuf import write_protobuf
from foretrace.exchange.rows import DEFAULT_FLOWS, Flow, drawn, flows_of, path_flows
from foretrace.exchange.tracks import Content, Counter, Layout, Slices, Track
from foretrace.graph import Timeline

# igzip's second of four levels; higher ones take longer than building the text.
COMPRESS_LEVEL = 1
PROTOBUF_SUFFIXES = (".pftrace", ".perfetto-trace")
_NO_TRACKS: Mapping[str, Sequence[Track]] = MappingProxyType({})


def write_trace(
    path: Path,
    timeline_by_title: Mapping[str, Timeline],
    *,
    flows: Collection[Flow] = DEFAULT_FLOWS,
    counters: bool = True,
    tracks_by_title: Mapping[str, Sequence[Track]] = _NO_TRACKS,
) -> int:
    """Write timelines side by side; the number of slices written.

    Times keep their nanoseconds. Idle time of ranks that were not recorded is not drawn.

    Args:
        path: where to. A name that ends in `.pftrace` or `.perfetto-trace` gets Perfetto's own
            format, any other Chrome's JSON; compressed if `.gz` follows.
        timeline_by_title: title ("measured", "replayed") to timeline, in the order to show.
        flows: classes of dependency to draw as arrows.
        counters: whether to show busy share, bytes in flight and launch queue of each rank.
        tracks_by_title: further tracks of a timeline, as analyses make them.

    Raises:
        ValueError: if there is no timeline, or a track belongs to none.
    """
    _require_usable(timeline_by_title, tracks_by_title)
    layout = Layout()
    all_processes = _processes(layout, timeline_by_title, tracks_by_title)
    contents = tuple(
        _content(
            timeline,
            layout,
            processes,
            flows=frozenset(flows),
            tracks=(
                *tracks_by_title.get(processes.title, ()),
                *(timeline_counters(timeline) if counters else ()),
            ),
        )
        for timeline, processes in zip(timeline_by_title.values(), all_processes, strict=True)
    )
    return _write(path, layout, contents)


def write_tracks(path: Path, tracks_by_process: Mapping[str, Sequence[Track]]) -> int:
    """Write tracks that belong to no timeline of a graph; the number of slices written.

    Args:
        path: where to, as in `write_trace`.
        tracks_by_process: name of a process to its tracks, each of no rank, in the order to show.
    """
    layout = Layout()
    rows, values = [], []
    for name, tracks in tracks_by_process.items():
        process = layout.process(name)
        where = Processes(name, {}, {track.track: process for track in tracks})
        for order, track in enumerate(tracks):
            if isinstance(track, Slices):
                rows.append(added_rows(track, layout, (where, order)))
            else:
                values.append(added_values(track, (where, order)))
    return _write(path, layout, (Content(tuple(rows), (), tuple(values)),))


def _write(path: Path, layout: Layout, contents: tuple[Content, ...]) -> int:
    is_packed = path.suffix == ".gz"
    kind = path.with_suffix("").suffix if is_packed else path.suffix
    write = write_protobuf if kind in PROTOBUF_SUFFIXES else write_chrome
    with written_beside(path) as beside, _opened(beside, is_packed=is_packed) as out:
        write(out, layout, contents)
    return sum(content.num_slices for content in contents)


def _require_usable(
    timeline_by_title: Mapping[str, Timeline], tracks_by_title: Mapping[str, Sequence[Track]]
) -> None:
    if not timeline_by_title:
        raise ValueError("no timeline to write: timeline_by_title is empty")
    unknown = sorted(tracks_by_title.keys() - timeline_by_title.keys())
    if unknown:
        raise ValueError(
            f"tracks_by_title has {unknown[0]!r}, which is no timeline's title: "
            f"expected one of {sorted(timeline_by_title)}"
        )


def _processes(
    layout: Layout,
    timeline_by_title: Mapping[str, Timeline],
    tracks_by_title: Mapping[str, Sequence[Track]],
) -> tuple[Processes, ...]:
    """Processes in the order to show: the job's tracks, then rank by rank all titles."""
    by_track = {
        title: {
            name: layout.process(f"{name} {title}")
            for name in dict.fromkeys(
                track.track for track in tracks_by_title.get(title, ()) if track.rank is None
            )
        }
        for title in timeline_by_title
    }
    ranks = sorted({rank for timeline in timeline_by_title.values()
                    for rank in timeline.graph.ranks})  # fmt: skip
    by_rank: dict[str, dict[int, int]] = {title: {} for title in timeline_by_title}
    for rank in ranks:
        for title, timeline in timeline_by_title.items():
            if rank in timeline.graph.ranks:
                by_rank[title][rank] = layout.process(f"rank {rank} {title}")
    return tuple(Processes(title, by_rank[title], by_track[title]) for title in timeline_by_title)


def _content(
    timeline: Timeline,
    layout: Layout,
    processes: Processes,
    *,
    flows: frozenset[Flow],
    tracks: tuple[Track, ...],
) -> Content:
    lanes = drawn(timeline, layout, processes.by_rank)
    slices = [track for track in tracks if isinstance(track, Slices)]
    arrows = list(flows_of(timeline, lanes, flows))
    if Flow.PATH in flows:
        paths = [path_flows(timeline.graph, lanes, path_nodes(track)) for track in slices]
        arrows += [path for path in paths if len(path.source)]
    rows = [added_rows(track, layout, (processes, order)) for order, track in enumerate(slices)]
    values = [
        added_values(track, (processes, order))
        for order, track in enumerate(tracks)
        if isinstance(track, Counter)
    ]
    return Content((*lanes.rows, *rows), tuple(arrows), tuple(values))


@contextmanager
def _opened(path: Path, *, is_packed: bool) -> Iterator[IO[bytes]]:
    if not is_packed:
        with path.open("wb") as plain:
            yield plain
        return
    with path.open("wb") as raw:
        # No time stamp and no name inside: the same timelines give the same bytes.
        packed = igzip.IGzipFile(  # type: ignore[no-untyped-call]
            "", "wb", compresslevel=COMPRESS_LEVEL, fileobj=raw, mtime=0
        )
        with packed:
            yield cast("IO[bytes]", packed)

"""Timelines as one file that Perfetto opens (ui.perfetto.dev): its packets, or Chrome's JSON.

Text is built column by column in chunks, so that memory stays bounded and a million slices take
seconds. Times are in microseconds with three decimals, so nanoseconds are exact; Perfetto 52
to 55 keep them all.

Source: "Trace Event Format", Google, 2016 (phases X, M, C, s and f).

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

import msgspec
import numpy as np
import polars as pl
from isal import igzip

from foretrace.base import NS_PER_US, Int64s, written_beside
from foretrace.exchange.analysis_tracks import Processes, added_rows, added_values, path_nodes
from foretrace.exchange.counters import timeline_counters
from foretrace.exchange.protobuf import write_protobuf
from foretrace.exchange.rows import DEFAULT_FLOWS, Flow, drawn, flows_of, path_flows
from foretrace.exchange.tracks import (
    MISSING,
    Content,
    Counter,
    Flows,
    Layout,
    SliceRows,
    Slices,
    Track,
    Values,
)
from foretrace.graph import Timeline

# Slices per chunk: about 40 MB of text in memory at 200 bytes a slice.
CHUNK = 200_000

# igzip's second of four levels; higher ones take longer than building the text.
COMPRESS_LEVEL = 1
PROTOBUF_SUFFIXES = (".pftrace", ".perfetto-trace")
_NO_TRACKS: Mapping[str, Sequence[Track]] = MappingProxyType({})


def write_chrome(out: IO[bytes], layout: Layout, contents: tuple[Content, ...]) -> None:
    """Write everything as one JSON object."""
    out.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
    out.write(_metadata(layout).encode())
    heads = pl.Series(
        [f'"pid":{place.process + 1},"tid":{index + 1}' for index, place in
         enumerate(layout.places)],
        dtype=pl.String,
    )  # fmt: skip
    texts = pl.Series([_json_text(text) for text in layout.texts], dtype=pl.String)
    num_flows = 0
    for content in contents:
        for rows in content.rows:
            for first in range(0, len(rows), CHUNK):
                part = slice(first, first + CHUNK)
                out.write(_slice_text(rows, part, (heads, texts)).encode())
        for values in content.values:
            out.write(_counter_text(values).encode())
        for flows in content.flows:
            for text in _flow_texts(flows, content, (heads, num_flows)):
                out.write(text.encode())
            num_flows += len(flows.source)
    out.write(b"\n]}\n")


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _metadata(layout: Layout) -> str:
    """Events that name and order processes and their tracks."""
    events: list[object] = []
    for index, process in enumerate(layout.processes):
        pid = index + 1
        events += [
            _named("process_name", (pid, 0), {"name": process.name}),
            _named("process_sort_index", (pid, 0), {"sort_index": process.number}),
        ]
    for index, place in enumerate(layout.places):
        where = (place.process + 1, index + 1)
        events += [
            _named("thread_name", where, {"name": place.name}),
            _named("thread_sort_index", where, {"sort_index": place.order}),
        ]
    return ",\n".join(_json_text(event) for event in events)


def _named(name: str, where: tuple[int, int], args: dict[str, object]) -> dict[str, object]:
    pid, tid = where
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _slice_text(rows: SliceRows, part: slice, shared: tuple[pl.Series, pl.Series]) -> str:
    """The slices as JSON text, each with a comma before it."""
    heads, texts = shared
    frame = pl.DataFrame(
        {
            "head": heads.gather(rows.place[part]),
            "name": texts.gather(rows.name[part]),
            "start": rows.start_ns[part],
            "duration": rows.end_ns[part] - rows.start_ns[part],
            "args": _argument_text(rows, part, texts),
        }
    )
    lines = frame.select(
        pl.concat_str(
            pl.lit('{"ph":"X",'), "head", pl.lit(',"name":'), "name",
            pl.lit(',"ts":'), _microseconds("start"),
            pl.lit(',"dur":'), _microseconds("duration"), "args", pl.lit("}"),
        )
    ).to_series()  # fmt: skip
    return ",\n" + ",\n".join(lines.to_list())


def _argument_text(rows: SliceRows, part: slice, texts: pl.Series) -> pl.Series:
    """`,"args":{...}` of each row, or nothing."""
    nothing = pl.repeat("", len(rows.place[part]), dtype=pl.String, eager=True)
    if not rows.arguments:
        return nothing
    columns = {}
    for argument in rows.arguments:
        value = argument.value[part]
        is_there = value != MISSING
        text = (
            texts.gather(np.where(is_there, value, 0))
            if argument.is_text
            else pl.Series(value).cast(pl.String)
        )
        whole = pl.select(
            pl.when(pl.lit(pl.Series(is_there)))
            .then(pl.concat_str(pl.lit(f"{_json_text(argument.key)}:"), text, pl.lit(",")))
            .otherwise(pl.lit(""))
        ).to_series()
        columns[argument.key] = whole
    joined = pl.DataFrame(columns).select(
        pl.concat_str(pl.all()).str.strip_suffix(",").alias("args")
    )
    return joined.select(
        pl.when(pl.col("args") != "")
        .then(pl.concat_str(pl.lit(',"args":{'), "args", pl.lit("}")))
        .otherwise(pl.lit(""))
    ).to_series()


def _counter_text(values: Values) -> str:
    if not len(values.at_ns):
        return ""
    head = f'{{"ph":"C","pid":{values.process + 1},"tid":0,"name":{_json_text(values.name)},"ts":'
    # Perfetto names the counter by the event and this key: "busy %".
    key = f',"args":{{{_json_text(values.unit or "value")}:'
    lines = (
        pl.DataFrame({"at": values.at_ns, "value": values.value})
        .select(
            pl.concat_str(
                pl.lit(head), _microseconds("at"), pl.lit(key), "value",
                pl.lit("}}"),
            )
        )
        .to_series()
    )  # fmt: skip
    return ",\n" + ",\n".join(lines.to_list())


def _microseconds(column: str) -> pl.Expr:
    """Nanoseconds as text in microseconds with three decimals, exactly."""
    value_ns = pl.col(column)
    return pl.concat_str(
        value_ns // NS_PER_US, pl.lit("."), (value_ns % NS_PER_US).cast(pl.String).str.zfill(3)
    )


def _flow_texts(flows: Flows, content: Content, shared: tuple[pl.Series, int]) -> Iterator[str]:
    """A start and a finish of each flow, at the beginning of the slices that it joins."""
    heads, first_id = shared
    place = np.concatenate([rows.place for rows in content.rows])
    start_ns = np.concatenate([rows.start_ns for rows in content.rows])
    category = _json_text(flows.category)
    for first in range(0, len(flows.source), CHUNK):
        part = slice(first, first + CHUNK)
        flow_id = first_id + first + np.arange(len(flows.source[part]))
        for phase, row in (('"s"', flows.source[part]), ('"f","bp":"e"', flows.target[part])):
            yield _flow_text((phase, category), heads, (place[row], flow_id, start_ns[row]))


def _flow_text(
    what: tuple[str, str], heads: pl.Series, columns: tuple[Int64s, Int64s, Int64s]
) -> str:
    phase, category = what
    place, flow_id, at_ns = columns
    frame = pl.DataFrame({"head": heads.gather(place), "id": flow_id, "at": at_ns})
    lines = frame.select(
        pl.concat_str(
            pl.lit(f'{{"ph":{phase},'), "head",
            pl.lit(f',"cat":{category},"name":{category},"id":'), "id",
            pl.lit(',"ts":'), _microseconds("at"), pl.lit("}"),
        )
    ).to_series()  # fmt: skip
    return ",\n" + ",\n".join(lines.to_list())


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

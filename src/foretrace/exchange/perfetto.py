"""Timelines as one Chrome trace file, which opens in Perfetto (ui.perfetto.dev).

In: timelines of the same ranks, by title. Out: per rank one process for each title, side by side;
its threads are the rank's lanes, with the step marks on top. A collective is one slice that holds
its wait and its transfer. Text is built column by column in chunks, so that memory stays bounded
and a million slices take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import msgspec
import numpy as np
import polars as pl
from isal import igzip

from foretrace.base import Bools, Int64s, UInt8s, written_beside
from foretrace.graph import DEVICE_KINDS, HOST_KINDS, Collective, EdgeKind, NodeKind, Timeline

# Slices per chunk: about 40 MB of text in memory at 200 bytes a slice.
CHUNK = 200_000

# igzip's second of four levels; higher ones take longer than building the text.
COMPRESS_LEVEL = 1

SLICE_KINDS = (*HOST_KINDS, *DEVICE_KINDS)


@dataclass(frozen=True)
class _Slices:
    """Rows of complete events; those of one thread nest, outer ones first."""

    thread: Int64s  # int64[slices], position in `_Threads.head`
    name: Int64s  # int64[slices], position in `_Threads.names`
    start_ns: Int64s  # int64[slices]
    end_ns: Int64s  # int64[slices]
    tail: pl.Series  # str[slices], further fields as JSON text, or ""


@dataclass(frozen=True)
class _Threads:
    """The threads of one timeline and the text that its slices share."""

    head: pl.Series  # str[threads], start of an event's JSON: phase, process, thread
    names: pl.Series  # str[names], as JSON text
    metadata: str  # events that name and order processes and threads
    steps_thread: dict[int, int]  # rank -> thread of its step marks


def write_trace(
    path: Path, timeline_by_title: Mapping[str, Timeline], *, arrows: bool = False
) -> int:
    """Write timelines side by side; the number of slices written.

    Times keep their nanoseconds. Idle time of ranks that were not recorded is not drawn.

    Args:
        path: where to; compressed if the name ends in `.gz`.
        timeline_by_title: title ("measured", "replayed") to timeline, in the order to show.
        arrows: also draw an arrow from each launch to what it launched.

    Raises:
        ValueError: if there is no timeline.
    """
    if not timeline_by_title:
        raise ValueError("no timeline to write: timeline_by_title is empty")
    num_slices = 0
    separator = ""
    with written_beside(path) as beside, _opened(beside, path.suffix) as out:
        out.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        for position, (title, timeline) in enumerate(timeline_by_title.items()):
            threads = _threads(timeline, title, (position, len(timeline_by_title)))
            out.write((separator + threads.metadata).encode())
            separator = ",\n"
            for slices in _all_slices(timeline, threads):
                out.write(_slice_text(slices, threads).encode())
                num_slices += len(slices.thread)
            if arrows:
                for text in _arrow_texts(timeline, threads, position):
                    out.write(text.encode())
        out.write(b"\n]}\n")
    return num_slices


@contextmanager
def _opened(path: Path, suffix: str) -> Iterator[IO[bytes]]:
    if suffix != ".gz":
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


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _threads(timeline: Timeline, title: str, place: tuple[int, int]) -> _Threads:
    """Numbers, names and order of processes and threads; thread 0.. are the graph's lanes.

    `place` is this timeline's position and the number of timelines: it spaces the process
    numbers so that one rank's timelines stand together.
    """
    graph = timeline.graph
    position, num_timelines = place
    pid_of = {rank: index * num_timelines + position + 1 for index, rank in enumerate(graph.ranks)}
    num_threads = len(graph.lanes) + len(pid_of)
    tid_base = position * num_threads + 1
    heads = [
        f'{{"ph":"X","pid":{pid_of[lane.rank]},"tid":{tid_base + index}'
        for index, lane in enumerate(graph.lanes)
    ]
    events: list[object] = []
    steps_thread = {}
    for rank, pid in pid_of.items():
        steps_thread[rank] = len(heads)
        tid = tid_base + len(heads)
        heads.append(f'{{"ph":"X","pid":{pid},"tid":{tid}')
        events += [
            _metadata("process_name", pid, 0, {"name": f"rank {rank} {title}"}),
            _metadata("process_sort_index", pid, 0, {"sort_index": pid}),
            _metadata("thread_name", pid, tid, {"name": "steps"}),
            _metadata("thread_sort_index", pid, tid, {"sort_index": 0}),
        ]
    for order, index in enumerate(_lane_order(timeline).tolist()):
        lane = graph.lanes[index]
        what = f"stream {lane.number}" if lane.is_device else f"thread {lane.number}"
        pid, tid = pid_of[lane.rank], tid_base + index
        events += [
            _metadata("thread_name", pid, tid, {"name": what}),
            _metadata("thread_sort_index", pid, tid, {"sort_index": order + 1}),
        ]
    names = [
        _json_text(name) for name in (*graph.names, *graph.step_names, "wait", "transfer", "host")
    ]
    return _Threads(
        head=pl.Series(heads, dtype=pl.String),
        names=pl.Series(names, dtype=pl.String),
        metadata=",\n".join(_json_text(event) for event in events),
        steps_thread=steps_thread,
    )


def _metadata(name: str, pid: int, tid: int, args: dict[str, object]) -> dict[str, object]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _lane_order(timeline: Timeline) -> Int64s:
    """Lanes in use, as they should stand: host threads by first moment, then streams."""
    graph = timeline.graph
    first_ns = np.full(len(graph.lanes), np.iinfo(np.int64).max)
    has_lane = graph.lane >= 0
    np.minimum.at(first_ns, graph.lane[has_lane], timeline.start_ns[has_lane])
    is_device = np.array([lane.is_device for lane in graph.lanes], np.bool_)
    number = np.array([lane.number for lane in graph.lanes], np.int64)
    # Streams keep the order of their numbers, as other viewers show them.
    order = np.lexsort((np.where(is_device, number, first_ns), is_device))
    return order[first_ns[order] < np.iinfo(np.int64).max]


def _all_slices(timeline: Timeline, threads: _Threads) -> Iterator[_Slices]:
    yield _step_slices(timeline, threads)
    graph = timeline.graph
    is_shown = _is_one_of(graph.kind, SLICE_KINDS) & (graph.lane >= 0)
    # Host time between two calls that took none would be drawn as a mark without meaning.
    is_shown &= (graph.kind != NodeKind.HOST_SEGMENT) | (timeline.end_ns > timeline.start_ns)
    shown = np.flatnonzero(is_shown)
    unnamed = len(threads.names) - 1
    for first in range(0, len(shown), CHUNK):
        nodes = shown[first : first + CHUNK]
        name = graph.name[nodes].astype(np.int64)
        yield _Slices(
            thread=graph.lane[nodes].astype(np.int64),
            name=np.where(name < 0, unnamed, name),
            start_ns=timeline.start_ns[nodes],
            end_ns=timeline.end_ns[nodes],
            tail=_no_tail(len(nodes)),
        )
    yield from _collective_slices(timeline, threads)


def _is_one_of(kind: UInt8s, kinds: tuple[NodeKind, ...]) -> Bools:
    is_chosen = np.zeros(256, np.bool_)
    is_chosen[list(kinds)] = True
    return is_chosen[kind]


def _no_tail(count: int) -> pl.Series:
    return pl.repeat("", count, dtype=pl.String, eager=True)


def _step_slices(timeline: Timeline, threads: _Threads) -> _Slices:
    """The host's mark of each step, from begin to end."""
    graph = timeline.graph
    begin = np.flatnonzero(graph.kind == NodeKind.STEP_BEGIN)
    end = np.flatnonzero(graph.kind == NodeKind.STEP_END)
    key = graph.step.astype(np.int64) << 32 | graph.rank
    _, from_begin, from_end = np.intersect1d(key[begin], key[end], return_indices=True)
    begin, end = begin[from_begin], end[from_end]
    thread = [threads.steps_thread[rank] for rank in graph.rank[begin].tolist()]
    return _Slices(
        thread=np.array(thread, np.int64),
        name=len(graph.names) + graph.step[begin].astype(np.int64),
        start_ns=timeline.start_ns[begin],
        end_ns=timeline.end_ns[end],
        tail=_no_tail(len(begin)),
    )


def _collective_slices(timeline: Timeline, threads: _Threads) -> Iterator[_Slices]:
    """One slice per collective and rank, and inside it the wait and the transfer."""
    graph = timeline.graph
    arrive_all, finish_all = _collective_pairs(timeline)
    args = pl.Series([_collective_args(one) for one in graph.collectives], dtype=pl.String)
    wait_name, transfer_name = len(threads.names) - 3, len(threads.names) - 2
    for first in range(0, len(arrive_all), CHUNK // 3):
        arrive = arrive_all[first : first + CHUNK // 3]
        finish = finish_all[first : first + CHUNK // 3]
        begin_ns, end_ns = timeline.start_ns[arrive], timeline.end_ns[finish]
        all_here_ns = np.clip(timeline.start_ns[finish], begin_ns, end_ns)
        tail = pl.DataFrame(
            {
                "args": args.gather(graph.collective[finish]),
                "wait": all_here_ns - begin_ns,
                "transfer": end_ns - all_here_ns,
            }
        ).select(
            pl.concat_str(
                "args", pl.lit(',"wait_ns":'), "wait", pl.lit(',"transfer_ns":'), "transfer",
                pl.lit("}"),
            )
        )  # fmt: skip
        name = graph.name[finish].astype(np.int64)
        thread = graph.lane[finish].astype(np.int64)
        yield _Slices(thread, np.where(name < 0, transfer_name, name), begin_ns, end_ns,
                      tail.to_series())  # fmt: skip
        for part_name, part_start_ns, part_end_ns in (
            (wait_name, begin_ns, all_here_ns),
            (transfer_name, all_here_ns, end_ns),
        ):
            rows = np.flatnonzero(part_end_ns > part_start_ns)
            yield _Slices(
                thread=thread[rows],
                name=np.full(len(rows), part_name, np.int64),
                start_ns=part_start_ns[rows],
                end_ns=part_end_ns[rows],
                tail=_no_tail(len(rows)),
            )


def _collective_pairs(timeline: Timeline) -> tuple[Int64s, Int64s]:
    """Arrive and finish nodes of the same collective and rank, in the order of the finish."""
    graph = timeline.graph
    sides = []
    for kind in (NodeKind.ARRIVE, NodeKind.FINISH):
        nodes = np.flatnonzero((graph.kind == kind) & (graph.lane >= 0))
        sides.append(nodes[np.lexsort((nodes, graph.rank[nodes], graph.collective[nodes]))])
    arrive, finish = sides
    by_finish = np.argsort(finish)
    return arrive[by_finish], finish[by_finish]


def _collective_args(collective: Collective) -> str:
    """The beginning of a slice's `args`, without its closing brace."""
    text = _json_text(
        {
            "collective": collective.name,
            "group": collective.group,
            "ranks": len(collective.ranks),
            "position": collective.position,
            "bytes": collective.num_bytes if collective.num_bytes >= 0 else None,
            "dtype": collective.dtype,
            "transfer_is_estimated": collective.is_transfer_estimated,
        }
    )
    return f',"args":{text[:-1]}'


def _slice_text(slices: _Slices, threads: _Threads) -> str:
    """The slices as JSON text, each with a comma before it."""
    if not len(slices.thread):
        return ""
    frame = pl.DataFrame(
        {
            "head": threads.head.gather(slices.thread),
            "name": threads.names.gather(slices.name),
            "start": slices.start_ns,
            "duration": slices.end_ns - slices.start_ns,
            "tail": slices.tail,
        }
    )
    lines = frame.select(
        pl.concat_str(
            "head", pl.lit(',"name":'), "name", pl.lit(',"ts":'), _microseconds("start"),
            pl.lit(',"dur":'), _microseconds("duration"), "tail", pl.lit("}"),
        )
    ).to_series()  # fmt: skip
    return ",\n" + ",\n".join(lines.to_list())


def _microseconds(column: str) -> pl.Expr:
    """Nanoseconds as text in microseconds with three decimals, exactly."""
    value_ns = pl.col(column)
    return pl.concat_str(
        value_ns // 1000, pl.lit("."), (value_ns % 1000).cast(pl.String).str.zfill(3)
    )


def _arrow_texts(timeline: Timeline, threads: _Threads, position: int) -> Iterator[str]:
    """A flow from each launch to its device operation, as JSON text."""
    graph = timeline.graph
    edge = np.flatnonzero(graph.edge_kind == EdgeKind.LAUNCH)
    target = np.searchsorted(graph.first_edge, edge, side="right") - 1
    source = graph.predecessor[edge]
    for first in range(0, len(edge), CHUNK // 2):
        rows = slice(first, first + CHUNK // 2)
        for phase, node in (("s", source[rows]), ('f","bp":"e', target[rows])):
            frame = pl.DataFrame(
                {
                    "head": threads.head.gather(graph.lane[node]),
                    "id": edge[rows] * 2 + position,
                    "at": timeline.start_ns[node],
                }
            )
            lines = frame.select(
                pl.concat_str(
                    pl.col("head").str.replace('"X"', f'"{phase}"', literal=True),
                    pl.lit(',"cat":"launch","name":"launch","id":'), "id",
                    pl.lit(',"ts":'), _microseconds("at"), pl.lit("}"),
                )
            ).to_series()  # fmt: skip
            yield ",\n" + ",\n".join(lines.to_list())

"""A timeline as Kineto traces, one file per rank, that profiler tools and foretrace itself read.

Calls, operators and device work get the times of the timeline, to the nanosecond; launches and
what they started share a correlation id. Host time between calls is what lies between them, so it
has no event. A call that waits spans its waiting. What a graph does not hold (stacks, memory,
nesting of operators, which event a stream waited for) is not there to be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np
from isal import igzip

from foretrace.base import (
    NS_PER_US,
    Bools,
    Int64s,
    begins_run,
    number_format,
    written_beside,
    written_together,
)
from foretrace.exchange.rows import collective_pairs
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Timeline

COMPRESS_LEVEL = 1
COPY_WAIT = "copy wait"  # what a graph calls the second half of a copy that holds the host
_CATEGORIES = {
    NodeKind.OPERATOR: "cpu_op",
    NodeKind.CALL: "cuda_runtime",
    NodeKind.LAUNCH: "cuda_runtime",
    NodeKind.SYNC: "cuda_runtime",
    NodeKind.KERNEL: "kernel",
    NodeKind.MEMCPY: "gpu_memcpy",
    NodeKind.MEMSET: "gpu_memset",
}
# Keys of a signature -> arguments of an event.
_ARGUMENTS = {
    "dims": "Input Dims", "types": "Input type", "strides": "Input Strides",
    "inputs": "Concrete Inputs", "grid": "grid", "block": "block",
}  # fmt: skip
Event = dict[str, object]


def write_kineto(path: Path, timeline: Timeline) -> tuple[Path, ...]:
    """Write one trace per rank; the files written.

    Args:
        path: folder and first part of the files' names: `out/job` gives `out/job.rank0.json`.
            Compressed if it ends in `.gz`.
        timeline: measured or simulated.
    """
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    is_packed = path.suffix == ".gz"
    source = _Source(
        timeline, _correlations(timeline.graph), _begun_ns(timeline), *_ended_ns(timeline)
    )
    paths = []
    with written_together():
        for rank in timeline.graph.ranks:
            each = path.with_name(f"{stem}.rank{rank}.json{'.gz' if is_packed else ''}")
            with written_beside(each) as beside, beside.open("wb") as out:
                text = _text(source, rank)
                out.write(igzip.compress(text, COMPRESS_LEVEL) if is_packed else text)
            paths.append(each)
    return tuple(paths)


@dataclass(frozen=True)
class _Source:
    """What all ranks' files are made of."""

    timeline: Timeline
    correlation: Int64s  # int64[nodes], of launches and what they started; -1
    begun_ns: Int64s  # int64[nodes], start with the waiting before
    ended_ns: Int64s  # int64[nodes], end with the waiting of a copy's second half
    is_half: Bools  # bool[nodes], second halves of copies that hold the host


def _correlations(graph: ExecutionGraph) -> Int64s:
    """A launch's own number stands for it and for all that it started."""
    caller, launched = graph.edges_of(EdgeKind.LAUNCH)
    launch = np.full(graph.num_nodes, -1, np.int64)
    launch[launched] = caller
    correlation = np.where(launch >= 0, launch + 1, -1)
    calls = graph.is_of(NodeKind.CALL, NodeKind.LAUNCH, NodeKind.SYNC)
    correlation[calls] = np.flatnonzero(calls) + 1
    return correlation


def _begun_ns(timeline: Timeline) -> Int64s:
    """Calls begin where the one before on their thread ended, waiting included."""
    graph = timeline.graph
    target = graph.edge_target
    waits = graph.is_of(NodeKind.LAUNCH, NodeKind.SYNC)[target]
    waits &= graph.edge_kind == EdgeKind.HOST_ORDER
    begun_ns = timeline.start_ns.copy()
    begun_ns[target[waits]] = timeline.end_ns[graph.predecessor[waits]]
    return np.minimum(begun_ns, timeline.start_ns)


def _ended_ns(timeline: Timeline) -> tuple[Int64s, Bools]:
    """A copy that holds the host is one call, which a graph cuts into its launch and its wait."""
    graph = timeline.graph
    ended_ns = timeline.end_ns.copy()
    is_half = np.zeros(graph.num_nodes, np.bool_)
    if COPY_WAIT not in graph.names:
        return ended_ns, is_half
    is_named = (graph.kind == NodeKind.SYNC) & (graph.name == graph.names.index(COPY_WAIT))
    target = graph.edge_target
    edges = np.flatnonzero(is_named[target] & (graph.edge_kind == EdgeKind.HOST_ORDER))
    edges = edges[graph.kind[graph.predecessor[edges]] == NodeKind.LAUNCH]
    is_half[target[edges]] = True
    ended_ns[graph.predecessor[edges]] = timeline.end_ns[target[edges]]
    return ended_ns, is_half


def _text(source: _Source, rank: int) -> bytes:
    """The whole file of a rank; ranks are a few hundred thousand events each."""
    graph = source.timeline.graph
    groups = {
        one.group: {"pg_name": one.group, "pg_desc": one.group, "ranks": list(one.ranks),
                    "pg_size": len(one.ranks)}
        for one in graph.collectives
        if rank in one.ranks
    }  # fmt: skip
    size = max((max(one.ranks) + 1 for one in graph.collectives), default=1)
    head: dict[str, object] = {
        "schemaVersion": 1,
        "distributedInfo": {
            "backend": "nccl", "rank": rank, "world_size": max(size, len(graph.ranks)),
            "pg_config": list(groups.values()),
        },
        "displayTimeUnit": "ns",
        "baseTimeNanoseconds": 0,
    }  # fmt: skip
    events = chain(
        _steps(source, rank), _operators(source, rank), _calls(source, rank),
        _collectives(source, rank),
    )  # fmt: skip
    encoder = msgspec.json.Encoder()
    lines = b",\n".join(encoder.encode(event) for event in events)
    return encoder.encode(head)[:-1] + b',"traceEvents":[\n' + lines + b"\n]}\n"


def _event(category: str, name: str, where: tuple[int, int], span_ns: tuple[int, int]) -> Event:
    process, thread = where
    start_ns, end_ns = span_ns
    return {
        "ph": "X", "cat": category, "name": name, "pid": process, "tid": thread,
        "ts": _micros(start_ns), "dur": _micros(end_ns - start_ns), "args": {},
    }  # fmt: skip


def _micros(value_ns: int) -> object:
    """Microseconds with three decimals, exactly."""
    return msgspec.Raw(f"{value_ns // NS_PER_US}.{value_ns % NS_PER_US:03d}".encode())


def _where(graph: ExecutionGraph, lane: int) -> tuple[int, int]:
    """Process and thread as profilers number them: a device is a process, a stream its thread."""
    one = graph.lanes[lane]
    return (max(one.device, 0), one.number) if one.is_device else (one.process, one.number)


def _steps(source: _Source, rank: int) -> Iterator[Event]:
    graph, timeline = source.timeline.graph, source.timeline
    end_of = {
        int(graph.step[node]): node
        for node in np.flatnonzero((graph.kind == NodeKind.STEP_END) & (graph.rank == rank))
    }
    for node in np.flatnonzero((graph.kind == NodeKind.STEP_BEGIN) & (graph.rank == rank)).tolist():
        step = int(graph.step[node])
        if step in end_of:
            span_ns = int(timeline.start_ns[node]), int(timeline.end_ns[end_of[step]])
            where = _where(graph, int(graph.lane[node]))
            yield _event("user_annotation", graph.step_names[step], where, span_ns)


def _operators(source: _Source, rank: int) -> Iterator[Event]:
    """One event per stretch of calls that one operator made; of host operators their own."""
    graph, timeline = source.timeline.graph, source.timeline
    kinds = (NodeKind.CALL, NodeKind.LAUNCH, NodeKind.SYNC)
    nodes = np.flatnonzero(graph.is_of(*kinds) & (graph.rank == rank) & (graph.operator >= 0))
    nodes = nodes[np.lexsort((timeline.end_ns[nodes], source.begun_ns[nodes], graph.lane[nodes]))]
    if not len(nodes):
        return
    key = np.stack([graph.lane[nodes], graph.operator[nodes], graph.operator_signature[nodes]])
    first = np.flatnonzero(begins_run(*key))
    for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(nodes)], strict=True):
        node = int(nodes[begin])
        event = _event(
            "cpu_op",
            graph.names[graph.operator[node]],
            _where(graph, int(graph.lane[node])),
            (int(source.begun_ns[node]), int(source.ended_ns[nodes[end - 1]])),
        )
        event["args"] = _signature(graph, int(graph.operator_signature[node]))
        yield event


def _calls(source: _Source, rank: int) -> Iterator[Event]:
    """Calls, host operators and device work but communication."""
    graph = source.timeline.graph
    nodes = np.flatnonzero(graph.is_of(*_CATEGORIES) & (graph.rank == rank) & ~source.is_half)
    nodes = nodes[np.lexsort((nodes, source.begun_ns[nodes]))]
    for node in nodes.tolist():
        lane = int(graph.lane[node])
        event = _event(
            _CATEGORIES[NodeKind(int(graph.kind[node]))],
            graph.names[graph.name[node]],
            _where(graph, lane),
            (int(source.begun_ns[node]), int(source.ended_ns[node])),
        )
        event["args"] = _placed(source, node, _signature(graph, int(graph.signature[node])))
        yield event


def _placed(source: _Source, node: int, arguments: dict[str, object]) -> dict[str, object]:
    """Arguments with the correlation id, and of device work its device and stream."""
    graph = source.timeline.graph
    lane = graph.lanes[int(graph.lane[node])]
    if lane.is_device:
        arguments |= {"device": max(lane.device, 0), "stream": lane.number}
    if source.correlation[node] >= 0:
        arguments["correlation"] = int(source.correlation[node])
    return arguments


def _collectives(source: _Source, rank: int) -> Iterator[Event]:
    """One event per member, from its arrival to its finish, with what it communicates."""
    graph, timeline = source.timeline.graph, source.timeline
    arrives, finishes = collective_pairs(graph)
    is_its = graph.rank[finishes] == rank
    pairs = zip(arrives[is_its].tolist(), finishes[is_its].tolist(), strict=True)
    for arrive, finish in pairs:
        lane = int(graph.lane[finish])
        is_device = graph.lanes[lane].is_device
        one = graph.collectives[graph.collective[finish]]
        event = _event(
            "kernel" if is_device else "user_annotation",
            graph.names[graph.name[finish]],
            _where(graph, lane),
            (int(timeline.start_ns[arrive]), int(timeline.end_ns[finish])),
        )
        arguments = _signature(graph, int(graph.signature[finish]))
        arguments |= {
            "Collective name": one.name,
            "Process Group Name": one.group,
            "Process Group Ranks": str(list(one.ranks)),
            "Group size": len(one.ranks),
        }
        arguments |= {"dtype": one.dtype} if one.dtype else {}
        known = number_format(one.dtype)
        if known is not None and known.whole_bytes and one.num_bytes >= 0:
            elements = one.num_bytes // known.whole_bytes
            arguments |= {"In msg nelems": elements, "Out msg nelems": elements}
        event["args"] = _placed(source, arrive, arguments)
        yield event


def _signature(graph: ExecutionGraph, name: int) -> dict[str, object]:
    """Shapes, types and grids of a signature as a profiler's arguments."""
    if name < 0:
        return {}
    try:
        told = msgspec.json.decode(graph.names[name], type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {_ARGUMENTS[key]: value for key, value in told.items() if key in _ARGUMENTS}

"""Edges from `cuda_sync` events equal those of a plain recipe, on public traces that have them.

The recipe, as HolisticTraceAnalysis states it: a stream wait names a stream and the
`cudaEventRecord` of its event; the last operation launched on that stream before the record holds
the next operation launched on the waiting stream. A stream synchronisation waits for the last
operation launched on the stream, a device synchronisation for that of every stream, an event
synchronisation for the last before the record.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from foretrace.graph import (
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Recording,
    build_recording,
    verify,
)
from foretrace.trace import load_traces
from tests.graph.recorded import Event, edges_of

FILES = (
    "alexnet/benchmark_result_2869224_1695835535_trace.json.gz",
    "cuda_event_sync/event_sync_trace.json.gz",
    "cuda_event_sync_multi_stream/event_sync_trace.json.gz",
    "simple_add/benchmark_result_493459_1694039959_trace.json.gz",
)
DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
SYNC_CALLS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")

CorrelationPair = tuple[int, int]


@dataclass(frozen=True)
class Reference:
    """What the recipe says of one file; operations and calls by correlation id."""

    between_streams: set[CorrelationPair]
    into_calls: set[CorrelationPair]
    operations: dict[int, list[int]]  # stream -> correlations in order of time
    sync_calls: list[int]  # in order of time


class Launches:
    """Device operations of a file by stream, in the order of their launch calls."""

    def __init__(self, events: list[Event]) -> None:
        self.calls = {
            event["args"]["correlation"]: event
            for event in events
            if event.get("cat") in ("cuda_runtime", "cuda_driver")
        }
        self.of_stream: dict[int, list[tuple[int, int]]] = {}  # moment of the call, operation
        for event in events:
            correlation = event.get("args", {}).get("correlation")
            if event.get("cat") in DEVICE_CATEGORIES and correlation in self.calls:
                own = self.of_stream.setdefault(event["args"]["stream"], [])
                own.append((self.calls[correlation]["ts"], correlation))
                own.sort()

    def last_before(self, stream: int, at: int) -> list[int]:
        return [op for launch_at, op in self.of_stream.get(stream, []) if launch_at < at][-1:]

    def first_after(self, stream: int, at: int) -> list[int]:
        return [op for launch_at, op in self.of_stream.get(stream, []) if launch_at >= at][:1]

    def waited_for(self, sync: Event) -> list[int]:
        """The operations that a `cuda_sync` event waits for."""
        given = sync["args"]
        at = self.calls[given["correlation"]]["ts"]
        if sync["name"] == "Stream Sync":
            return self.last_before(given["stream"], at)
        if sync["name"] == "Context Sync":
            return [op for stream in self.of_stream for op in self.last_before(stream, at)]
        record = self.calls.get(given.get("wait_on_cuda_event_record_corr_id", -1))
        return self.last_before(given["wait_on_stream"], record["ts"]) if record else []


def reference_of(events: list[Event]) -> Reference:
    launches = Launches(events)
    between: set[CorrelationPair] = set()
    into: set[CorrelationPair] = set()
    for event in events:
        if event.get("cat") != "cuda_sync":
            continue
        given, waited = event["args"], launches.waited_for(event)
        call = launches.calls[given["correlation"]]
        if event["name"] == "Stream Wait Event":
            after = launches.first_after(given["stream"], call["ts"])
            between.update((one, other) for one in waited for other in after)
        elif call["name"] in SYNC_CALLS:
            into.update((one, given["correlation"]) for one in waited)
    in_time = sorted(events, key=lambda event: event.get("ts", 0))
    operations: dict[int, list[int]] = {}
    for event in in_time:
        if event.get("cat") in DEVICE_CATEGORIES:
            operations.setdefault(event["args"]["stream"], []).append(event["args"]["correlation"])
    return Reference(
        between_streams=between,
        into_calls=into,
        operations=operations,
        sync_calls=[
            event["args"]["correlation"]
            for event in in_time
            if event.get("name") in SYNC_CALLS and event.get("cat") == "cuda_runtime"
        ],
    )


def correlations(recording: Recording, reference: Reference) -> dict[int, int]:
    """Correlation of every device operation's and synchronisation's node."""
    graph = recording.graph
    found: dict[int, int] = {}
    for lane in {int(each) for each in graph.lane if each >= 0}:
        if graph.lanes[lane].is_device:
            is_own = graph.is_device & (graph.lane == lane)
            nodes = nodes_in_time(recording, is_own)
            ids = reference.operations[graph.lanes[lane].number]
            found.update(zip(nodes, ids, strict=True))
    is_sync = (graph.kind == NodeKind.SYNC) & (name_column(graph) != "copy wait")
    found.update(zip(nodes_in_time(recording, is_sync), reference.sync_calls, strict=True))
    return found


def nodes_in_time(recording: Recording, chosen: np.ndarray) -> list[int]:
    nodes = np.flatnonzero(chosen)
    in_time: Iterable[int] = nodes[np.argsort(recording.measured.end_ns[nodes], kind="stable")]
    return [int(node) for node in in_time]


def name_column(graph: ExecutionGraph) -> np.ndarray:
    return np.array(graph.names)[graph.name]


@pytest.mark.parametrize("file", FILES)
def test_edges_equal_the_recipe(data_dir: Path, file: str) -> None:
    path = data_dir / "traces" / "cuda-sync-events" / file
    reference = reference_of(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"])

    recording = build_recording(load_traces([path]))

    graph = recording.graph
    verify(graph)
    name = correlations(recording, reference)
    streams = {op: stream for stream, own in reference.operations.items() for op in own}
    between = {(name[one], name[other]) for one, other in edges_of(graph, EdgeKind.INTER_STREAM)}
    into = {
        (name[one], name[other]) for one, other in edges_of(graph, EdgeKind.WAKE) if other in name
    }
    assert edges_of(graph, EdgeKind.INTER_STREAM_INFERRED) == []
    assert between == {
        pair for pair in reference.between_streams if streams[pair[0]] != streams[pair[1]]
    }
    assert into == reference.into_calls


def test_the_traces_hold_every_kind_of_edge(data_dir: Path) -> None:
    folder = data_dir / "traces" / "cuda-sync-events"
    references = [
        reference_of(json.loads(gzip.decompress((folder / file).read_bytes()))["traceEvents"])
        for file in FILES
    ]

    assert sum(len(each.between_streams) for each in references) >= 4
    assert sum(len(each.into_calls) for each in references) >= 20


def test_a_stream_that_launches_nothing_passes_on_each_streams_last_wait_alone(
    tmp_path: Path,
) -> None:
    """Many records by a stream that waits and never launches: time and edges grow linearly."""
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": list(_waiting_stream(400))}))

    graph = build_recording(load_traces(path)).graph

    (last_call,) = np.flatnonzero(graph.kind == NodeKind.SYNC)
    assert graph.first_edge[last_call + 1] - graph.first_edge[last_call] < 80


def _waiting_stream(num_waits: int) -> Iterator[Event]:
    """Stream 7 launches and records, stream 20 waits and records; at last the host waits for it."""
    ids = count(1)

    def call(name: str) -> Event:
        number = next(ids)
        return {
            "ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1,
            "ts": number, "dur": 0.5, "args": {"correlation": number},
        }  # fmt: skip

    def of_device(beside: Event, category: str, stream: int, **told: object) -> Event:
        told |= {"stream": stream, "device": 0, **beside["args"]}
        return {**beside, "cat": category, "pid": 0, "tid": stream, "name": "x", "args": told}

    for _ in range(num_waits):
        yield (launch := call("cudaLaunchKernel"))
        yield of_device(launch, "kernel", 7)
        for stream, waits in ((20, 7), (30, 20)):
            yield (record := call("cudaEventRecord"))
            yield (wait := call("cudaStreamWaitEvent"))
            yield of_device(
                wait,
                "cuda_sync",
                stream,
                cuda_sync_kind="Stream Wait Event",
                wait_on_stream=waits,
                wait_on_cuda_event_record_corr_id=record["args"]["correlation"],
            )
    yield (sync := call("cudaStreamSynchronize"))
    yield of_device(sync, "cuda_sync", 20, cuda_sync_kind="Stream Sync")

"""Small jobs and hand-made event lists, through files, into recordings; and questions to them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foretrace.analyze import steps
from foretrace.base import Int64s
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Recording, build_recording, verify
from foretrace.graph.dependencies import DEFAULT_NS
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from tests.truth import Job, JobConfig, Overheads, quiet, write
from tests.truth.small import Instruction, small_job

Event = dict[str, Any]
# Every call takes time, so that the host's order can be seen, and nothing varies. Lags are those
# that a graph takes where a trace has no sample of a kind, so a replay can be exact to the ns.
EXACT = replace(
    quiet(JobConfig(num_steps=1, noise=False)),
    overheads=Overheads(
        launch_latency_ns=DEFAULT_NS[EdgeKind.LAUNCH],
        stream_gap_ns=DEFAULT_NS[EdgeKind.STREAM],
        handover_ns=DEFAULT_NS[EdgeKind.INTER_STREAM],
        wake_ns=DEFAULT_NS[EdgeKind.WAKE],
        queue_wake_ns=DEFAULT_NS[EdgeKind.QUEUE],
        thread_wake_ns=8_000,
        lag_jitter_ns=0,
        end_jitter_ns=0,
        segment_ns=1_000,
        short_segment_ns=1_000,
        launch_call_ns=2_000,
        copy_call_ns=2_000,
        small_call_ns=1_000,
        query_call_ns=1_000,
        sync_call_ns=1_000,
    ),
)
PROCESS, DEVICE = 100, 0


def recording_of_files(texts: Sequence[str]) -> Recording:
    """The recording of one file per rank, by its text; the graph obeys its spec."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"rank{rank}.json" for rank in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        recording = build_recording(load_traces(paths))
    verify(recording.graph)
    return recording


def recording_of(job: Job) -> Recording:
    """The recording that a generated job's files give; the graph obeys its spec."""
    with tempfile.TemporaryDirectory() as folder:
        recording = build_recording(load_traces(write(job, Path(folder), compress=False)))
    verify(recording.graph)
    return recording


def exact_job(*programs: Sequence[Instruction], config: JobConfig = EXACT) -> Job:
    """A job in which nothing varies, one program per rank."""
    return small_job(programs, replace(config, tp=len(programs)))


def replayed_step_ns(recording: Recording, duration_ns: Int64s | None = None) -> list[int]:
    """Simulated time of each step on each rank, by step, then rank."""
    listed: list[int] = steps(simulate(recording.graph, duration_ns)).duration_ns.tolist()
    return listed


def edges_of(graph: ExecutionGraph, *kinds: EdgeKind) -> list[tuple[int, int]]:
    """Edges of some kinds, as pairs of nodes, rising."""
    chosen = np.isin(graph.edge_kind, kinds)
    target = graph.edge_target
    return sorted(zip(graph.predecessor[chosen].tolist(), target[chosen].tolist(), strict=True))


def nodes_of(graph: ExecutionGraph, *kinds: NodeKind, name: str = "") -> list[int]:
    """Nodes of some kinds whose name contains a text."""
    return [
        node for node in graph.nodes_of(*kinds).tolist() if name in graph.names[graph.name[node]]
    ]


def named_edges(graph: ExecutionGraph, *kinds: EdgeKind) -> set[tuple[str, str]]:
    """Edges of some kinds, by the names of their nodes."""
    name = [graph.names[index] for index in graph.name]
    return {(name[one], name[other]) for one, other in edges_of(graph, *kinds)}


# -- events by hand; times in whole microseconds -----------------------------------------------


def file_text(events: Sequence[Event], *, rank: int = 0, world_size: int = 1) -> str:
    """A Kineto file with these events."""
    info = {"backend": "nccl", "rank": rank, "world_size": world_size}
    return json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": list(events)})


def call(
    name: str, at: int, takes: int, *, correlation: int = 0, thread: int = PROCESS, **args: object
) -> Event:
    """A runtime call."""
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": name,
        "pid": PROCESS,
        "tid": thread,
        "ts": at,
        "dur": takes,
        "args": {"correlation": correlation, **args},
    }


def launch(at: int, takes: int, *, correlation: int, thread: int = PROCESS) -> Event:
    """A kernel launch call."""
    return call("cudaLaunchKernel", at, takes, correlation=correlation, thread=thread)


def kernel(
    name: str,
    at: int,
    takes: int,
    *,
    correlation: int,
    stream: int = 7,
    category: str = "kernel",
    **args: object,
) -> Event:
    """A device operation."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": DEVICE,
        "tid": stream,
        "ts": at,
        "dur": takes,
        "args": {"correlation": correlation, "stream": stream, "device": DEVICE, **args},
    }


def step(number: int, at: int, takes: int) -> Event:
    """A step mark."""
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": f"ProfilerStep#{number}",
        "pid": PROCESS,
        "tid": PROCESS,
        "ts": at,
        "dur": takes,
        "args": {},
    }

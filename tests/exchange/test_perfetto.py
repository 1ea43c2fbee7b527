from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretrace.base import Int64s
from foretrace.exchange import write_trace
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Timeline
from tests.graphs import Edge, GraphBuilder, timeline_of

Event = dict[str, Any]


def two_ranks() -> ExecutionGraph:
    """Two ranks that launch a kernel each, then meet in a collective."""
    build = GraphBuilder()
    kernels = {}
    for rank in (0, 1):
        begin = build.add(NodeKind.STEP_BEGIN, rank=rank, step="ProfilerStep#3")
        launch = build.add(
            NodeKind.LAUNCH, rank=rank, name="cudaLaunchKernel", takes_ns=1_001, after=[begin]
        )
        kernels[rank] = build.add(
            NodeKind.KERNEL,
            rank=rank,
            lane="stream 7",
            name='gemm<"a\\b">',
            takes_ns=5_000 + 1_234 * rank,
            after=[Edge(launch, EdgeKind.LAUNCH)],
            step="ProfilerStep#3",
        )
        build.add(NodeKind.STEP_END, rank=rank, after=[launch], step="ProfilerStep#3")
    build.collective({rank: [node] for rank, node in kernels.items()}, transfer_ns=777)
    return build.graph()


def simulated(graph: ExecutionGraph) -> Timeline:
    """Longest paths by hand, so that this test needs no engine."""
    start_ns = np.zeros(graph.num_nodes, np.int64)
    end_ns = np.zeros(graph.num_nodes, np.int64)
    for node in range(graph.num_nodes):
        edges = slice(graph.first_edge[node], graph.first_edge[node + 1])
        ends: Int64s = end_ns[graph.predecessor[edges]] + graph.lag_ns[edges]
        start_ns[node] = ends.max(initial=0)
        end_ns[node] = start_ns[node] + graph.measured_ns[node]
    return Timeline(graph, start_ns, end_ns, is_measured=False)


def events_of(path: Path) -> list[Event]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events: list[Event] = json.loads(text, parse_float=Decimal)["traceEvents"]
    return events


def slices_named(events: list[Event], name: str, process: str) -> list[Event]:
    """Slices of that name in the process of that name, by time."""
    (pid,) = {
        event["pid"]
        for event in events
        if event["name"] == "process_name" and event["args"]["name"] == process
    }
    found = [e for e in events if e["ph"] == "X" and e["name"] == name and e["pid"] == pid]
    return sorted(found, key=lambda event: event["ts"])


def test_each_rank_stands_measured_beside_replayed(tmp_path: Path) -> None:
    graph = two_ranks()
    replayed = simulated(graph)
    measured = timeline_of(graph, replayed.start_ns + 10)

    write_trace(tmp_path / "t.json", {"measured": measured, "replayed": replayed})

    events = events_of(tmp_path / "t.json")
    order = {
        event["args"]["sort_index"]: event["pid"]
        for event in events
        if event["name"] == "process_sort_index"
    }
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert [names[order[index]] for index in sorted(order)] == [
        "rank 0 measured",
        "rank 0 replayed",
        "rank 1 measured",
        "rank 1 replayed",
    ]


def test_times_keep_their_nanoseconds(tmp_path: Path) -> None:
    graph = two_ranks()

    write_trace(tmp_path / "t.json", {"replayed": simulated(graph)})

    (kernel,) = slices_named(events_of(tmp_path / "t.json"), 'gemm<"a\\b">', "rank 1 replayed")
    assert kernel["ts"] == Decimal("1.001")
    assert kernel["dur"] == Decimal("6.234")


def test_collective_shows_wait_and_transfer(tmp_path: Path) -> None:
    graph = two_ranks()

    write_trace(tmp_path / "t.json", {"replayed": simulated(graph)})

    events = events_of(tmp_path / "t.json")
    (whole,) = slices_named(events, "allreduce", "rank 0 replayed")
    (wait,) = slices_named(events, "wait", "rank 0 replayed")
    (transfer,) = slices_named(events, "transfer", "rank 0 replayed")
    assert whole["args"]["wait_ns"] == 1_234
    assert whole["args"]["transfer_ns"] == 777
    assert whole["args"]["group"] == "world"
    assert wait["ts"] == whole["ts"]
    assert wait["dur"] + transfer["dur"] == whole["dur"]
    assert slices_named(events, "wait", "rank 1 replayed") == []


def test_slices_of_a_thread_nest_and_outer_ones_come_first(tmp_path: Path) -> None:
    graph = two_ranks()

    write_trace(tmp_path / "t.json", {"replayed": simulated(graph)})

    open_until: dict[tuple[int, int], list[Decimal]] = {}
    slices = [event for event in events_of(tmp_path / "t.json") if event["ph"] == "X"]
    for event in sorted(slices, key=lambda event: event["ts"]):
        stack = open_until.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1] <= event["ts"]:
            stack.pop()
        assert not stack or event["ts"] + event["dur"] <= stack[-1]
        stack.append(event["ts"] + event["dur"])


def test_steps_stand_on_their_own_thread(tmp_path: Path) -> None:
    graph = two_ranks()

    write_trace(tmp_path / "t.json", {"replayed": simulated(graph)})

    events = events_of(tmp_path / "t.json")
    (step,) = slices_named(events, "ProfilerStep#3", "rank 0 replayed")
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert threads[step["tid"]] == "steps"
    assert step["dur"] == Decimal("1.001")


def test_arrows_join_launch_and_kernel(tmp_path: Path) -> None:
    graph = two_ranks()

    write_trace(tmp_path / "t.json", {"replayed": simulated(graph)}, arrows=True)

    events = events_of(tmp_path / "t.json")
    (launch,) = slices_named(events, "cudaLaunchKernel", "rank 1 replayed")
    (kernel,) = slices_named(events, 'gemm<"a\\b">', "rank 1 replayed")
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == 2
    joined = {(starts[i]["tid"], starts[i]["ts"], ends[i]["tid"], ends[i]["ts"]) for i in starts}
    assert (launch["tid"], launch["ts"], kernel["tid"], kernel["ts"]) in joined


def test_compressed_file_holds_the_same_and_is_repeatable(tmp_path: Path) -> None:
    timeline = simulated(two_ranks())

    count = write_trace(tmp_path / "t.json", {"replayed": timeline})
    write_trace(tmp_path / "a.json.gz", {"replayed": timeline})
    write_trace(tmp_path / "b.json.gz", {"replayed": timeline})

    assert events_of(tmp_path / "a.json.gz") == events_of(tmp_path / "t.json")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert count == sum(event["ph"] == "X" for event in events_of(tmp_path / "t.json"))


def test_chunks_join_into_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = simulated(two_ranks())
    write_trace(tmp_path / "whole.json", {"replayed": timeline}, arrows=True)

    monkeypatch.setattr("foretrace.exchange.perfetto.CHUNK", 3)
    write_trace(tmp_path / "parts.json", {"replayed": timeline}, arrows=True)

    def key(event: Event) -> str:
        return json.dumps(event, sort_keys=True, default=str)

    whole, parts = events_of(tmp_path / "whole.json"), events_of(tmp_path / "parts.json")
    assert sorted(map(key, parts)) == sorted(map(key, whole))


def test_no_timeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="timeline_by_title is empty"):
        write_trace(tmp_path / "t.json", {})
    assert list(tmp_path.iterdir()) == []

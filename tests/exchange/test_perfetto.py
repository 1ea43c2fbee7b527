from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretrace.base import Int64s
from foretrace.exchange import Flow, write_trace
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Part, Phase, Timeline
from tests.exchange.chrome_rules import broken_rules
from tests.graphs import Block, Edge, GraphBuilder, timeline_of

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


def test_the_file_breaks_no_rule_of_its_format(tmp_path: Path) -> None:
    graph = two_ranks()
    replayed = simulated(graph)
    measured = timeline_of(graph, replayed.start_ns + 10)

    write_trace(
        tmp_path / "t.json", {"measured": measured, "replayed": replayed}, flows=tuple(Flow)
    )

    assert broken_rules(events_of(tmp_path / "t.json")) == []


def test_lanes_are_named_by_what_they_carry_and_stand_in_order(tmp_path: Path) -> None:
    graph = two_ranks()

    write_trace(tmp_path / "t.json", {"replayed": simulated(graph)})

    events = events_of(tmp_path / "t.json")
    name = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    order = {
        e["args"]["sort_index"]: name[e["pid"], e["tid"]]
        for e in events
        if e["name"] == "thread_sort_index" and e["pid"] == 1
    }
    assert [order[index] for index in sorted(order)] == [
        "steps",
        "thread 1 main",
        "stream 7 compute",
        "stream 20 allreduce (group world)",
    ]


def test_work_that_overlaps_on_a_stream_gets_a_track_of_its_own(tmp_path: Path) -> None:
    build = GraphBuilder()
    first = build.add(NodeKind.KERNEL, lane="stream 7", name="first", takes_ns=100)
    build.add(
        NodeKind.KERNEL,
        lane="stream 7",
        name="second",
        takes_ns=100,
        after=[Edge(first, EdgeKind.PROGRAMMATIC, lag_ns=-40)],
    )

    write_trace(tmp_path / "t.json", {"replayed": simulated(build.graph())})

    events = events_of(tmp_path / "t.json")
    name = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    on = {e["name"]: name[e["tid"]] for e in events if e["ph"] == "X"}
    assert on == {"first": "stream 7 compute", "second": "stream 7 compute, overlapping 1"}
    assert broken_rules(events) == []


def test_blocks_stand_inside_their_phase(tmp_path: Path) -> None:
    build = GraphBuilder()
    at: list[int] = []
    for part, phase, layer in (
        (Part.LAYER, Phase.FORWARD, 0),
        (Part.LAYER, Phase.FORWARD, 0),
        (Part.LAYER, Phase.FORWARD, 1),
        (Part.LAYER, Phase.BACKWARD, 1),
        (Part.BUCKET, Phase.BACKWARD, -1),
        (Part.LAYER, Phase.BACKWARD, 1),
        (Part.OPTIMIZER, Phase.OPTIMIZER, -1),
    ):
        block = Block(part, phase, layer, 2 if part == Part.LAYER else -1)
        at = [build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=1000, after=at, block=block)]

    write_trace(tmp_path / "t.json", {"replayed": simulated(build.graph())})

    events = events_of(tmp_path / "t.json")
    (blocks,) = {
        e["tid"] for e in events if e["name"] == "thread_name" and e["args"]["name"] == "blocks"
    }
    spans = {
        e["name"]: (e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == blocks
    }
    assert spans == {
        "forward, microbatch 2": (0, 3),
        "layer 0 forward": (0, 2),
        "layer 1 forward": (2, 1),
        "backward, microbatch 2": (3, 3),
        "layer 1 backward": (3, 3),
        "optimizer": (6, 1),
    }


def test_steps_stand_on_their_own_thread(tmp_path: Path) -> None:
    graph = two_ranks()

    write_trace(tmp_path / "t.json", {"replayed": simulated(graph)})

    events = events_of(tmp_path / "t.json")
    (step,) = slices_named(events, "ProfilerStep#3", "rank 0 replayed")
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert threads[step["tid"]] == "steps"
    assert step["dur"] == Decimal("1.001")


def joined(events: list[Event], category: str) -> set[tuple[str, str]]:
    """Names of the slices that each flow of this category starts and ends at."""
    at = {
        (e["pid"], e["tid"], e["ts"]): e["name"]
        for e in reversed([event for event in events if event["ph"] == "X"])
    }
    sides = [
        {e["id"]: at[e["pid"], e["tid"], e["ts"]] for e in events
         if e["ph"] == phase and e["cat"] == category}
        for phase in "sf"
    ]  # fmt: skip
    assert sides[0].keys() == sides[1].keys()
    return {(sides[0][flow], sides[1][flow]) for flow in sides[0]}


def test_flows_join_launches_with_kernels(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json", {"replayed": simulated(two_ranks())})

    events = events_of(tmp_path / "t.json")
    assert joined(events, "launch") == {("cudaLaunchKernel", 'gemm<"a\\b">')}
    assert sum(event["ph"] == "s" for event in events) == 2


def test_flows_of_a_collective_lead_from_the_last_rank_to_the_others(tmp_path: Path) -> None:
    graph = two_ranks()

    write_trace(tmp_path / "t.json", {"replayed": simulated(graph)}, flows=[Flow.COLLECTIVE])

    events = events_of(tmp_path / "t.json")
    (start,) = [event for event in events if event["ph"] == "s"]
    (end,) = [event for event in events if event["ph"] == "f"]
    (last,) = slices_named(events, "allreduce", "rank 1 replayed")
    (other,) = slices_named(events, "transfer", "rank 0 replayed")
    assert (start["tid"], start["ts"]) == (last["tid"], last["ts"])
    assert (end["tid"], end["ts"]) == (other["tid"], other["ts"])


def test_only_chosen_flows_are_drawn(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json", {"replayed": simulated(two_ranks())}, flows=[])

    assert not [event for event in events_of(tmp_path / "t.json") if event["ph"] in "sf"]


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
    write_trace(tmp_path / "whole.json", {"replayed": timeline}, flows=tuple(Flow))

    monkeypatch.setattr("foretrace.exchange.perfetto.CHUNK", 3)
    write_trace(tmp_path / "parts.json", {"replayed": timeline}, flows=tuple(Flow))

    def key(event: Event) -> str:
        return json.dumps(event, sort_keys=True, default=str)

    whole, parts = events_of(tmp_path / "whole.json"), events_of(tmp_path / "parts.json")
    assert sorted(map(key, parts)) == sorted(map(key, whole))


def test_no_timeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="timeline_by_title is empty"):
        write_trace(tmp_path / "t.json", {})
    assert list(tmp_path.iterdir()) == []


def test_chunks_of_perfettos_format_join_into_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = simulated(two_ranks())
    write_trace(tmp_path / "whole.pftrace", {"replayed": timeline}, flows=tuple(Flow))

    monkeypatch.setattr("foretrace.exchange.protobuf.CHUNK", 3)
    write_trace(tmp_path / "parts.pftrace", {"replayed": timeline}, flows=tuple(Flow))

    whole = (tmp_path / "whole.pftrace").read_bytes()
    assert (tmp_path / "parts.pftrace").read_bytes() == whole
    assert b"cudaLaunchKernel" in whole

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretrace.base import Int64s
from foretrace.exchange import (
    Counter,
    Slices,
    cause_slices,
    memory_counters,
    path_slices,
    write_trace,
)
from foretrace.exchange.counters import MOST_POINTS, timeline_counters
from foretrace.graph import Collectives, EdgeKind, MemoryEvents, NodeKind, Timeline
from tests.exchange.chrome_rules import broken_rules
from tests.exchange.test_perfetto import Event, events_of, joined, simulated, two_ranks
from tests.graphs import Edge, GraphBuilder, timeline_of


def ns(*values: int) -> Int64s:
    return np.array(values, np.int64)


def process_names(events: list[Event]) -> dict[int, str]:
    return {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}


def slices_of(events: list[Event], process: str, track: str) -> list[Event]:
    names = process_names(events)
    (place,) = {
        (e["pid"], e["tid"])
        for e in events
        if e["name"] == "thread_name" and e["args"]["name"] == track and names[e["pid"]] == process
    }
    return [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == place]


def counter_of(timeline: Timeline, track: str, rank: int) -> Counter:
    (found,) = [
        one for one in timeline_counters(timeline) if (one.track, one.rank) == (track, rank)
    ]
    return found


def path_of(timeline: Timeline) -> Slices:
    """Rank 1's launch and kernel, then the transfer; with the wait of rank 0 left out."""
    graph = timeline.graph
    of_rank = graph.rank == 1
    node = np.array(
        [
            np.flatnonzero((graph.kind == kind) & of_rank)[0]
            for kind in (NodeKind.LAUNCH, NodeKind.KERNEL, NodeKind.KERNEL, NodeKind.FINISH)
        ]
    )
    launch, kernel, _, finish = node.tolist()
    begin_ns = ns(
        timeline.start_ns[launch],
        timeline.start_ns[kernel],
        timeline.start_ns[kernel] + 1,
        timeline.start_ns[finish],
    )
    return path_slices(
        timeline,
        node,
        is_work=np.array([True, False, True, True]),
        begin_ns=begin_ns,
        end_ns=np.append(begin_ns[1:], timeline.end_ns[finish]),
        labels=["launch", "launch latency", "gemm", "allreduce"],
    )


def test_a_critical_path_is_a_process_of_its_own_with_flows(tmp_path: Path) -> None:
    timeline = simulated(two_ranks())
    track = path_of(timeline)

    write_trace(tmp_path / "t.json", {"replayed": timeline}, tracks_by_title={"replayed": [track]})

    events = events_of(tmp_path / "t.json")
    path = slices_of(events, "critical path replayed", "critical path")
    assert [piece["name"] for piece in path] == [
        "cudaLaunchKernel",
        "launch latency",
        'gemm<"a\\b">',
        "allreduce",
    ]
    assert path[2]["args"] == {"class": "gemm", "lane": "rank 1 stream 7"}
    assert joined(events, "critical path") == {
        ("cudaLaunchKernel", 'gemm<"a\\b">'),
        ('gemm<"a\\b">', "allreduce"),
    }
    assert process_names(events)[1] == "critical path replayed"
    assert broken_rules(events) == []


def test_causes_of_idle_time_stand_with_their_rank(tmp_path: Path) -> None:
    tracks = cause_slices(
        ns(1, 0, 1),
        begin_ns=ns(500, 100, 200),
        end_ns=ns(900, 300, 400),
        causes=["data", "host", "host"],
        details=["DataLoader", "", "aten::add"],
    )

    write_trace(
        tmp_path / "t.json",
        {"replayed": simulated(two_ranks())},
        tracks_by_title={"replayed": tracks},
    )

    events = events_of(tmp_path / "t.json")
    causes = slices_of(events, "rank 1 replayed", "idle: cause")
    assert [(e["name"], int(e["ts"] * 1000), e["args"]) for e in causes] == [
        ("host", 200, {"responsible": "aten::add"}),
        ("data", 500, {"responsible": "DataLoader"}),
    ]
    assert len(slices_of(events, "rank 0 replayed", "idle: cause")) == 1


def test_idle_time_that_two_steps_count_is_drawn_once() -> None:
    (track,) = cause_slices(
        ns(0, 0, 0, 0),
        begin_ns=ns(100, 300, 100, 250),
        end_ns=ns(200, 400, 200, 350),
        causes=["host", "data", "host", "host"],
        details=["", "", "", ""],
    )

    names = [track.names[name] for name in track.name.tolist()]
    assert list(zip(names, track.start_ns.tolist(), track.end_ns.tolist(), strict=True)) == [
        ("host", 100, 200),
        ("host", 250, 350),
        ("data", 350, 400),
    ]


def test_queue_counts_what_is_launched_and_has_not_begun() -> None:
    build = GraphBuilder()
    at: list[int | Edge] = []
    for _ in range(3):
        launch = build.add(NodeKind.LAUNCH, takes_ns=10, after=at)
        build.add(
            NodeKind.KERNEL, lane="stream 7", takes_ns=100, after=[Edge(launch, EdgeKind.LAUNCH)]
        )
        at = [launch]
    graph = build.graph()
    timeline = timeline_of(graph, ns(0, 30, 10, 130, 20, 230))

    queue = counter_of(timeline, "launch queue", 0)

    assert queue.at_ns.tolist() == [0, 10, 20, 30, 130, 230]
    assert queue.value.tolist() == [1, 2, 3, 2, 1, 0]


def test_busy_share_is_what_kernels_cover() -> None:
    build = GraphBuilder()
    for stream in ("stream 7", "stream 8"):
        build.add(NodeKind.KERNEL, lane=stream, takes_ns=600_000)
    build.add(NodeKind.OPERATOR, takes_ns=1_000_000)
    timeline = timeline_of(build.graph(), ns(0, 300_000, 0))

    busy = counter_of(timeline, "busy", 0)

    assert set(busy.value[busy.at_ns < 900_000]) == {100.0}
    assert set(busy.value[busy.at_ns >= 900_000]) == {0.0}


def test_busy_share_of_a_rank_without_device_is_its_operators() -> None:
    build = GraphBuilder()
    first = build.add(NodeKind.OPERATOR, takes_ns=2_000)
    build.add(NodeKind.HOST_SEGMENT, takes_ns=6_000, after=[first])
    timeline = simulated(build.graph())

    assert counter_of(timeline, "busy", 0).value.mean() == pytest.approx(25.0)


def test_bytes_in_flight_last_for_the_transfer_alone() -> None:
    timeline = simulated(two_ranks())
    graph = timeline.graph
    sizes = Collectives.of([replace(one, num_bytes=4096) for one in graph.collectives])
    sized = Timeline(
        replace(graph, collectives=sizes),
        timeline.start_ns,
        timeline.end_ns,
        is_measured=False,
    )

    flight = counter_of(sized, "collectives in flight", 0)

    finish = np.flatnonzero((graph.kind == NodeKind.FINISH) & (graph.rank == 0))[0]
    assert flight.at_ns.tolist() == [timeline.start_ns[finish], timeline.end_ns[finish]]
    assert flight.value.tolist() == [4096, 0]
    assert not [one for one in timeline_counters(timeline) if one.track == flight.track]


def test_a_long_counter_keeps_its_peaks() -> None:
    at_ns = np.arange(10 * MOST_POINTS, dtype=np.int64) * 7
    allocated = np.arange(10 * MOST_POINTS, dtype=np.int64) % 1009
    allocated[12_345] = 5_000_000
    unknown = np.full(len(at_ns), -1)
    events = MemoryEvents(0, True, 0, at_ns, np.zeros_like(at_ns), allocated, unknown)

    (counter,) = memory_counters([events])

    assert len(counter.at_ns) <= MOST_POINTS
    assert counter.value.max() == 5_000_000
    assert abs(counter.at_ns[counter.value.argmax()] - at_ns[12_345]) <= 10 * 7
    assert (counter.track, counter.unit) == ("memory allocated, device 0", "bytes")


def test_a_counter_is_drawn_with_its_rank_and_unit(tmp_path: Path) -> None:
    counter = Counter("memory", 1, "bytes", ns(0, 1_500), np.array([8.0, 0.0]))

    write_trace(
        tmp_path / "t.json",
        {"replayed": simulated(two_ranks())},
        tracks_by_title={"replayed": [counter]},
        counters=False,
    )

    events = events_of(tmp_path / "t.json")
    points = [event for event in events if event["ph"] == "C"]
    assert [(float(e["ts"]), e["args"]) for e in points] == [(0, {"bytes": 8}), (1.5, {"bytes": 0})]
    assert {process_names(events)[e["pid"]] for e in points} == {"rank 1 replayed"}


def test_a_track_of_an_unknown_rank_or_title_is_refused(tmp_path: Path) -> None:
    timeline = simulated(two_ranks())
    (track,) = cause_slices(ns(7), begin_ns=ns(0), end_ns=ns(1), causes=["host"], details=[""])

    with pytest.raises(ValueError, match=r"rank 7, which .* does not have: its ranks are 0, 1"):
        write_trace(tmp_path / "t.json", {"m": timeline}, tracks_by_title={"m": [track]})
    with pytest.raises(ValueError, match="'x', which is no timeline's title"):
        write_trace(tmp_path / "t.json", {"m": timeline}, tracks_by_title={"x": [track]})
    assert list(tmp_path.iterdir()) == []


def test_slices_must_have_equal_columns_and_rising_times() -> None:
    with pytest.raises(ValueError, match="end_ns has 2 entries for 1 slices"):
        Slices("t", None, ("a",), ns(0), ns(0), ns(1, 2))
    with pytest.raises(ValueError, match="slice 1 ends before it starts"):
        Slices("t", None, ("a",), ns(0, 0), ns(0, 5), ns(1, 4))

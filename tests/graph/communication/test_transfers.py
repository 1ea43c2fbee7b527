"""Waits split from transfers: recorded members, members that only send, ranks not recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretrace.graph import EdgeKind, NodeKind, Recording, build_recording, verify
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from tests.graph.gloo_files import GlooRank
from tests.graph.recorded import (
    EXACT,
    Event,
    edges_of,
    exact_job,
    file_text,
    kernel,
    launch,
    nodes_of,
    recording_of,
    recording_of_files,
    replayed_step_ns,
    step,
)
from tests.truth import Job, Link, write
from tests.truth.small import Launch, Reduce

US = 1_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BROADCAST = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECEIVE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def of_group(name: str, **more: object) -> dict[str, Any]:
    """NCCL metadata of a group of two."""
    return {
        "Collective name": name,
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
        "Group size": 2,
        "In msg nelems": 1_000,
        "Out msg nelems": 1_000,
        "dtype": "Float",
        **more,
    }


def pair(name: str, *spans: tuple[int, int], metas: list[dict[str, Any]]) -> Recording:
    """Two ranks with a communication each; an all-reduce that ends together aligns the clocks."""
    texts = []
    for rank, ((begin, end), meta) in enumerate(zip(spans, metas, strict=True)):
        events: list[Event] = [
            *(step(1, 0, 2_000), launch(2, 3, correlation=1), launch(10, 3, correlation=2)),
            kernel(name, begin, end - begin, correlation=1, stream=20, **meta),
            launch(1_000, 3, correlation=3),
            kernel(ALL_REDUCE, 1_010, 90, correlation=3, stream=24, **of_group("allreduce")),
            kernel("work", 15, 40, correlation=2),
        ]
        events[2]["ts"] = 10
        texts.append(file_text(events, rank=rank, world_size=2))
    return recording_of_files(texts)


def finish_of(recording: Recording, name: str, rank: int) -> int:
    graph = recording.graph
    (node,) = [n for n in nodes_of(graph, NodeKind.FINISH, name=name) if graph.rank[n] == rank]
    return node


def test_the_transfer_is_what_remains_after_the_last_arrival() -> None:
    spans = ((100, 500), (400, 500))
    recording = pair(ALL_GATHER, *spans, metas=[of_group("allgather")] * 2)

    for rank in (0, 1):
        node = finish_of(recording, "AllGather", rank)
        assert recording.graph.measured_ns[node] == 100 * US
        assert recording.measured.start_ns[node] == 400 * US


def test_a_sender_that_left_before_the_receiver_came_waited_for_nobody() -> None:
    spans = ((100, 150), (400, 430))
    recording = pair(BROADCAST, *spans, metas=[of_group("broadcast")] * 2)

    graph = recording.graph
    sender, receiver = (finish_of(recording, "Broadcast", rank) for rank in (0, 1))
    transfers = edges_of(graph, EdgeKind.TRANSFER)
    before = {graph.kind[one] for one, other in transfers if other == sender}
    assert before == {NodeKind.ARRIVE}
    assert graph.measured_ns[[sender, receiver]].tolist() == [50 * US, 30 * US]


def test_a_send_and_its_receive_meet() -> None:
    spans = ((300, 400), (100, 400))
    metas = [
        of_group("send", **{"Dst Rank": 1, "Src Rank": 0}),
        of_group("recv", **{"Src Rank": 0, "Dst Rank": 1}),
    ]

    recording = pair(SEND_RECEIVE, *spans, metas=metas)

    (transfer,) = [each for each in recording.graph.collectives if each.name == "sendrecv"]
    assert transfer.ranks == transfer.recorded_ranks == (0, 1)
    measured_ns = recording.graph.measured_ns
    assert [measured_ns[finish_of(recording, "SendRecv", rank)] for rank in (0, 1)] == [
        100 * US
    ] * 2


def job_with_a_slow_rank() -> Job:
    config = replace(EXACT, tp_link=Link(latency_ns=70 * US, bytes_per_ns=float("inf")))
    fast = tuple(each for _ in range(6) for each in (Launch(200 * US), Reduce()))
    slow_us = (190, 250, 300, 190, 250, 300)  # at the first of three, rank 0 comes last
    slow = tuple(each for us in slow_us for each in (Launch(us * US), Reduce()))
    return exact_job(fast, slow, config=config)


def test_a_rank_that_was_not_recorded_becomes_a_ghost(tmp_path: Path) -> None:
    job = job_with_a_slow_rank()
    whole = recording_of(job)
    (path,) = write(job, tmp_path, ranks=(0,), compress=False)

    alone = build_recording(load_traces([path]))

    verify(alone.graph)
    assert alone.graph.ranks == (0,)
    assert replayed_step_ns(alone)[0] == pytest.approx(replayed_step_ns(whole)[0], abs=2 * US)
    assert all(each.is_transfer_estimated for each in alone.graph.collectives)
    assert any(finding.topic == "ghosts" for finding in alone.findings)
    assert len(nodes_of(alone.graph, NodeKind.GHOST)) == 4
    # Faster kernels of the recorded rank help where it came last; elsewhere the ghost still comes
    # when it does.
    faster_ns = alone.graph.measured_ns.copy()
    faster_ns[nodes_of(alone.graph, NodeKind.KERNEL)] //= 4
    last = nodes_of(alone.graph, NodeKind.FINISH)[-1]
    before, after = simulate(alone.graph), simulate(alone.graph, faster_ns)
    assert before.end_ns[last] - after.end_ns[last] == pytest.approx(2 * 150 * US, abs=10 * US)


def test_a_ghost_lasts_as_long_as_what_it_stands_for(tmp_path: Path) -> None:
    job = job_with_a_slow_rank()
    (path,) = write(job, tmp_path, ranks=(0,), compress=False)

    graph = build_recording(load_traces([path])).graph

    # Between two reductions the unrecorded rank ran one kernel and waited a little for its launch.
    ghosts_ns = np.sort(graph.measured_ns[nodes_of(graph, NodeKind.GHOST)])
    assert ghosts_ns == pytest.approx(np.array([250, 250, 300, 300]) * US, abs=10 * US)


def test_collectives_of_one_group_that_ran_side_by_side_do_not_wait_for_each_other() -> None:
    host = GlooRank(0, {"0": (0, 1)}, 2)
    for at in range(8):
        host.work(100 * at, 100 * at + 40)
        call = (100 * at + 50, 100 * at + 60)
        # Up to four at a time; those of the second step wait for the rank that was not recorded.
        span_us = 210 + (30 if at >= 4 else 0)
        host.collective(call, (call[1] + 5, call[1] + 5 + span_us), worker=at)
    recording = recording_of_files([host.text(400, 1_100)])

    replayed = simulate(recording.graph)

    finish = nodes_of(recording.graph, NodeKind.FINISH)
    assert len(finish) == 8
    assert len(nodes_of(recording.graph, NodeKind.GHOST)) == 4
    error_ns = replayed.end_ns[finish] - recording.measured.end_ns[finish]
    assert np.abs(error_ns).max() <= 10 * US


def test_workers_that_start_in_another_order_than_they_were_asked_meet_by_number() -> None:
    first, second = GlooRank(0, {"0": (0, 1)}, 2), GlooRank(1, {"0": (0, 1)}, 2)
    starts_us = {0: (310, 300), 1: (300, 310)}  # of the first and the second all-reduce
    for host in (first, second):
        host.work(0, 100)
        for at, (rows, call_us) in enumerate(((4, 100), (8, 120))):
            start_us = starts_us[host.rank][at]
            span = (start_us, start_us + 50)
            host.collective((call_us, call_us + 10), span, worker=at, number=7 + at, rows=rows)
        host.work(140, 400)

    recording = recording_of_files([host.text(400) for host in (first, second)])

    assert [
        (each.num_bytes, each.recorded_ranks, each.position) for each in recording.graph.collectives
    ] == [(128, (0, 1), 0), (256, (0, 1), 1)]
    assert not [each for each in recording.findings if each.topic == "collectives"]


def test_a_busy_host_that_lets_one_rank_leave_late_does_not_move_its_clock() -> None:
    hosts = [GlooRank(rank, {"0": (0, 1)}, 2) for rank in range(2)]
    for host in hosts:
        for at in range(20):
            begin_us = 2_000 * at
            host.work(begin_us, begin_us + 100)
            # Of five times, the second rank has its core back at once in two.
            late_us = 800 if host.rank and at % 5 > 1 else 0
            span = (begin_us + 130, begin_us + 180 + late_us)
            host.collective((begin_us + 110, begin_us + 120), span, worker=at % 2)

    recording = recording_of_files([host.text(40_000) for host in hosts])

    clock = recording.clocks[1]
    assert (clock.drift_ppb, abs(clock.offset_ns) <= 50 * US) == (0, True)

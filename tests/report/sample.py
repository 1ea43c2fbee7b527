"""A replay of two ranks, made by hand, for what is drawn and printed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from foretrace.analyze import (
    HostFrames,
    bound,
    breakdown,
    busy_fraction,
    class_labels,
    collective_times,
    critical_path,
    diagnosis,
    idle,
    operators,
    sensitivity,
    step_time_ns,
    steps,
    stragglers,
    what_helps,
)
from foretrace.graph import Clock, EdgeConstant, EdgeKind, Finding, NodeKind, Recording, Timeline
from foretrace.report import Answers, ReportPage
from foretrace.simulate import simulate
from foretrace.trace import TraceMeta
from foretrace.validate import ReplayReport, replay_report
from tests.graphs import Edge, GraphBuilder, recording_of

SCRIPT_IN_A_NAME = "</script><script>alert(1)</script>"


@dataclass(frozen=True)
class Sample:
    """A recording, its replay, and the comparison."""

    recording: Recording
    replayed: Timeline
    replay: ReplayReport

    @cached_property
    def answers(self) -> Answers:
        """What the analyses say about it."""
        levers = sensitivity(self.replayed)
        return Answers(
            path_by_title={
                "measured": critical_path(self.recording.measured),
                "replayed": critical_path(self.replayed),
            },
            helps=what_helps(levers),
            lost=diagnosis(self.recording),
            idle_by_title={
                "measured": idle(self.recording.measured),
                "replayed": idle(self.replayed),
            },
            by_question={
                "critical_path": critical_path(self.replayed),
                "idle": idle(self.replayed),
                "operators": operators(self.recording.measured),
                "sensitivity": levers,
                "stragglers": stragglers(self.recording.measured),
            },
        )

    @cached_property
    def page(self) -> ReportPage:
        """The page of this replay."""
        timelines = {"measured": self.recording.measured, "replayed": self.replayed}
        return ReportPage(
            title="sample <run>",
            version="1.2.3",
            replay=self.replay,
            metas=tuple(meta(rank) for rank in self.recording.graph.ranks),
            timeline_by_title=timelines,
            collectives_by_title={name: collective_times(one) for name, one in timelines.items()},
            steps_by_title={name: steps(one) for name, one in timelines.items()},
            busy_by_title={name: busy_fraction(one) for name, one in timelines.items()},
            labels=class_labels(self.recording.graph),
            answers=self.answers,
            frames=HostFrames(
                names=("aten::reshape", "train.py(12): step"),
                rank=np.array([0, 0], np.int32),
                kind=np.array([0, 2], np.uint8),
                name=np.array([0, 1], np.int32),
                start_ns=np.array([2_000, 0]),
                end_ns=np.array([8_000, 9_000]),
                num_left_out=7,
                longest_left_out_ns=900,
            ),
            step_ns=step_time_ns(self.recording.measured),
            bound=bound(
                breakdown(self.recording.measured),
                self.answers.idle_by_title["measured"],
                is_on_device=True,
            ),
        )


def meta(rank: int) -> TraceMeta:
    """A file of this rank."""
    return TraceMeta(
        path=Path(f"/runs/sample/rank{rank}.json.gz"),
        content_key="0",
        file_bytes=1_234,
        json_bytes=12_345,
        rank=rank,
        world_size=8,
        backend="nccl",
        process_groups=(),
        device_names=("Imaginary GPU",),
        timestamp_unit_ns=1,
        is_truncated=rank == 1,
        num_events=456,
        dropped={"flow arrows": 12},
        notes=(),
    )


def many_ranks(count: int) -> ReportPage:
    """The page of so many ranks that do the same: a kernel, then a collective of all."""
    build = GraphBuilder()
    step = "ProfilerStep#1"
    begins = {rank: build.add(NodeKind.STEP_BEGIN, rank=rank, step=step) for rank in range(count)}
    launches = {
        rank: build.add(NodeKind.LAUNCH, rank=rank, takes_ns=5_000, after=[begin], step=step)
        for rank, begin in begins.items()
    }
    kernels = {
        rank: build.add(
            NodeKind.KERNEL,
            rank=rank,
            lane="stream 7",
            takes_ns=1_000 * (1 + rank),
            after=[Edge(launch, EdgeKind.LAUNCH, 10)],
            step=step,
        )
        for rank, launch in launches.items()
    }
    build.collective({rank: [node] for rank, node in kernels.items()}, transfer_ns=500, step=step)
    for rank, launch in launches.items():
        build.add(NodeKind.STEP_END, rank=rank, after=[launch], step=step)
    graph = build.graph()
    recording = recording_of(graph, simulate(graph))
    replayed = simulate(graph)
    return Sample(recording, replayed, replay_report(recording, simulated=replayed)).page


@cache
def sample() -> Sample:
    """Two ranks, two steps: launches, kernels, a collective, a synchronisation."""
    build = GraphBuilder()
    host: dict[int, int | None] = {0: None, 1: None}
    for step in ("ProfilerStep#1", "ProfilerStep#2"):
        kernels = {}
        for rank, before in host.items():
            begin = build.add(
                NodeKind.STEP_BEGIN,
                rank=rank,
                step=step,
                after=[] if before is None else [before],
            )
            launch = build.add(NodeKind.LAUNCH, rank=rank, takes_ns=9_000, after=[begin], step=step)
            host[rank] = launch
            kernels[rank] = build.add(
                NodeKind.KERNEL,
                rank=rank,
                lane="stream 7",
                name=SCRIPT_IN_A_NAME,
                takes_ns=1_000_000 + 250_000 * rank,
                after=[Edge(launch, EdgeKind.LAUNCH, 6_000)],
                step=step,
            )
        ends = build.collective(
            {rank: [Edge(node, EdgeKind.INTER_STREAM, 1_000)] for rank, node in kernels.items()},
            transfer_ns=500_000,
            step=step,
        )
        for rank, end in ends.items():
            launched = host[rank]
            assert launched is not None
            wait = build.add(
                NodeKind.SYNC,
                rank=rank,
                after=[launched, Edge(end, EdgeKind.WAKE, 8_000)],
                step=step,
            )
            host[rank] = build.add(NodeKind.STEP_END, rank=rank, after=[wait], step=step)
    constants = (
        EdgeConstant(EdgeKind.LAUNCH, 6_000, 40, 5_000, 9_000),
        EdgeConstant(EdgeKind.WAKE, 8_000, 0, 8_000, 8_000),
    )
    graph = replace(build.graph(), constants=constants)
    slower_ns = graph.measured_ns + graph.measured_ns // 100
    recording = replace(
        recording_of(graph, simulate(graph, slower_ns.astype(np.int64))),
        clocks=(Clock(0, 0, 0, 0, 0), Clock(1, 5_000_000, 900, 2_500, 2)),
        findings=(Finding("streams", "No event ids: waits were inferred.", (Path("a.json"),)),),
        unprofiled_step_ns={0: 1_500_000, 1: 1_600_000},
    )
    replayed = simulate(graph)
    return Sample(recording, replayed, replay_report(recording, simulated=replayed))

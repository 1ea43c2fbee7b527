"""Idle time, stragglers and hangs of public traces: sums hold, and a clean run does not hang."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretrace.analyze import (
    IdleCause,
    Stillness,
    breakdown,
    collective_times,
    hang,
    idle,
    stragglers,
)
from foretrace.graph import Recording, Timeline, build_recording
from foretrace.simulate import simulate
from foretrace.trace import load_traces

FILES = (
    "megatron-tp8",
    "a100-dlrm-rank3-of-8/control.json.gz",
    "a100-resnet-ddp2-rank0/nccl_data.json.gz",
    "v100-resnet50-dataloader/worker0.1623143089861.pt.trace.json.gz",
    "v100-single/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "odd-files/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
)


@pytest.fixture(scope="module", params=FILES)
def recording(data_dir: Path, request: pytest.FixtureRequest) -> Recording:
    path = data_dir / "traces" / str(request.param)
    paths = sorted(path.glob("kineto_rank*")) if path.is_dir() else [path]
    return build_recording(load_traces(paths))


@pytest.fixture(params=["measured", "simulated"])
def timeline(recording: Recording, request: pytest.FixtureRequest) -> Timeline:
    return recording.measured if request.param == "measured" else simulate(recording.graph)


def test_idle_causes_sum_to_the_breakdown_and_waits_stay_inside(timeline: Timeline) -> None:
    found = idle(timeline)

    for row in breakdown(timeline).rows:
        chosen = (found.rank == row.rank) & (found.step == row.step)
        is_idle = chosen & (found.kind == Stillness.IDLE)
        assert int(found.duration_ns[is_idle].sum()) == row.parts.idle_ns
        waiting_ns = int(found.duration_ns[chosen & ~is_idle].sum())
        assert 0 <= waiting_ns <= row.parts.exposed_communication_ns
    if not timeline.is_measured:
        assert IdleCause.UNEXPLAINED not in found.by_cause()


def test_all_waiting_for_ranks_is_somebodys(timeline: Timeline) -> None:
    found = stragglers(timeline)

    table = collective_times(timeline)
    assert found.waiting_ns_of_all <= int(table.wait_ns.sum())
    assert sum(rank.own_wait_ns for rank in found.ranks) == found.waiting_ns_of_all
    blamed_ns = sum(rank.blame_ns for rank in found.ranks)
    assert blamed_ns <= found.waiting_ns_of_all + len(found.causes) * len(found.subjects)


def test_a_run_that_ended_does_not_hang(recording: Recording) -> None:
    assert not hang(recording).is_hung


def test_most_idle_time_of_the_loader_trace_is_waiting_for_data(data_dir: Path) -> None:
    name = "v100-resnet50-dataloader/worker0.1623143089861.pt.trace.json.gz"
    timeline = build_recording(load_traces([data_dir / "traces" / name])).measured

    rows = breakdown(timeline).rows[1:]  # the first step's batch was loaded before the recording

    for row in rows:
        causes = idle(timeline, step=row.step_name).by_cause(Stillness.IDLE)
        assert next(iter(causes)) == IdleCause.DATA
        assert causes[IdleCause.DATA] > 0.7 * row.parts.idle_ns
        assert causes[IdleCause.DATA] > 0.25 * row.step_ns


def test_the_ranks_that_megatron_waits_for_are_the_two_whose_hosts_stall_most(
    data_dir: Path,
) -> None:
    paths = sorted((data_dir / "traces" / "megatron-tp8").glob("kineto_rank*"))
    timeline = build_recording(load_traces(paths)).measured

    found = stragglers(timeline)

    # ranks 0 and 6 are idle for 230 ms of the step, the others, which wait, for far less
    idle_ns = {row.rank: row.parts.idle_ns for row in breakdown(timeline).rows}
    slow = sorted(idle_ns, key=lambda rank: -idle_ns[rank])[:2]
    assert sorted(rank.rank for rank in found.ranks[:2]) == sorted(slow)
    assert all(rank.is_systematic for rank in found.ranks[:2])
    assert {rank.causes[0].cause for rank in found.ranks[:2]} == {IdleCause.STALL}
    blamed = np.array([rank.blame_ns for rank in found.ranks])
    assert blamed[:2].sum() > 0.9 * blamed.sum()

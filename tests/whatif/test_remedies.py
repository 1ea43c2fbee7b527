from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import foretrace as ft
from foretrace.analyze import LeverKind, selection_of, sensitivity
from foretrace.base import ScenarioError
from foretrace.graph import EdgeKind, ExecutionGraph, MemoryEvents, NodeKind, Recording
from foretrace.simulate import simulate
from foretrace.whatif import (
    Baseline,
    Batch,
    CudaGraphs,
    NoStalls,
    Remedies,
    RemoveSync,
    Speed,
    baseline_of,
    predict,
    proposals,
    tried_remedies,
)
from tests.acceptance.recovery import recording_of_job
from tests.graphs import Edge, GraphBuilder, recording_of
from tests.truth import Job, JobConfig, LateLoader, LongerSegment, make_job

STALL_NS = 40_000_000


@cache
def job() -> Job:
    return make_job(JobConfig(tp=2, num_layers=2, num_steps=4, data_loading_ns=200_000))


@cache
def recorded(*, is_stalled: bool = True) -> Recording:
    """A job of two ranks; one stalls once, and its loader is late."""
    forward = [each for each in job().operations(1) if "flash_fwd" in each.name]
    stall = LongerSegment(1, forward[len(forward) // 2].correlation, STALL_NS)
    return recording_of_job(job().after(stall, LateLoader(1, 3_000_000)) if is_stalled else job())


@cache
def baseline() -> Baseline:
    return baseline_of(recorded())


@cache
def found() -> Remedies:
    return tried_remedies(baseline())


def test_what_was_planted_gains_what_it_cost() -> None:
    gain_ns = {one.name: one.gain_ns for one in found().rows}

    assert gain_ns["no host stalls"] == pytest.approx(STALL_NS / 4, rel=0.1)  # of four steps
    assert gain_ns["data loaded ahead"] > 2_000_000
    assert [one.gain_ns for one in found().rows] == sorted(
        (one.gain_ns for one in found().rows), reverse=True
    )


def test_every_remedy_gains_what_the_what_if_of_its_edits_does() -> None:
    assert found().together
    for one in (*found().rows, *found().together):
        again = predict(baseline(), one.edits)

        assert (one.step_ns, one.low_ns, one.high_ns) == (
            again.step_ns,
            again.low_ns,
            again.high_ns,
        )
        assert one.gain_ns == -again.change_ns
        assert one.low_ns <= one.step_ns <= one.high_ns


@pytest.mark.parametrize("name", ["cpu-llama-tp2-dp2/traces", "planted/large-bucket"])
def test_advice_on_real_recordings_gains_what_the_what_if_does(name: str, repository: Path) -> None:
    base = baseline_of(ft.load(repository / "examples" / name, cache=False).recording)

    tried = tried_remedies(base)

    assert tried.num_tried >= 4
    assert tried.rows
    for one in (*tried.rows, *tried.together):
        again = predict(base, one.edits)
        assert (one.step_ns, one.low_ns, one.high_ns) == (
            again.step_ns,
            again.low_ns,
            again.high_ns,
        )


def test_of_several_ways_the_best_is_told() -> None:
    base = baseline_of(recording_of_job(make_job(JobConfig(dp=2, num_layers=2, num_steps=3))))

    ways = [one for one in proposals(base) if one.of == "buckets"]

    assert len({one.name for one in ways}) == len(ways) == 2
    told = [one.name for one in tried_remedies(base).rows]
    assert len(set(told) & {one.name for one in ways}) <= 1


def test_each_kind_of_stall_is_a_change_of_its_own() -> None:
    every, none = predict(baseline(), (NoStalls(),)), baseline().replayed_step_ns

    untold = predict(baseline(), (NoStalls("cause not recorded"),))

    assert none - untold.step_ns == pytest.approx(none - every.step_ns, rel=0.1)
    with pytest.raises(ScenarioError, match="no host thread stood still for garbage collection"):
        predict(baseline(), (NoStalls("garbage collection"),))
    with pytest.raises(ScenarioError, match="no stall here is called 'gc'"):
        predict(baseline(), (NoStalls("gc"),))


def with_memory(begin_bytes: int, peak_bytes: int) -> Recording:
    """A job of four microbatches whose device was seen to hold so much."""
    job = make_job(JobConfig(num_layers=2, num_steps=3, num_microbatches=4))
    recording = recording_of_job(job)
    middle_ns = int(recording.measured.end_ns.max() // 2)
    events = MemoryEvents(
        rank=0,
        is_device=True,
        device=0,
        at_ns=np.array([0, middle_ns, middle_ns + 1], np.int64),
        change_bytes=np.array([0, peak_bytes - begin_bytes, begin_bytes - peak_bytes], np.int64),
        allocated_bytes=np.array([begin_bytes, peak_bytes, begin_bytes], np.int64),
        reserved_bytes=np.full(3, peak_bytes, np.int64),
    )
    return replace(recording, memory=(events,))


@pytest.mark.parametrize(("memory_bytes", "most"), [(20 << 30, 1), (40 << 30, 4), (None, 4)])
def test_microbatches_grow_as_far_as_memory_was_seen_to_last(
    memory_bytes: int | None, most: int
) -> None:
    base = baseline_of(with_memory(8 << 30, 14 << 30))

    found = [
        edit.micro_batch // base.before.plan.micro_batch
        for one in proposals(base, memory_bytes=memory_bytes)
        for edit in one.edits
        if isinstance(edit, Batch) and edit.micro_batch is not None
    ]

    assert max(found, default=1) == most


def test_without_recorded_memory_no_larger_microbatch_is_proposed() -> None:
    base = baseline_of(recording_of_job(make_job(JobConfig(num_steps=3, num_microbatches=4))))

    assert not [one for one in proposals(base) if one.of == "microbatches"]


def test_staged_copies_are_proposed_to_be_pinned() -> None:
    gap_ns, call_ns, staging_ns = 1_000, 5_000, 900_000
    build = GraphBuilder()
    host = build.add(NodeKind.RANK_START)
    host = build.add(NodeKind.STEP_BEGIN, after=[host], step="1")
    for name, call, took in (
        ("Memcpy HtoD (Pageable -> Device)", "cudaMemcpyAsync", staging_ns),
        ("gelu", "cudaLaunchKernel", call_ns),
    ):
        host = build.add(NodeKind.HOST_SEGMENT, takes_ns=gap_ns, after=[host], step="1")
        host = build.add(NodeKind.LAUNCH, name=call, takes_ns=took, after=[host], step="1")
        build.add(
            NodeKind.MEMCPY if "Memcpy" in name else NodeKind.KERNEL,
            lane="stream 7",
            name=name,
            takes_ns=10_000,
            after=[Edge(host, EdgeKind.LAUNCH)],
            step="1",
        )
    host = build.add(NodeKind.STEP_END, after=[host], step="1")

    graph = build.graph()
    base = baseline_of(recording_of(graph, simulate(graph)))
    (pinned,) = [one for one in tried_remedies(base).rows if one.name == "pinned copies"]

    assert pinned.gain_ns == staging_ns - call_ns


@pytest.mark.parametrize(
    ("file", "repeats"),
    [
        ("cuda-sync-events/alexnet/benchmark_result_2869224_1695835535_trace.json.gz", False),
        ("execution-traces/linear_kineto.json.gz", True),
    ],
)
def test_what_runs_once_is_not_captured(data_dir: Path, file: str, *, repeats: bool) -> None:
    """Both mark no steps: one is a first pass with all that starts up, the other forty passes."""
    base = baseline_of(ft.load(data_dir / "traces" / file, cache=False).recording)

    names = [one.name for one in proposals(base)]

    assert ("CUDA graphs" in names) == repeats
    assert "fused elementwise kernels" in names


def two_streams(*, is_wide: bool) -> ExecutionGraph:
    """A kernel, a wait for it, another kernel: on a stream of its own, or after host work."""
    step, kernel_ns, host_ns = "ProfilerStep#1", 50_000_000, 1_000 if is_wide else 40_000_000
    build = GraphBuilder()
    host = build.add(NodeKind.RANK_START)
    host = build.add(NodeKind.STEP_BEGIN, after=[host], step=step)
    before: list[Edge] = []
    for stream in ("stream 7", "stream 8" if is_wide else "stream 7"):
        host = build.add(NodeKind.HOST_SEGMENT, takes_ns=host_ns, after=[host], step=step)
        host = build.add(
            NodeKind.LAUNCH, name="cudaLaunchKernel", takes_ns=5_000, after=[host], step=step
        )
        kernel = build.add(
            NodeKind.KERNEL,
            lane=stream,
            name="merge",
            takes_ns=kernel_ns,
            after=[Edge(host, EdgeKind.LAUNCH), *before],
            step=step,
        )
        wake: list[int | Edge] = [host, Edge(kernel, EdgeKind.WAKE)]
        host = build.add(NodeKind.SYNC, name="cudaStreamSynchronize", after=wake, step=step)
        before = [] if is_wide else [Edge(kernel, EdgeKind.STREAM)]
    build.add(NodeKind.STEP_END, after=[host], step=step)
    return build.graph()


def test_room_that_no_device_was_seen_to_have_is_no_advice() -> None:
    """Two kernels that took turns gain half the step if they fit beside each other: who knows."""
    graph = two_streams(is_wide=True)
    base = baseline_of(recording_of(graph, simulate(graph)))

    freed = predict(base, (RemoveSync("cudaStreamSynchronize"),))

    assert -freed.change_ns == pytest.approx(50_000_000, rel=0.01)
    assert freed.high_ns >= base.replayed_step_ns  # as long as it was, if they do not fit
    assert any("50 ms of kernels run beside other kernels" in note for note in freed.notes)
    assert "no blocking synchronisation" not in [one.name for one in tried_remedies(base).rows]
    assert not sensitivity(base.replayed).of_kind(LeverKind.SYNCHRONISATION)


def test_what_the_host_does_meanwhile_is_advice() -> None:
    graph = two_streams(is_wide=False)
    base = baseline_of(recording_of(graph, simulate(graph)))

    (told,) = [one for one in tried_remedies(base).rows if "synchronisation" in one.name]

    assert told.gain_ns == pytest.approx(40_000_000, rel=0.01)
    assert sensitivity(base.replayed).of_kind(LeverKind.SYNCHRONISATION)


def test_each_of_those_together_gains_beyond_the_others() -> None:
    gain_ns = found().rows[0].gain_ns
    names = found().rows[0].name

    for one in found().together:
        assert one.name.startswith(f"{names} + ")
        assert one.gain_ns >= gain_ns + 0.005 * found().step_ns
        names, gain_ns = one.name, one.gain_ns


def test_what_adds_nothing_to_the_best_is_not_told_with_it(data_dir: Path) -> None:
    """Graphs take all launches away, so that fewer launches gain nothing beside them."""
    told = ft.remedies(ft.load(data_dir / "traces" / "a100-resnet-ddp2-rank0").edit())

    assert [one.name for one in told.rows][:2] == ["CUDA graphs", "fused elementwise kernels"]
    assert all("fused" not in one.name for one in told.together)


def test_a_sentence_says_the_gain_the_interval_the_effort_and_what_must_be_true() -> None:
    first = found().rows[0]

    for told in (f"{100 * first.share:.1f} %", first.effort, first.needs, "would save"):
        assert told in first.sentence
    assert found().headline == first.sentence


def test_without_stalls_a_job_is_as_long_as_it_would_have_been() -> None:
    late = recording_of_job(job().after(LateLoader(1, 3_000_000)))

    without = predict(baseline(), (NoStalls(),))

    assert without.step_ns == pytest.approx(baseline_of(late).replayed_step_ns, rel=0.01)


def test_stalls_go_whatever_the_order_of_edits() -> None:
    others = (CudaGraphs(), Speed(2.0, selection_of("gemm")))

    steps = {
        predict(baseline(), edits).step_ns
        for edits in (
            (NoStalls(), *others),
            (*others, NoStalls()),
            (others[0], NoStalls(), others[1]),
        )
    }

    assert len(steps) == 1


def test_where_nothing_stalled_there_is_nothing_to_take_away() -> None:
    with pytest.raises(ScenarioError, match="no host thread stood still"):
        predict(baseline_of(recorded(is_stalled=False)), (NoStalls(),))

"""Some steps only: host events of their marks, and what these launched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretrace.base import TraceError
from foretrace.trace import Category, Trace, load_traces, step_marks, with_steps
from tests.trace.kineto_json import file_text, trace_from


def x(cat: str, name: str, ts: int, dur: int, **args: object) -> dict[str, Any]:
    """One event on thread 1, or on stream 7."""
    is_device = cat in ("kernel", "cuda_sync", "gpu_user_annotation")
    return {
        "ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args,
        "pid": 0 if is_device else 1, "tid": 7 if is_device else 1,
    }  # fmt: skip


EVENTS = [
    x("user_annotation", "ProfilerStep#3", 0, 100, **{"External id": 1}),
    x("cpu_op", "early", 10, 5),
    x("cuda_runtime", "cudaLaunchKernel", 12, 2, correlation=21),
    x("kernel", "late_kernel", 150, 10, correlation=21),
    x("user_annotation", "ProfilerStep#4", 100, 100, **{"External id": 2}),
    x("cpu_op", "record_param_comms", 110, 5, **{"Collective name": "allreduce"}),
    x("cuda_runtime", "cudaLaunchKernel", 112, 2, correlation=22),
    x("kernel", "ncclDevKernel_AllReduce", 160, 90, correlation=22, **{"Group size": 2}),
    x("cuda_runtime", "cudaStreamSynchronize", 190, 60, correlation=23),
    x("cuda_sync", "Stream Sync", 190, 60, correlation=23, stream=7),
    x("gpu_user_annotation", "ProfilerStep#3", 150, 10, **{"External id": 1}),
    x("gpu_user_annotation", "ProfilerStep#4", 160, 90, **{"External id": 2}),
    x("kernel", "unlaunched", 20, 1),
    x("cpu_op", "outside", 300, 5),
    {"ph": "i", "name": "[memory]", "ts": 15, "args": {"Bytes": 1}},
    {"ph": "i", "name": "[memory]", "ts": 115, "args": {"Bytes": 2}},
    {"ph": "s", "cat": "fwdbwd", "name": "f", "id": 1, "ts": 10, "pid": 1, "tid": 1},
    {"ph": "f", "cat": "fwdbwd", "name": "f", "id": 1, "ts": 20, "pid": 1, "tid": 1},
    {"ph": "s", "cat": "fwdbwd", "name": "f", "id": 2, "ts": 30, "pid": 1, "tid": 1},
    {"ph": "f", "cat": "fwdbwd", "name": "f", "id": 2, "ts": 130, "pid": 1, "tid": 1},
]


@pytest.fixture
def trace() -> Trace:
    """Two steps, whose kernels run late."""
    return trace_from([file_text(EVENTS)])


def names(trace: Trace) -> list[str]:
    return sorted(trace.strings[name] for name in trace.name.tolist())


def test_marks_are_found_in_order(trace: Trace) -> None:
    marks = step_marks(trace)

    assert [(mark.name, mark.number) for mark in marks] == [
        ("ProfilerStep#3", 3),
        ("ProfilerStep#4", 4),
    ]
    assert [(mark.start_ns, mark.duration_ns) for mark in marks] == [
        (0, 100_000),
        (100_000, 100_000),
    ]


@pytest.mark.parametrize("step", [3, "3", "ProfilerStep#3"])
def test_a_step_keeps_what_it_launched_whenever_that_ran(trace: Trace, step: str | int) -> None:
    kept = with_steps(trace, [step])

    assert names(kept) == [
        "ProfilerStep#3",
        "ProfilerStep#3",
        "cudaLaunchKernel",
        "early",
        "late_kernel",
        "unlaunched",
    ]
    assert kept.memory.change_bytes.tolist() == [1]
    assert kept.flows.from_ns.tolist() == [10_000]


def test_side_tables_follow_their_events(trace: Trace) -> None:
    kept = with_steps(trace, [4])

    assert [names(kept)[0], names(kept)[-1]] == ["ProfilerStep#4", "record_param_comms"]
    texts = [kept.strings[kept.name[event]] for event in kept.collectives.event.tolist()]
    assert texts == ["record_param_comms", "ncclDevKernel_AllReduce"]
    assert kept.category[kept.syncs.event].tolist() == [Category.SYNC]
    assert kept.syncs.stream.tolist() == [7]


def test_all_steps_leave_out_only_what_no_step_launched(trace: Trace) -> None:
    kept = with_steps(trace, [3, 4])

    assert sorted(set(names(trace)) - set(names(kept))) == ["outside"]


@pytest.mark.parametrize("steps", [[3], [4], [3, 4]])
def test_every_record_stays_accounted_for(trace: Trace, steps: list[int]) -> None:
    kept = with_steps(trace, steps)

    assert kept.num_accounted == kept.meta.num_events == len(EVENTS)


def test_a_step_that_is_not_there_is_named(trace: Trace) -> None:
    with pytest.raises(TraceError, match=r"no step 7 .*found 2 step marks \(ProfilerStep#3, Prof"):
        with_steps(trace, [3, 7])


def test_a_trace_without_marks_says_so() -> None:
    trace = trace_from([file_text(EVENTS[1:3])])

    with pytest.raises(TraceError, match="found no step marks"):
        with_steps(trace, [3])


def test_steps_of_a_real_run(data_dir: Path) -> None:
    path = data_dir / "traces/a100-resnet-ddp2-rank0/nccl_data.json.gz"
    (whole,) = load_traces(path)
    marks = step_marks(whole)

    parts = [load_traces(path, steps=[mark.number])[0] for mark in marks]

    for part in parts:
        assert 0 < part.num_events < whole.num_events
        assert part.num_accounted == whole.meta.num_events
    launched = [int((part.category == Category.KERNEL).sum()) for part in parts]
    assert max(launched) - min(launched) <= 30
    assert sum(launched) <= int((whole.category == Category.KERNEL).sum())


def test_no_step_is_a_wrong_argument(trace: Trace) -> None:
    with pytest.raises(ValueError, match="names no step"):
        with_steps(trace, [])

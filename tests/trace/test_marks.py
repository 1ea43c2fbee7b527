"""What names of marks say, and which of a trace's marks are its steps."""

from __future__ import annotations

from typing import Any

import pytest

import foretrace as ft
from foretrace.base import TraceError
from foretrace.trace import (
    BatchKind,
    EngineBatch,
    Trace,
    batch_of_mark,
    batches_of_marks,
    step_marks,
    with_step_mark,
    with_steps,
)
from tests.trace.kineto_json import file_text, trace_from

EVERY_KIND = {
    "execute_context_0(0)_generation_32(32)": BatchKind.DECODE,
    "execute_context_2(1500)_generation_0(0)": BatchKind.PREFILL,
    "execute_new_1_cached_3": BatchKind.MIXED,
    "step[IDLE bs=0]": BatchKind.IDLE,
    "[Executor] _forward_step 7: 0 ctx reqs, 0 ctx tokens, 32 gen reqs": BatchKind.DECODE,
    "decode[bs=117/128 tok=117 p=2 d=115]": BatchKind.MIXED,
}
NO_MARKS = (
    "ProfilerStep#3", "step[DRAFT_EXTEND_V2 bs=3]", "draft step[TARGET_VERIFY bs=8]",
    "step[DECODE", "execute_diffusion_1_256x256", "prefill", "execute_context_1(2)",
)  # fmt: skip


def marked(*names: str, long: int = 60, every: int = 100) -> Trace:
    """Marks of one thread, one behind the other, with gaps; a launch in each."""
    events: list[dict[str, Any]] = []
    for at, name in enumerate(names):
        mark = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1}
        events.append({**mark, "ts": every * at, "dur": long})
        call = {**mark, "cat": "cuda_runtime", "name": "cudaLaunchKernel"}
        events.append({**call, "ts": every * at + 70, "dur": 2, "args": {"correlation": at + 1}})
    return trace_from([file_text(events)])


def test_marks_say_what_a_step_works_on() -> None:
    assert batch_of_mark("execute_context_2(1024)_generation_30(30)") == EngineBatch(2, 1024, 30)
    detailed = "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)"
    detailed += "_generation_37(sq37sk34489sqsq37sqsk34489)"
    pairs = 7671310 - 7475785 / 2  # of a query each up to its own key
    assert batch_of_mark(detailed) == EngineBatch(9, 8155, 37, 34489, pairs=pairs)
    assert batch_of_mark("step[DECODE bs=64 g_sqsq=64 g_sqsk=100 g_sk=100]") == EngineBatch(
        0, 0, 64, 100
    )
    told = "step[prefill bs=1 toks=8 c_sqsq=64 c_sqsk=96]"
    assert batch_of_mark(told) == EngineBatch(1, 8, 0, 0, pairs=64.0)
    assert batch_of_mark("step[prefill bs=2 toks=512]") == EngineBatch(2, 512, 0, 0)
    assert batch_of_mark("step[mixed bs=66 ext=2048 dec=64]") == EngineBatch(2, 2048, 64)
    assert batch_of_mark("step[MIXED bs=9 c=2 g=7 c_sq=80 g_sk=650]") == EngineBatch(2, 80, 7, 650)
    verified = batch_of_mark("step[TARGET_VERIFY bs=2 g_sq=6 g_sqsq=18 g_sqsk=90 g_sk=30]")
    assert verified == EngineBatch(0, 0, 2, 30, decode_tokens=6)
    told = "[Executor] _forward_step 7: 1 ctx reqs, 512 ctx tokens, 31 gen reqs"
    assert batch_of_mark(told) == EngineBatch(1, 512, 31)
    older = "[Executor] _forward_step: 1 ctx reqs, 31 gen reqs"
    assert batch_of_mark(older) == EngineBatch(1, None, 31)
    assert batch_of_mark("prefill[bs=2 tok=16384 ctx=[4096, 1]]") == EngineBatch(2, 16384, 0, 0)
    assert batch_of_mark("decode[bs=64 tok=128 d=64 sk=900]") == EngineBatch(
        0, 0, 64, 900, decode_tokens=128
    )


@pytest.mark.parametrize("name", EVERY_KIND)
def test_a_batch_is_of_the_kind_that_its_requests_are_at(name: str) -> None:
    found, numbered = batch_of_mark(name), batch_of_mark(f"{name}#12")

    assert found is not None
    assert found.kind is EVERY_KIND[name]
    assert numbered == found


@pytest.mark.parametrize("name", NO_MARKS)
def test_other_names_say_nothing_of_a_batch(name: str) -> None:
    assert batch_of_mark(name) is None


def test_an_engine_s_marks_are_steps_until_the_next() -> None:
    trace = marked("step[EXTEND bs=1 toks=9]", "step[DECODE bs=2]", "step[DECODE bs=2]")

    marks = step_marks(trace)

    assert [mark.name for mark in marks] == [
        "step[EXTEND bs=1 toks=9]#0", "step[DECODE bs=2]#1", "step[DECODE bs=2]#2",
    ]  # fmt: skip
    assert [mark.duration_ns for mark in marks] == [100_000, 100_000, 60_000]
    assert [mark.batch and mark.batch.kind for mark in marks] == ["prefill", "decode", "decode"]


def test_a_draft_s_marks_are_no_steps() -> None:
    cycle = ("step[DECODE bs=4]", "step[TARGET_VERIFY bs=4]", "step[DRAFT_EXTEND_V2 bs=4]")

    marks = step_marks(marked(*cycle, *cycle))

    assert [mark.words for mark in marks] == ["step[TARGET_VERIFY bs=4]"] * 2
    assert {batch.num_decodes for batch in batches_of_marks(marked(*cycle)).values()} == {4}


def test_the_outer_of_marks_inside_one_another_counts() -> None:
    def one(name: str, ts: int, dur: int) -> dict[str, Any]:
        mark = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1}
        return {**mark, "name": name, "ts": ts, "dur": dur}

    vllm, sglang = "execute_context_0(0)_generation_2(2)", "step[DECODE bs=2]"
    pairs = [(one(vllm, at, 90), one(sglang, at + 5, 50)) for at in (0, 100)]

    marks = step_marks(trace_from([file_text([event for pair in pairs for event in pair])]))

    assert [mark.words for mark in marks] == [vllm, vllm]


def test_profiler_s_marks_are_steps_where_an_engine_s_are_a_small_part() -> None:
    few = ("step[DECODE bs=2]", "step[DECODE bs=2]")
    long = [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "pid": 1, "tid": 1}]
    events = [{**long[0], "ts": 0, "dur": 1000}]
    for at, name in enumerate(few):
        events.append({**long[0], "name": name, "ts": 10 + 100 * at, "dur": 60})

    of_profiler = step_marks(trace_from([file_text(events)]))
    of_engine = step_marks(trace_from([file_text([{**events[0], "dur": 180}, *events[1:]])]))

    assert [mark.name for mark in of_profiler] == ["ProfilerStep#5"]
    assert [mark.words for mark in of_engine] == list(few)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("iteration 12", "iteration 13"), ["iteration 12", "iteration 13"]),
        (("train_step_0", "train_step_1"), ["train_step_0", "train_step_1"]),
        (("step 3", "step 3"), ["step 3#0", "step 3#1"]),
        (
            ("[pl][profile]run_training_batch", "[pl][profile]run_training_batch"),
            ["[pl][profile]run_training_batch#0", "[pl][profile]run_training_batch#1"],
        ),
        (("iteration 12",), []),
        (("batch 1", "batch 2"), []),
        (("optimizer step", "forward"), []),
    ],
)
def test_what_programs_call_an_iteration_is_a_step(
    names: tuple[str, ...], found: list[str]
) -> None:
    assert [mark.name for mark in step_marks(marked(*names))] == found


def test_profiler_s_marks_come_before_what_programs_call_an_iteration() -> None:
    trace = marked("iteration 1", "iteration 2", "ProfilerStep#4")

    assert [mark.name for mark in step_marks(trace)] == ["ProfilerStep#4"]


def test_stated_marks_are_the_steps() -> None:
    trace = with_step_mark(marked("ProfilerStep#4", "round 1", "round 2"), "round")

    assert [mark.name for mark in step_marks(trace)] == ["round 1", "round 2"]
    assert with_steps(trace, [1]).num_events == 2


def test_stated_marks_that_nothing_is_called_name_what_there_is() -> None:
    with pytest.raises(TraceError, match=r"begins with 'epoch': its annotations are 'round 1'"):
        step_marks(with_step_mark(marked("round 1"), "epoch"))


def test_a_job_s_steps_are_called_what_marks_say(tmp_path: Any) -> None:
    names = ("step[EXTEND bs=1 toks=9]", "step[DECODE bs=2]", "step[DECODE bs=2]")
    events: list[dict[str, Any]] = []
    for at, name in enumerate(names):
        mark = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1}
        call = {**mark, "cat": "cuda_runtime", "name": "cudaLaunchKernel"}
        ids = {"correlation": at + 1, "device": 0, "stream": 7}
        kernel = {**mark, "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "args": ids}
        events += [
            {**mark, "ts": 100 * at, "dur": 60},
            {**call, "ts": 100 * at + 70, "dur": 2, "args": {"correlation": at + 1}},
            {**kernel, "ts": 100 * at + 75, "dur": 10},
        ]
    (tmp_path / "rank0.json").write_bytes(file_text(events))

    job = ft.load(tmp_path, cache=False)
    stated = ft.load(tmp_path, cache=False, step_mark="step[DECODE")

    assert job.steps == ("step[EXTEND bs=1 toks=9]#0", "step[DECODE bs=2]#1", "step[DECODE bs=2]#2")
    assert stated.steps == ("step[DECODE bs=2]#0", "step[DECODE bs=2]#1")
    assert [row.kind for row in ft.batches(job).rows] == ["decode", "prefill"]
    assert ft.breakdown(job, step=1).rows[0].step_name == "step[DECODE bs=2]#1"

"""Steps of an engine from its own profile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.base import WorkloadError
from foretrace.serve import Engine, StepBatch, times_of_trace
from foretrace.serve.of_trace import MarkedStep, marked, steps_of_trace
from foretrace.trace import load_traces


def taken_us(step: MarkedStep) -> float:
    return 5000 + 20 * (step.prefill_tokens + step.num_decodes) + 7 * step.num_decodes


def write(path: Path, names: list[str], *, on_device: bool = True) -> Path:
    events, now = [], 1000.0
    for at, name in enumerate(names):
        step = marked(name)
        took = taken_us(step) if step is not None else 10.0
        mark = {"ph": "X", "name": name, "pid": 1, "tid": 1, "args": {"External id": at + 1}}
        events.append({**mark, "cat": "user_annotation", "ts": now, "dur": 5.0})
        ids = {"External id": at + 1, "correlation": at + 1}
        call = {"ph": "X", "name": "cudaLaunchKernel", "cat": "cuda_runtime", "pid": 1, "tid": 1}
        events.append({**call, "ts": now + 1, "dur": 2.0, "args": ids})
        device = {"ph": "X", "pid": 0, "tid": 7, "ts": now + 4, "dur": took}
        kernel_args = {**ids, "device": 0, "stream": 7}
        events.append({**device, "cat": "kernel", "name": "work", "args": kernel_args})
        if on_device:
            args = {"External id": at + 1}
            events.append({**device, "cat": "gpu_user_annotation", "name": name, "args": args})
        now += took if not on_device else took + 50
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return path


NAMES = [f"execute_context_0(0)_generation_{count}({count})" for count in (1, 4, 9, 30, 64)]
NAMES += [f"execute_context_1({size})_generation_8(8)" for size in (100, 500, 900)]


def test_marks_say_what_a_step_works_on() -> None:
    assert marked("execute_context_2(1024)_generation_30(30)") == MarkedStep(2, 1024, 30)
    detailed = "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)"
    detailed += "_generation_37(sq37sk34489sqsq37sqsk34489)"
    assert marked(detailed) == MarkedStep(9, 8155, 37, 34489)
    assert marked("step[DECODE bs=64 g_sqsq=64 g_sqsk=100 g_sk=100]") == MarkedStep(0, 0, 64, 100)
    assert marked("step[prefill bs=2 toks=512]") == MarkedStep(2, 512, 0, 0)
    assert marked("step[mixed bs=66 ext=2048 dec=64]") == MarkedStep(2, 2048, 64)
    assert marked("step[MIXED bs=9 c=2 g=7 c_sq=80 g_sk=650]") == MarkedStep(2, 80, 7, 650)
    assert marked("step[idle]") is None
    assert marked("ProfilerStep#3") is None


@pytest.mark.parametrize("on_device", [True, False])
def test_the_line_of_the_steps_is_found(tmp_path: Path, *, on_device: bool) -> None:
    path = write(tmp_path / "vllm.json", NAMES, on_device=on_device)

    times = times_of_trace(path, Engine(), ranks=1)

    step = StepBatch(prefills=((700, 0),), decodes=(100, 200))
    wanted = 1e3 * (5000 + 20 * 702 + 7 * 2)
    assert times.step_ns(step) == pytest.approx(wanted, rel=0.01)
    assert times.low == pytest.approx(1, abs=0.01)
    assert times.high == pytest.approx(1, abs=0.01)
    found = ft.serve(
        "llama3.1-8b",
        engine={"max_num_seqs": 64},
        trace=path,
        gpu="H100",
        requests="constant:rate=5,prompt=100,output=10,requests=20",
    )
    assert "steps of vllm.json" in found.source
    assert found.ttft_ms.mean > 7


def test_a_trace_without_marks_is_a_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "training.json", ["ProfilerStep#1", "ProfilerStep#2"])

    with pytest.raises(WorkloadError, match="has 0 marked steps of 0 kinds"):
        times_of_trace(path, Engine(), ranks=1)


def test_of_marks_inside_one_another_the_outer_counts(tmp_path: Path) -> None:
    """SGLang's own and vLLM's form of one step, and work behind the mark's end."""
    path = write(tmp_path / "sglang.json", NAMES, on_device=False)
    document = json.loads(path.read_text(encoding="utf-8"))
    outer = [one for one in document["traceEvents"] if one.get("cat") == "user_annotation"]
    inner = [{**one, "name": "step[DECODE bs=3]", "ts": one["ts"] + 1, "dur": 1.0} for one in outer]
    document["traceEvents"] += inner
    path.write_text(json.dumps(document), encoding="utf-8")

    steps = steps_of_trace(load_traces(path)[0])

    wanted = [marked(name) for name in NAMES]
    assert [replace(one, duration_ns=0) for one in steps] == wanted
    assert [one.duration_ns for one in steps] == [1000 * taken_us(one) for one in steps]

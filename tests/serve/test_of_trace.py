"""Modelled steps of an engine, and its own profile of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretrace as ft
from foretrace.base import WorkloadError
from foretrace.serve import Engine, ServiceTarget, StepBatch, StepCalibration, calibration_of
from foretrace.serve.of_trace import MarkedStep, TaughtSteps, steps_of_trace
from foretrace.trace import EngineBatch, batch_of_mark, load_traces
from tests.serve.made import grown_times


def taken_us(step: EngineBatch) -> float:
    return 5000 + 20 * ((step.prefill_tokens or 0) + step.num_decodes) + 7 * step.num_decodes


def write(
    path: Path,
    names: list[str],
    *,
    on_device: bool = True,
    taken: Callable[[EngineBatch], float] = taken_us,
) -> Path:
    events, now = [], 1000.0
    for at, name in enumerate(names):
        step = batch_of_mark(name)
        took = taken(step) if step is not None else 10.0
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
KEYS = 50.0  # of each decode


def detailed(prefill: int, decodes: int) -> str:
    kept = f"sq{decodes}sk{int(KEYS) * decodes}sqsq{decodes}sqsk{int(KEYS) * decodes}"
    own = f"sq{prefill}sk{prefill}sqsq{prefill**2}sqsk{prefill**2}"
    return f"execute_9_context_{int(prefill > 0)}({own})_generation_{decodes}({kept})"


DETAILED = [detailed(0, count) for count in (1, 4, 9, 30, 64, 200)]
DETAILED += [detailed(size, 8) for size in (10, 100, 500, 900)]


def taught(path: Path, **settings: Any) -> StepCalibration:
    engine = Engine(**settings)
    modelled = replace(MODELLED, low=0.8, high=1.2)
    return calibration_of(path, engine, modelled, keys_each=KEYS, gpu="h100-sxm")


PLAIN = StepCalibration(np.array([[1.0, 0.0], [1.0, 0.0]]))
MODELLED = grown_times().calibrated(PLAIN)


@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize("every_us", [0.0, 1e3])
def test_what_models_lack_is_found(tmp_path: Path, every_us: float, *, on_device: bool) -> None:
    """Decodes take 3,000 times as long, steps with prefills 5,000 times, and every step some."""
    factors = 3000.0, 5000.0

    def taken(step: EngineBatch) -> float:
        modelled = sum(MODELLED.rows_ns(MarkedStep(step, 0).row(Engine(), KEYS)[None, :]))
        return every_us + factors[MarkedStep(step, 0).kind] * modelled / 1e3

    path = write(tmp_path / "vllm.json", DETAILED, on_device=on_device, taken=taken)

    found = taught(path)

    assert found.kinds[:, 0] == pytest.approx(factors, rel=0.05)
    assert found.kinds[:, 1] / 1e3 == pytest.approx(every_us, rel=0.02)
    assert found.source == f"{len(DETAILED)} steps of vllm.json"
    assert found.low > 0.9  # more steps than one: narrower
    batch = StepBatch(prefills=((70, 0),), decodes=(10, 20))
    wanted = found.kinds[1] @ [MODELLED.calibrated(PLAIN).step_ns(batch), 1]
    assert MODELLED.calibrated(found).step_ns(batch) == pytest.approx(wanted, rel=1e-3)


def test_one_step_teaches_its_kind_and_half_of_the_other(tmp_path: Path) -> None:
    path = write(tmp_path / "vllm.json", DETAILED[:1], taken=lambda _: 1e3)
    modelled = MODELLED.step_ns(StepBatch(decodes=(int(KEYS),)))

    found = taught(path)

    factor = 1e6 / modelled
    assert found.kinds[0] == pytest.approx([factor, 0], rel=1e-3)
    assert found.kinds[1] == pytest.approx([factor**0.5, 0], rel=1e-3)
    assert found.high > factor**0.5 * 0.99  # what nothing taught may be as far off, or not at all
    assert "none could be left out" in found.notes[0]


def test_keys_that_no_mark_says_widen_the_interval(tmp_path: Path) -> None:
    plain = ["execute_context_0(0)_generation_9(9)", "execute_context_1(10)_generation_9(9)"]

    def taken(step: EngineBatch) -> float:
        return 2e-3 * sum(MODELLED.rows_ns(MarkedStep(step, 0).row(Engine(), KEYS)[None, :]))

    silent = taught(write(tmp_path / "plain.json", plain, taken=taken))
    said = taught(write(tmp_path / "detailed.json", [detailed(0, 9), detailed(10, 9)], taken=taken))

    assert "do not say how many keys decodes have" in silent.notes[1]
    assert len(said.notes) == 1
    assert silent.high > said.high
    assert 0 < np.log(silent.kinds[0, 0]) < np.log(said.kinds[0, 0])


def steps_that_were_taught() -> st.SearchStrategy[TaughtSteps]:
    def made(rows: list[tuple[int, float, float]]) -> TaughtSteps:
        kind, modelled, ratio = map(np.array, zip(*rows, strict=True))
        return TaughtSteps(kind, modelled, modelled * ratio)

    row = st.tuples(st.integers(0, 1), st.floats(10.0, 1e9), st.floats(0.1, 10.0))
    return st.lists(row, min_size=1, max_size=30).map(made)


@given(steps_that_were_taught())
def test_factors_are_medians_and_never_below_zero(steps: TaughtSteps) -> None:
    kinds, plain = steps.kinds(), steps.fitted(has_fixed=False)

    assert (kinds[:, 0] > 0).all()
    assert (kinds[:, 1] >= 0).all()
    assert kinds[0, 1] < steps.taken_ns.min()
    for kind in range(2):
        of = steps.kind == kind
        if of.any():
            ratios = steps.taken_ns[of] / steps.modelled_ns[of]
            assert plain[kind, 0] == pytest.approx(np.median(ratios))
    if len(steps) < 5:
        assert (kinds == plain).all()


@given(st.integers(1, 40), st.floats(0.01, 0.5))
def test_the_interval_narrows_with_steps(count: int, prior: float) -> None:
    def width(number: int) -> float:
        alike = np.full(number, 100.0)
        steps = TaughtSteps(np.zeros(number, np.int64), alike, alike)
        return float(steps.widths(steps.kinds(), prior)[0])

    assert width(1) == pytest.approx(prior)
    assert width(count + 1) < width(count)


def test_a_calibrated_engine_serves(tmp_path: Path) -> None:
    path = write(tmp_path / "vllm.json", NAMES)
    asked: dict[str, Any] = {
        "engine": {"max_num_seqs": 64},
        "gpu": "H100",
        "requests": "constant:rate=5,prompt=100,output=10,requests=20",
    }

    found = ft.serve("llama3.1-8b", trace=path, **asked)

    assert "calibrated by 8 steps of vllm.json" in found.source
    assert found.ttft_ms.mean > 7
    gpus = ("h100-sxm", "b200-sxm")
    target = ServiceTarget(ttft_ms=60)
    fewest = ft.fewest_gpus(
        "llama3.1-8b", trace=path, target=target, **{**asked, "gpu": gpus}, most_gpus=1
    )
    assert fewest.best.num_gpus == 1
    assert fewest.refused[-1].startswith(
        "tp1 on b200-sxm: a trace of h100-sxm says nothing of b200-sxm"
    )


def test_steps_beyond_the_engines_settings_are_a_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "vllm.json", NAMES)

    with pytest.raises(WorkloadError, match=r"a step of 64 sequences, and .* max_num_seqs is 8"):
        taught(path, max_num_seqs=8)
    with pytest.raises(WorkloadError, match=r"a step of 908 tokens, and .* is 512"):
        taught(path, max_num_batched_tokens=512)


def test_a_trace_without_marks_is_a_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "training.json", ["ProfilerStep#1", "ProfilerStep#2"])

    with pytest.raises(WorkloadError, match="has no marked steps"):
        taught(path)


def test_of_marks_inside_one_another_the_outer_counts(tmp_path: Path) -> None:
    """SGLang's own and vLLM's form of one step, and work behind the mark's end."""
    path = write(tmp_path / "sglang.json", NAMES, on_device=False)
    document = json.loads(path.read_text(encoding="utf-8"))
    outer = [one for one in document["traceEvents"] if one.get("cat") == "user_annotation"]
    inner = [{**one, "name": "step[DECODE bs=3]", "ts": one["ts"] + 1, "dur": 1.0} for one in outer]
    document["traceEvents"] += inner
    path.write_text(json.dumps(document), encoding="utf-8")

    steps = steps_of_trace(load_traces(path)[0])

    wanted = [batch_of_mark(name) for name in NAMES]
    assert [one.batch for one in steps] == wanted
    assert [one.duration_ns for one in steps] == [1000 * taken_us(one.batch) for one in steps]

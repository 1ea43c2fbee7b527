"""Samples and tokens of recorded steps against what the program was told to train on."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace as ft
from foretrace.analyze import step_time_ns
from foretrace.analyze.questions import breakdown
from foretrace.base import NS_PER_S, ScenarioError
from tests.graph.recorded import PROCESS, Event, file_text, kernel, launch, step


@pytest.fixture(scope="module")
def job(repository: Path) -> ft.Job:
    return ft.load(repository / "examples" / "cpu-llama-tp2-dp2" / "traces", cache=False)


def test_samples_and_tokens_are_those_that_were_trained_on(job: ft.Job) -> None:
    found = ft.throughput(job)

    assert (found.num_samples, found.num_tokens) == (2 * 4, 2 * 4 * 128)  # copies, batch, tokens
    assert found.step_ns == step_time_ns(job.measured)
    assert found.tokens_per_s == pytest.approx(1024 * NS_PER_S / found.step_ns)
    assert found.tokens_per_s_per_rank == pytest.approx(256 * NS_PER_S / found.step_ns)
    parts = breakdown(job).overall
    still_ns = parts.idle_ns + parts.waiting_for_ranks_ns
    assert found.busy_share == pytest.approx(1 - still_ns / parts.total_ns)


def test_what_is_not_known_says_why_and_can_be_stated(job: ft.Job) -> None:
    found = ft.throughput(job)
    stated = ft.throughput(job, chip="a100-sxm-80gb", global_batch=16, sequence=64)

    assert found.mfu is None
    assert "--chip" in found.untold["MFU"]
    assert "not known" in str(found)
    assert stated.mfu is not None
    assert stated.num_tokens == 16 * 64
    with pytest.raises(ScenarioError, match="shows no device"):
        ft.throughput(job.edit(machine="dgx-a100"))
    with pytest.raises(ScenarioError, match="from 1 on"):
        ft.throughput(job, global_batch=0)
    with pytest.raises(ScenarioError, match="without edits"):
        ft.throughput(job.edit(ft.Layers(6)))


def test_layers_are_told_step_by_step(job: ft.Job) -> None:
    found = ft.throughput(job, chip="a100-sxm-80gb")

    assert len(found.table("layers-by-step").rows) == 4 * 3
    assert len(found.table("layers").rows) == 3
    assert [one.step for one in found.steps] == list(job.steps)
    assert set(found.as_json()) >= {"tokens_per_s", "samples_per_s", "mfu", "busy_share", "layers"}


def called(name: str, number: int, shapes: list[list[int]], runs: str) -> list[Event]:
    """An operator of some shapes that launches one kernel."""
    at = 100 * number
    operator = {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": PROCESS, "tid": PROCESS, "ts": at,
        "dur": 50,
        "args": {"Input Dims": shapes, "Input type": ["c10::BFloat16"] * len(shapes)},
    }  # fmt: skip
    ran = kernel(runs, at + 30, 40, correlation=number)
    return [operator, launch(at + 10, 5, correlation=number), ran]


Called = tuple[str, list[list[int]], str]  # operator, its shapes, the kernel that it runs


def recorded(folder: Path, *calls: Called, is_marked: bool = True) -> ft.Job:
    events = [step(1, 0, 5_000)] if is_marked else []
    for number, (name, shapes, runs) in enumerate(calls, start=1):
        events += called(name, number, shapes, runs)
    path = folder / "trace.json"
    path.write_text(file_text(events), encoding="utf-8")
    return ft.load(path, cache=False)


PRODUCT = ("aten::mm", [[96, 64], [64, 64]], "ampere_bf16_s16816gemm_bf16_128x64_tn")


def test_rows_of_an_engine_that_serves_are_tokens(tmp_path: Path) -> None:
    attention: Called = ("engine::attention", [], "void flash::flash_fwd_splitkv_kernel<traits>()")

    found = ft.throughput(recorded(tmp_path, PRODUCT, attention, PRODUCT))

    assert (found.num_samples, found.num_tokens) == (None, 96)
    assert "behind one another" in found.untold["samples/s"]


def test_rows_where_nothing_attends_are_samples(tmp_path: Path) -> None:
    found = ft.throughput(recorded(tmp_path, PRODUCT, PRODUCT))

    assert (found.num_samples, found.num_tokens) == (96, None)


@pytest.mark.parametrize(
    ("scores", "num_samples", "num_tokens"),
    [
        ([[4, 2, 24, 24], [4, 2, 24, 24]], 4, 96),
        ([[4, 2, 24, 24], [4, 2, 12, 24]], 4, None),  # lengths differ
        ([[24, 2, 4, 4], [4, 2, 24, 24]], None, None),  # over time and over space
    ],
)
def test_attention_over_several_lengths_tells_no_sample(
    tmp_path: Path, scores: list[list[int]], num_samples: int | None, num_tokens: int | None
) -> None:
    softmax = [("aten::_softmax", [one], "void softmax_warp_forward<float>()") for one in scores]

    found = ft.throughput(recorded(tmp_path, PRODUCT, softmax[0], PRODUCT, softmax[1], PRODUCT))

    assert (found.num_samples, found.num_tokens) == (num_samples, num_tokens)


def test_passes_that_no_step_marks_tell_no_samples(tmp_path: Path) -> None:
    head: Called = ("aten::mm", [[96, 64], [64, 8]], PRODUCT[2])
    once = ft.throughput(recorded(tmp_path, PRODUCT, PRODUCT, PRODUCT, head, is_marked=False))
    thrice = ft.throughput(recorded(tmp_path, *3 * (PRODUCT, head), is_marked=False))
    marked = ft.throughput(recorded(tmp_path, *3 * (PRODUCT, head)))

    assert (once.num_samples, marked.num_samples) == (96, 96)
    assert thrice.num_samples is None
    assert "3 passes look alike" in thrice.untold["samples/s"]

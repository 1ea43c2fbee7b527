"""Samples and tokens of recorded steps against what the program was told to train on."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace as ft
from foretrace.analyze import step_time_ns
from foretrace.analyze.questions import breakdown
from foretrace.base import NS_PER_S, ScenarioError


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

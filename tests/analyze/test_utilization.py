"""FLOPs of a recorded Llama against its sizes, and their share of a stated chip's peak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import foretrace as ft
from foretrace.analyze import Utilization, utilization, windows
from foretrace.graph import Phase
from foretrace.machine import Chip, load_chip

RANKS, LAYERS = 4, 3
TOKENS, SEQUENCE, BATCH = 512, 128, 4  # of one rank
WIDTH, HEADS, KEY_HEADS, HEAD_WIDTH, FEED_FORWARD, VOCABULARY = 256, 4, 2, 32, 352, 2048
PASSES = 3  # forward, and backward for inputs and weights


@pytest.fixture(scope="module")
def job(repository: Path) -> ft.Job:
    return ft.load(repository / "examples" / "cpu-llama-tp2-dp2" / "traces", cache=False)


@pytest.fixture(scope="module")
def chip() -> Chip:
    return load_chip("a100-sxm-80gb")


@pytest.fixture(scope="module")
def used(job: ft.Job, chip: Chip) -> Utilization:
    return utilization(job.measured, chip=chip)


def test_flops_are_those_of_the_model(used: Utilization) -> None:
    heads = WIDTH * HEAD_WIDTH * (2 * HEADS + 2 * KEY_HEADS)
    products = 2 * TOKENS * PASSES * (heads + 3 * WIDTH * FEED_FORWARD)
    # A causal mask's lower half, the diagonal too; the backward pass takes 2.5 times as much.
    attention = 3.5 * 4 * BATCH * HEADS * HEAD_WIDTH * SEQUENCE * (SEQUENCE + 1) // 2
    head = 2 * TOKENS * PASSES * WIDTH * VOCABULARY

    assert len(used.layers) == 4 * LAYERS
    assert {one.flops for one in used.layers} == {RANKS * (products + attention)}
    whole = RANKS * (LAYERS * (products + attention) + head)
    # In the first step rank 3 was held up inside an attention, whose work it is all the same.
    assert {one.flops for one in used.steps} == {whole}


def test_the_share_is_of_the_peak_over_the_jobs_steps(
    job: ft.Job, chip: Chip, used: Utilization
) -> None:
    found = windows(job.measured)
    whole_ns = int((found.end_ns - found.begin_ns).sum())
    peak = chip.peak_flops_per_ns("fp32")

    assert peak is not None
    assert used.dtype == "fp32"
    assert used.mfu == pytest.approx(sum(one.flops for one in used.steps) / peak / RANKS / whole_ns)
    assert used.hfu is None
    one = utilization(job.measured, chip=chip, step=14)
    assert [one.mfu] == [step.mfu for step in used.steps if step.step == "ProfilerStep#14"]


def test_what_is_computed_again_counts_in_hfu_alone(
    job: ft.Job, chip: Chip, used: Utilization
) -> None:
    graph = job.graph
    again = (graph.layer == 1) & (graph.phase == Phase.FORWARD)
    phase = np.where(again, Phase.RECOMPUTE, graph.phase).astype(np.uint8)
    repeated = utilization(replace(job.measured, graph=replace(graph, phase=phase)), chip=chip)

    assert used.mfu is not None
    assert repeated.mfu is not None
    assert repeated.hfu == pytest.approx(used.mfu)
    assert repeated.mfu < used.mfu
    layers = [one.flops for one in repeated.layers if one.step == "ProfilerStep#13"]
    assert layers[1] < layers[0]


def test_a_missing_share_says_why(job: ft.Job, chip: Chip) -> None:
    unknown = utilization(job.measured)
    graph = replace(job.graph, operator_signature=np.full_like(job.graph.operator_signature, -1))
    shapeless = utilization(replace(job.measured, graph=graph), chip=chip)

    assert unknown.mfu is None
    assert "no device's work was recorded" in unknown.untold
    assert shapeless.mfu is None
    assert "record_shapes=True" in shapeless.untold

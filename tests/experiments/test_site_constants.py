"""A site's constants are found again in runs made from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.site_constants import (
    SiteConstants,
    SiteRun,
    fitted_constants,
    site_run,
    site_step_s,
)
from foretrace.workload import launch_named
from tests.validate.runs.sample import published

_GPT = {
    "software": "megatron-deepspeed-vtrain",
    "model": "gpt-made-up",
    "precision": "fp16",
    "sequence_parallel": False,
    "kv_heads": 32,
    "vocab": 51200,
    "schedule": "none",
    "pp": 1,
    "layers": 2,
}
_LAYOUTS = (
    {"tp": 1, "pp": 1, "dp": 8, "schedule": "none", "micro_batch": 2},
    {"tp": 4, "pp": 1, "dp": 2, "schedule": "none", "micro_batch": 4},
    {"tp": 1, "pp": 4, "dp": 2, "schedule": "1f1b", "layers": 4, "micro_batch": 1},
    {"tp": 8, "pp": 1, "dp": 1, "schedule": "none", "seq_len": 512},
)


def _site(folder: Path, constants: SiteConstants) -> list[SiteRun]:
    made = []
    for layout in _LAYOUTS:
        one = site_run(published(folder, **{**_GPT, **layout}))
        measured_s = site_step_s(one, constants)
        made.append(replace(one, run=replace(one.run, measured_s=measured_s)))
    return made


def test_runs_of_a_site_teach_its_constants(tmp_path: Path) -> None:
    truth = SiteConstants(
        host=3.0, products=1.3, movements=1.2, collectives=1.5, vocabulary=2.5, scores=2.0
    )
    runs = _site(tmp_path, truth)

    found = fitted_constants(runs)

    assert found.products == pytest.approx(truth.products, rel=0.1)
    for one in runs:
        assert site_step_s(one, found) == pytest.approx(one.run.measured_s, rel=0.02)


def test_no_operation_is_shorter_than_its_launch(tmp_path: Path) -> None:
    alone = {**_GPT, "num_gpus": 1, "tp": 1, "dp": 1}
    one = site_run(published(tmp_path, **alone))
    deeper = site_run(published(tmp_path, **{**alone, "layers": 3}))
    slow = SiteConstants(host=1e4)  # longer than any kernel
    layer = one.blocks.layers[0]
    items = [*layer.forward.items, *layer.backward.items]
    count = one.plan.num_microbatches

    added = site_step_s(deeper, slow) - site_step_s(one, slow)

    # The optimizer's kernels are as many for any number of layers.
    least_ns = 1e4 * launch_named(one.plan.implementation.launch).backward_ns
    assert added == pytest.approx(count * len(items) * least_ns / 1e9, rel=1e-6)


@pytest.mark.parametrize(("tensor", "is_slower"), [(1, True), (2, False)])
def test_only_an_odd_vocabulary_is_slow(tmp_path: Path, tensor: int, is_slower: bool) -> None:
    one = site_run(published(tmp_path, **{**_GPT, "tp": tensor, "dp": 8 // tensor}))

    usual, slow = (site_step_s(one, SiteConstants(vocabulary=factor)) for factor in (1.0, 3.0))

    assert (slow > 1.01 * usual) == is_slower
    assert (slow == usual) != is_slower


def test_scores_are_slow_by_their_own_factor_alone(tmp_path: Path) -> None:
    one = site_run(published(tmp_path, **{**_GPT, "tp": 1, "dp": 8}))
    without_host = SiteConstants(host=0.0)

    more = [
        site_step_s(one, replace(without_host, scores=factor)) - site_step_s(one, without_host)
        for factor in (2.0, 3.0)
    ]

    assert more[0] > 0
    assert more[1] == pytest.approx(2 * more[0], rel=1e-4)

"""A site's constants are found again in runs made from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.validate.runs.machine_constants import (
    SiteConstants,
    SiteRun,
    fitted_constants,
    site_run,
    site_step_s,
)
from tests.validate.runs.sample import published

_LAYOUTS = (
    {"tp": 1, "pp": 1, "dp": 8, "schedule": "none", "micro_batch": 2},
    {"tp": 4, "pp": 1, "dp": 2, "schedule": "none", "micro_batch": 4},
    {"tp": 1, "pp": 4, "dp": 2, "layers": 4, "micro_batch": 1},
    {"tp": 8, "pp": 1, "dp": 1, "schedule": "none", "seq_len": 512},
)


def _site(folder: Path, constants: SiteConstants) -> list[SiteRun]:
    made = []
    for layout in _LAYOUTS:
        one = site_run(published(folder, **{"layers": 2, **layout}))
        measured_s = site_step_s(one, constants)
        made.append(replace(one, run=replace(one.run, measured_s=measured_s)))
    return made


def test_runs_of_a_site_teach_its_constants(tmp_path: Path) -> None:
    truth = SiteConstants(host=1.0, products=1.3, movements=1.2, collectives=1.5, gap_ns=3e5)
    runs = _site(tmp_path, truth)

    found = fitted_constants(runs)

    assert found.products == pytest.approx(truth.products, rel=0.1)
    for one in runs:
        assert site_step_s(one, found) == pytest.approx(one.run.measured_s, rel=0.02)


def test_gaps_count_for_every_layer_and_microbatch(tmp_path: Path) -> None:
    one = site_run(published(tmp_path, tp=1, pp=4, dp=2, layers=8))

    still = site_step_s(one, SiteConstants(gap_ns=1e6)) - site_step_s(one, SiteConstants())

    # two layers a stage; 24 microbatches, and three more until the pipeline is full
    assert still == pytest.approx(2 * (24 + 3) * 1e-3)

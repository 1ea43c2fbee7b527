"""What sources of runs teach of products."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.software import kernel_factors
from foretrace.validate import PublishedRun, RunPrediction, lessons
from foretrace.validate.runs.learning import models_left_out
from tests.validate.runs.sample import predicted, published

_OTHERS_S = 4.0  # of every step, beside its products

_Step = tuple[float, float]  # seconds of products as costed without a factor; of the step


def _predicted(run: PublishedRun, step: _Step) -> RunPrediction:
    """As an estimate has it, with the factor that other sources taught."""
    products_s, measured_s = step
    factors = kernel_factors(run.described_software, "Ampere", without=(run.family,))
    known_s = products_s * factors["gemm library bf16"]
    return replace(
        predicted(run.id, measured_s, _OTHERS_S + known_s, source=run.family),
        architecture="Ampere",
        software_class=run.described_software.family,
        products_s={"16bit": known_s},
    )


def _taught(folder: Path, *steps: _Step) -> list[float]:
    run = published(folder)
    found = lessons([run] * len(steps), [_predicted(run, one) for one in steps])
    return [one.learned.products for one in found]


def test_runs_that_agree_teach_what_they_agree_on(tmp_path: Path) -> None:
    steps = [(products_s, _OTHERS_S + 1.2 * products_s) for products_s in (3.0, 5.0, 8.0, 9.0)]

    assert _taught(tmp_path, *steps) == [pytest.approx(1.2, abs=1e-3)]


def test_an_odd_run_moves_no_other_and_a_run_counts_by_its_products(tmp_path: Path) -> None:
    agreed = [(6.0, _OTHERS_S + 1.1 * 6.0)] * 3
    much = [(9.0, _OTHERS_S + 1.1 * 9.0)] * 2
    little = [(2.0, _OTHERS_S + 1.5 * 2.0)] * 2

    assert _taught(tmp_path, *agreed, (6.0, 40.0)) == [pytest.approx(1.1, abs=1e-3)]
    assert _taught(tmp_path, *much, *little) == [pytest.approx(1.1, abs=1e-3)]


def test_few_runs_teach_nothing(tmp_path: Path) -> None:
    assert _taught(tmp_path, *[(6.0, 10.0)] * 3) == []


def test_a_model_is_told_by_the_others_of_its_source(tmp_path: Path) -> None:
    run = published(tmp_path)
    steps = [(6.0, _OTHERS_S + 1.2 * 6.0)] * 4 + [(6.0, _OTHERS_S + 1.5 * 6.0)]
    rows = [_predicted(run, one) for one in steps]
    rows = [replace(one, model=f"model {at}") for at, one in enumerate(rows)]

    (found,) = models_left_out([run] * 5, rows)

    assert (found.num_models, found.num_runs) == (5, 5)
    assert found.worst_model == "model 4"
    assert found.worst_model_error == pytest.approx(1 - (4 + 1.2 * 6) / (4 + 1.5 * 6), abs=1e-3)
    assert found.mean_abs_error == pytest.approx(found.worst_model_error / 5, abs=1e-3)


def test_a_single_model_is_left_out_by_none(tmp_path: Path) -> None:
    run = published(tmp_path)
    rows = [_predicted(run, (6.0, 11.0))] * 6

    assert models_left_out([run] * 6, rows) == ()

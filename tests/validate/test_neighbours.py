"""Runs from their neighbours: made-up sites whose truth is known, and vTrain's published runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.validate import NeighboursReport, PublishedRun, neighbours_report, read_runs
from foretrace.validate.neighbours import RunEstimates
from tests.conftest import Golden
from tests.validate.runs.sample import DESCRIPTION, write_table

ROWS: tuple[dict[str, object], ...] = (
    {"layers": 4},
    {"layers": 4, "id": "made-up-2", "global_batch": 96},
    {"layers": 8, "id": "made-up-3"},
)


def site(folder: Path, slower: float) -> list[PublishedRun]:
    """Runs that take so many times as long as their estimates."""
    runs = read_runs(write_table(folder / "runs.csv", *ROWS), DESCRIPTION)
    estimates = RunEstimates()
    return [replace(run, measured_s=slower * estimates.of(run).step_s) for run in runs]


def test_a_site_that_is_slower_alike_is_predicted_exactly(tmp_path: Path) -> None:
    report = neighbours_report(site(tmp_path, 1.4))

    overall = report.overall
    assert overall is not None
    assert overall.num_pairs == 4
    assert overall.ratio < 1e-9
    assert overall.predicted < 0.01
    assert overall.scratch == pytest.approx(1 - 1 / 1.4)
    assert overall.wins == overall.inside == 1.0


def test_flops_alone_say_that_layers_and_microbatches_count_in_full(tmp_path: Path) -> None:
    report = neighbours_report(site(tmp_path, 1.0))
    by_name = {(one.id, one.neighbour): one for one in report.rows}

    batch = by_name["made-up-2", "made-up-1"]

    assert batch.dimension == "microbatches"
    assert batch.flops_s == pytest.approx(2 * batch.neighbour_s)
    assert batch.measured_s < 1.99 * batch.neighbour_s  # the optimizer steps once


def test_runs_that_cannot_be_laid_out_are_left_out_with_the_reason(tmp_path: Path) -> None:
    uneven: dict[str, object] = {"id": "made-up-2", "tp": 3, "num_gpus": 12}
    runs = read_runs(write_table(tmp_path / "runs.csv", {}, uneven), DESCRIPTION)

    report = neighbours_report(runs)

    assert report.rows == ()
    assert report.overall is None
    assert report.num_runs == 1
    assert len(report.refused) == 1
    assert report.refused[0].startswith("made-up-2: ")


def test_a_report_is_a_table_of_pairs_and_json(tmp_path: Path) -> None:
    report = neighbours_report(site(tmp_path, 1.2))

    assert report.to_polars().height == len(report.rows)
    assert {"num_runs", "dimensions", "overall", "refused", "rows"} == set(report.as_json())


@pytest.fixture(scope="module")
def vtrain(data_dir: Path) -> NeighboursReport:
    """Some of vTrain's runs on one host; docs/accuracy.md has all 900."""
    runs = read_runs(data_dir / "published" / "vtrain-single.csv", DESCRIPTION)
    return neighbours_report(
        [run for run in runs if run.layers == 16 and run.micro_batch in (1, 4)]
    )


def test_vtrains_runs_are_nearer_from_a_neighbour_than_from_scratch(
    vtrain: NeighboursReport,
) -> None:
    overall = vtrain.overall

    assert overall is not None
    assert overall.num_pairs > 1_500
    for one in vtrain.dimensions:
        assert one.predicted < one.scratch, one.dimension
    assert overall.predicted < 0.5 * overall.scratch
    assert overall.predicted < 0.6 * overall.ratio
    assert overall.predicted < 0.25 * overall.flops
    assert 0.7 < overall.inside < 0.9


def test_errors_of_vtrains_runs_are_the_reviewed_ones(
    vtrain: NeighboursReport, golden: Golden
) -> None:
    found = {
        one.dimension: {
            "pairs": one.num_pairs,
            "predicted": round(one.predicted, 3),
            "ratio": round(one.ratio, 3),
            "scratch": round(one.scratch, 3),
        }
        for one in vtrain.dimensions
    }

    golden.check("neighbours-vtrain", found)

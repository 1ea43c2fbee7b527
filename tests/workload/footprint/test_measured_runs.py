"""Peaks that were measured, of three sources; nothing here is fitted to them."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest

from tests.workload.footprint.rows import Row, measured_rows

PAGE = Path(__file__).parents[3] / "docs" / "memory.md"


@pytest.fixture(scope="module")
def rows(data_dir: Path) -> dict[str, list[Row]]:
    """Rows by source."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in measured_rows(data_dir):
        found[row.source].append(row)
    return found


@pytest.mark.parametrize(
    # Bounds stand just above what docs/memory.md prints; 5% is what is asked for.
    ("source", "average", "worst"),
    [("torchtitan", 0.042, 0.115), ("simumax", 0.003, 0.007), ("mlperf", 0.015, 0.045)],
)
def test_measured_peaks_are_met(
    rows: dict[str, list[Row]], source: str, average: float, worst: float
) -> None:
    errors = {row.name: row.error() for row in rows[source]}

    assert mean(map(abs, errors.values())) < average
    assert max(map(abs, errors.values())) < worst, errors


def test_more_data_parallel_ranks_save_exactly_what_mlperf_logged(
    rows: dict[str, list[Row]],
) -> None:
    h100 = [row for row in rows["mlperf"] if "eos-dfw" in row.name]
    h100.sort(key=lambda row: row.plan.data)
    assert [row.plan.data for row in h100] == [4, 16, 19, 20, 64]

    for fewer, more in pairwise(h100):
        saved = fewer.predicted_bytes() - more.predicted_bytes()
        logged = fewer.measured_bytes - more.measured_bytes
        # Logged in GiB with three digits, of steps with rounded buckets.
        assert saved == pytest.approx(logged, abs=6e-3 * 2**30)


def test_a_pipeline_is_fullest_on_its_first_stage_as_measured(
    rows: dict[str, list[Row]],
) -> None:
    # docs/b200/b200_release_v1.2_summary.json: first stage 66.55 GiB, last stage 62.97 GiB.
    row = next(row for row in rows["simumax"] if "70b_l12_tp1_pp2" in row.name)

    first, last = row.footprint().stages

    assert first.allocated / 2**30 == pytest.approx(66.55, rel=0.01)
    assert last.allocated / 2**30 == pytest.approx(62.97, rel=0.01)


def test_the_table_of_errors_is_what_comes_out(data_dir: Path) -> None:
    rows = measured_rows(data_dir)
    expected = []
    for source in ("torchtitan", "simumax", "mlperf"):
        errors = [row.error() for row in rows if row.source == source]
        average, worst = mean(map(abs, errors)), max(errors, key=abs)
        expected.append(f"| {source} | {len(errors)} | {average:.1%} | {worst:+.1%} |")

    assert "\n".join(expected) in PAGE.read_text(encoding="utf-8")

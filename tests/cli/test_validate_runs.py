"""`foretrace validate runs`: published runs from a table."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from tests.cli.conftest import Run
from tests.validate.runs.sample import write_table


def test_tables_show_errors_by_source(run: Run, tmp_path: Path) -> None:
    table = write_table(tmp_path / "runs.csv", {}, {"id": "made-up-2", "model": "hal-9000"})

    outcome = run("validate", "runs", "--data", table)

    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert "made-up" in outcome.out
    assert "1 runs refused" in outcome.out


def test_json_and_parquet_have_a_row_for_each_run(run: Run, tmp_path: Path) -> None:
    table = write_table(tmp_path / "runs.csv", {}, {"id": "made-up-2", "recompute": ""})
    parquet = tmp_path / "out.parquet"

    outcome = run("validate", "runs", "--data", table, "--json", "--parquet", parquet)

    assert outcome.code == 0, outcome.err
    rows = json.loads(outcome.out)["rows"]
    assert [row["status"] for row in rows] == ["predicted", "assumed"]
    names = {"id", "source", "measured_s", "predicted_s", "low_s", "high_s", "status", "why"}
    assert names <= set(rows[0])
    assert pl.read_parquet(parquet).height == 2


def test_a_plot_is_an_image_or_a_page(run: Run, tmp_path: Path) -> None:
    table = write_table(tmp_path / "runs.csv", {})

    for name, begin in (("plot.svg", "<svg"), ("plot.html", "<!doctype html>")):
        outcome = run("validate", "runs", "--data", table, "--plot", tmp_path / name)

        assert outcome.code == 0, outcome.err
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begin)


def test_a_row_that_cannot_be_read_is_skipped_and_named(run: Run, tmp_path: Path) -> None:
    table = write_table(tmp_path / "runs.csv", {}, {"id": "odd", "tp": "two"})

    outcome = run("validate", "runs", "--data", table, "--json")

    assert outcome.code == 0, outcome.err
    assert "skipped: row 2" in " ".join(outcome.err.split())
    found = json.loads(outcome.out)
    assert [row["id"] for row in found["rows"]] == ["made-up-1"]
    assert len(found["unread"]) == 1
    assert "'odd' has tp 'two'" in found["unread"][0]


def test_a_bad_table_is_one_sentence(run: Run, tmp_path: Path) -> None:
    table = write_table(tmp_path / "runs.csv", {"tp": "two"})

    outcome = run("validate", "runs", "--data", table)

    assert outcome.code == 1
    assert "has tp 'two', which is no number" in " ".join(outcome.err.split())

"""`foretrace validate neighbours` and `lumos`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import foretrace
from foretrace.cli import validate
from foretrace.validate import ScalingRow, ScalingsReport, read_scalings
from tests.cli.conftest import Run
from tests.validate.runs.sample import EXPERIMENTS, write_table

TWO: tuple[dict[str, object], ...] = ({}, {"id": "made-up-2", "global_batch": 96})


def test_a_table_of_runs_shows_errors_by_what_differs(run: Run, tmp_path: Path) -> None:
    table = write_table(tmp_path / "runs.csv", *TWO)

    outcome = run("validate", "neighbours", "--data", table)

    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert "microbatches" in outcome.out
    assert "2 runs, each predicted from runs that differ in one thing" in outcome.out


def test_pairs_come_as_json(run: Run, tmp_path: Path) -> None:
    table = write_table(tmp_path / "runs.csv", *TWO)

    outcome = run("validate", "neighbours", "--data", table, "--json")

    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert [one["dimension"] for one in found["dimensions"]] == ["microbatches"]
    assert {"id", "neighbour", "measured_s", "predicted_s", "low_s"} <= set(found["rows"][0])


def test_a_table_without_neighbours_says_so(run: Run, tmp_path: Path) -> None:
    outcome = run("validate", "neighbours", "--data", write_table(tmp_path / "runs.csv", {}))

    assert outcome.code == 0, outcome.err
    assert "no two runs of this table differ in one thing only" in outcome.out


def test_the_figure_is_printed_with_its_parts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = read_scalings(EXPERIMENTS / "lumos.toml")
    rows = tuple(ScalingRow(scaling, scaling.rival) for scaling in figure.scalings)
    made = ScalingsReport(figure, 1.1, 2.0, rows[0], rows[1:])
    monkeypatch.setattr(validate, "scalings_report", lambda _figure, **_: made)

    outcome = run("validate", "lumos")

    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert re.search(r"2x16x4 +1,785 +1,838 +\+2.97 %", outcome.out)
    assert "kernels x 1.10 and communication x 2.00" in outcome.out


def test_without_a_checkout_the_option_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "lib" / "site-packages" / "foretrace" / "__init__.py"
    monkeypatch.setattr(foretrace, "__file__", str(installed))

    lumos = run("validate", "lumos")
    neighbours = run("validate", "neighbours", "--data", write_table(tmp_path / "runs.csv", *TWO))

    assert (lumos.code, neighbours.code) == (1, 1)
    assert "give --data FILE.toml" in " ".join(lumos.err.split())
    assert "give --description FILE.toml" in " ".join(neighbours.err.split())


def test_software_that_nothing_describes_is_warned_of(run: Run, tmp_path: Path) -> None:
    rows = [{**row, "software": "hal-9000"} for row in TWO]

    outcome = run("validate", "neighbours", "--data", write_table(tmp_path / "runs.csv", *rows))

    assert outcome.code == 0, outcome.err
    assert "no release called 'hal-9000' is described" in " ".join(outcome.err.split())

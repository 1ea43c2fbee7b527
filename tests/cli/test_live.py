"""`foretrace validate live`: what was asked for, and the tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from foretrace.cli import validate
from foretrace.validate import CONFIGURATIONS, LiveComponent, LiveReport, LiveRow
from tests.cli.conftest import Run
from tests.conftest import KeepsSchema

PARTS = ("exposed_compute", "overlapped", "exposed_communication", "idle")


def row(name: str) -> LiveRow:
    """A row of steps as long as they get on two cores."""
    return LiveRow(
        name=name,
        changes="layers 4 -> 8",
        num_ranks=2,
        measured_ns=1_234_000_000,
        measured_low_ns=1_200_000_000,
        measured_high_ns=1_300_000_000,
        num_runs=5,
        predicted_ns=1_334_000_000,
        low_ns=1_210_000_000,
        high_ns=1_400_000_000,
        naive_ns=2_468_000_000,
        components={part: LiveComponent(1_000_000_000, 1_100_000_000) for part in PARTS},
    )


def report() -> LiveReport:
    """All configurations, of which one was refused and one could not run."""
    rows = [row(each.name) for each in CONFIGURATIONS]
    rows[1] = replace(rows[1], measured_ns=None, why="needs 4 GPUs, and there are 2", components={})
    rows[2] = replace(rows[2], predicted_ns=None, low_ns=None, high_ns=None, why="no layer repeats")
    return LiveReport(
        device="CPU, 2 threads",
        num_cores=2,
        base=row("base"),
        rows=tuple(rows),
        profiler_ns=20_000_000,
        event_ns=9_000,
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What the command asked for; nothing is run."""
    found: list[dict[str, object]] = []

    def measure(folder: Path, *, progress: Callable[[str, int, int], None], **more: object) -> None:
        progress("round 1 of 2: base", 0, 1)
        found.append({"folder": folder, **more})

    monkeypatch.setattr(validate, "measure_live", measure)

    def predicted(folder: Path, **_: object) -> LiveReport:
        found.append({"of": folder})
        return report()

    monkeypatch.setattr(validate, "live_report", predicted)
    monkeypatch.setattr(validate, "device_of", lambda name: f"device {name}")
    return found


def test_a_test_is_run_kept_and_reported(
    run: Run, asked: list[dict[str, object]], tmp_path: Path
) -> None:
    out = tmp_path / "live"

    outcome = run("validate", "live", "--out", out, "--rounds", 2, "--steps", 7, "--device", "cpu")

    assert outcome.code == 0, outcome.err
    wanted = {"device": "device cpu", "rounds": 2, "steps": 7, "seconds": None}
    assert asked == [{"folder": out, **wanted}, {"of": out}]
    assert "--from" in outcome.err


def test_without_a_folder_nothing_is_kept(run: Run, asked: list[dict[str, object]]) -> None:
    outcome = run("validate", "live")

    assert outcome.code == 0, outcome.err
    folder = asked[0]["folder"]
    assert isinstance(folder, Path)
    assert not folder.exists()
    assert "--from" not in outcome.err


def test_what_was_kept_is_predicted_again_without_running(
    run: Run, asked: list[dict[str, object]], tmp_path: Path
) -> None:
    outcome = run("validate", "live", "--from", tmp_path)

    assert outcome.code == 0, outcome.err
    assert asked == [{"of": tmp_path}]


def test_every_configuration_has_a_line_of_80_columns(
    run: Run, asked: list[dict[str, object]], tmp_path: Path
) -> None:
    out = run("validate", "live", "--from", tmp_path).out

    assert asked
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    for configuration in CONFIGURATIONS:
        assert sum(line.split()[:1] == [configuration.name] for line in lines) == 2
    assert "data-4: needs 4 GPUs, and there are 2" in out
    assert "layers-8: no layer repeats" in out
    assert "mean error not known" in out  # a refused row must not make the mean better


def test_a_folder_to_read_and_one_to_write_do_not_go_together(run: Run, tmp_path: Path) -> None:
    outcome = run("validate", "live", "--from", tmp_path, "--out", tmp_path)

    assert outcome.code == 2
    assert "give one of them" in " ".join(outcome.err.split())


def test_json_and_parquet_have_a_row_for_each_configuration(
    run: Run, asked: list[dict[str, object]], tmp_path: Path, keeps_schema: KeepsSchema
) -> None:
    parquet = tmp_path / "out.parquet"

    outcome = run("validate", "live", "--from", tmp_path, "--json", "--parquet", parquet)

    assert asked
    keeps_schema("validate live", json.loads(outcome.out))
    rows = json.loads(outcome.out)["rows"]
    assert [each["name"] for each in rows] == [each.name for each in CONFIGURATIONS]
    promised = {"name", "measured_ns", "predicted_ns", "low_ns", "high_ns", "naive_ns"}
    assert promised | {"components"} <= set(rows[0])
    assert pl.read_parquet(parquet).height == len(CONFIGURATIONS)


def test_a_folder_without_a_test_is_one_sentence(run: Run, tmp_path: Path) -> None:
    outcome = run("validate", "live", "--from", tmp_path)

    assert outcome.code == 1
    assert "no runs of a live test" in " ".join(outcome.err.split())

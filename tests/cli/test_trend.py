"""Runs in their order, the gate on the last, and answers as Markdown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.analyze import step_time_ns
from foretrace.base import GraphError
from tests.cli.conftest import Run
from tests.truth import Job, JobConfig, KernelFamily, make_job, write


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of six steps; the third, which text would sort second, has slow products."""
    folder = tmp_path_factory.mktemp("nightly")
    job: Job = make_job(JobConfig(tp=2, dp=2, num_layers=2, num_steps=6))
    for name, factor in (("run_8", 1.0), ("run_9", 1.0), ("run_10", 1.3)):
        write(job.after(KernelFamily("gemm", factor)), folder / name)
    return folder


def test_the_run_that_changed_the_step_is_named(run: Run, runs: Path) -> None:
    done = run("trend", runs, "--json")

    rows = json.loads(done.out)["rows"]
    assert [row["run"] for row in rows] == ["run_8", "run_9", "run_10"]
    for row in rows:
        assert row["step_time_ns"] == step_time_ns(ft.load(runs / row["run"]).measured)
    assert [row["verdict"] for row in rows][1:] == [
        "within the spread between steps",
        "beyond the spread between steps",
    ]
    assert rows[2]["reason"].startswith("gemm: +")
    text = run("trend", runs).out
    assert "run_10: +" in text
    assert "1 change beyond the spread" in " ".join(text.split())


@pytest.mark.parametrize(("limit", "code"), [("3%", 1), ("200%", 0)])
def test_the_gate_holds_the_last_run_against_the_one_before(
    run: Run, runs: Path, limit: str, code: int
) -> None:
    paths = [runs / name for name in ("run_8", "run_9", "run_10")]

    done = run("trend", *paths, "--fail-if-slower", limit, "--require-significant")

    assert done.code == code
    assert run("trend", runs, "--require-significant").code == 2


def test_one_run_is_no_trend(run: Run, runs: Path) -> None:
    done = run("trend", runs / "run_8" / "none")
    alone = run("trend", *[runs / "run_8"])

    assert done.code == 1
    assert alone.code == 1
    assert "a trend needs two runs at least" in alone.err
    with pytest.raises(GraphError, match="two runs"):
        ft.trend({"a": ft.load(runs / "run_8")})


def test_markdown_is_a_comment_that_nothing_in_a_name_can_break(run: Run, runs: Path) -> None:
    compared = run("compare", runs / "run_9", runs / "run_10", "--markdown").out
    trend = run("trend", runs, "--markdown").out

    lines = trend.splitlines()
    header = next(at for at, line in enumerate(lines) if line.startswith("| run |"))
    assert set(lines[header + 1].replace("|", "").split()) <= {"---", "---:"}
    assert len({line.count(" | ") for line in lines[header : header + 5]}) == 1
    assert compared.startswith("### run\\_9 before, run\\_10 after")
    assert compared.count("<details>") == compared.count("</details>") > 0
    assert "exposed transfer" in compared
    both = run("compare", runs / "run_9", runs / "run_10", "--markdown", "--json")
    assert both.code == 2

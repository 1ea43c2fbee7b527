"""`foretrace hang`: which rank is missing where, and an exit code for those who ask."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from tests.cli.conftest import Run
from tests.truth import JobConfig, make_job, mutate, text

MISSING = 1


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks; rank 1's host stood still in the middle."""
    folder = tmp_path_factory.mktemp("hung-run")
    job = make_job(JobConfig(tp=2, dp=1, num_layers=2, num_steps=1))
    collectives = [{each.rank: each.correlation for each in one.members} for one in job.collectives]
    traces = {rank: json.loads(text(job, rank), parse_float=Decimal) for rank in range(2)}
    stopped = mutate.hung(traces, collectives, missing=MISSING, at=len(collectives) // 2)
    for rank, trace in stopped.items():
        mutate.save(trace, folder / f"rank{rank}.json")
    return folder


def test_the_missing_rank_is_named(run: Run, hung: Path) -> None:
    outcome = run("hang", hung)

    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 80
    words = " ".join(outcome.out.split())
    assert f"which rank {MISSING} never began" in words
    assert f"rank {MISSING} was last at" in words


def test_json_and_files_tell_the_same(run: Run, hung: Path, tmp_path: Path) -> None:
    outcome = run("hang", hung, "--json", "--csv", tmp_path / "a.csv")

    found = json.loads(outcome.out)
    assert found["is_hung"] is True
    assert found["stuck"][0]["missing_ranks"] == [MISSING]
    assert pl.read_csv(tmp_path / "a.csv").height == len(found["stuck"])


def test_the_exit_code_is_asked_for(run: Run, hung: Path, traces: Path) -> None:
    assert run("hang", hung, "--fail-if-hung").code == 1
    assert run("hang", traces, "--fail-if-hung").code == 0


def test_a_run_that_went_on_has_none(run: Run, traces: Path) -> None:
    outcome = run("hang", traces)

    assert "no rank waits for another for good" in outcome.out
    assert json.loads(run("hang", traces, "--json").out)["is_hung"] is False


def test_the_overview_says_it_first(run: Run, hung: Path) -> None:
    outcome = run("analyze", hung)

    assert outcome.code == 0, outcome.err
    assert f"rank {MISSING} never began" in " ".join(outcome.out.split()[:60])

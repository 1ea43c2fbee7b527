from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.truth import Job, JobConfig, make_job, write


def test_table_fits_eighty_columns_and_says_what_is_there(run: Run, traces: Path) -> None:
    outcome = run("inspect", traces)

    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 80
    for words in ("4 files: 4 ranks of 4", "rank3.json.gz", "stream waits", "ProfilerStep#"):
        assert words in outcome.out


def test_what_is_missing_is_said_with_what_to_do(run: Run, traces: Path) -> None:
    one_rank = run("inspect", traces / "rank0.json.gz")

    assert "what a replay must do without" in one_rank.out
    assert "1 of 4 are here" in " ".join(one_rank.out.split())
    assert "how to record a better one" in one_rank.out


def test_files_of_different_runs_may_be_looked_at_together(
    run: Run, traces: Path, tmp_path: Path
) -> None:
    write(make_job(JobConfig(num_layers=1, num_steps=1)), tmp_path)

    outcome = run("inspect", traces, tmp_path / "rank0.json.gz")

    assert outcome.code == 0, outcome.err
    assert "5 files" in outcome.out


def test_json_accounts_for_every_record(run: Run, traces: Path, small_job: Job) -> None:
    outcome = run("inspect", traces, "--json")

    found = json.loads(outcome.out)["rows"]
    assert [one["rank"] for one in found] == [0, 1, 2, 3]
    for one in found:
        assert one["num_kept"] + sum(one["dropped"].values()) == one["num_events"]
        assert one["events_by_category"]["kernel"] == sum(
            operation.category == "kernel" for operation in small_job.operations(one["rank"])
        )

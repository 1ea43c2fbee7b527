"""Every command says the same step time of the same recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import foretrace as ft
from foretrace.analyze import step_time_ns
from tests.cli.conftest import Run

RECORDINGS = ("cpu-llama-tp2-dp2/traces", "planted/nothing", "planted/slow-loader")


def told(run: Run, *line: str | Path) -> Any:
    done = run(*line, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.mark.parametrize("name", RECORDINGS)
def test_one_step_time_of_a_recording(run: Run, repository: Path, name: str) -> None:
    path = repository / "examples" / name
    job = ft.load(path)
    measured_ns, replayed_ns = step_time_ns(job.measured), step_time_ns(job.replayed)

    replay = told(run, "replay", path)
    measured = {
        "analyze": told(run, "analyze", path)["step_time_ns"],
        "breakdown": told(run, "breakdown", path)["step_time_ns"],
        "idle": told(run, "idle", path, "--measured")["step_time_ns"],
        "replay": replay["step_time_ns"],
        "throughput": told(run, "throughput", path)["step_time_ns"],
    }
    replayed = {
        "breakdown": told(run, "breakdown", path, "--replayed")["step_time_ns"],
        "idle": told(run, "idle", path)["step_time_ns"],
        "replay": replay["replayed_step_time_ns"],
    }
    compared = told(run, "compare", path)

    assert measured == dict.fromkeys(measured, measured_ns)
    assert replayed == dict.fromkeys(replayed, replayed_ns)
    # Its parts are whole ns that add up, so that its mean is rounded down.
    assert compared["before"]["step_ns"] == pytest.approx(measured_ns, abs=1)
    assert compared["after"]["step_ns"] == pytest.approx(replayed_ns, abs=1)


@pytest.mark.parametrize("name", RECORDINGS)
def test_parts_are_shares_of_the_ranks_own_steps_everywhere(
    run: Run, repository: Path, name: str
) -> None:
    path = repository / "examples" / name

    rows = told(run, "breakdown", path)["rows"]
    summary = told(run, "replay", path)["summary"]["measured_parts"]
    lines = told(run, "analyze", path)
    lost = told(run, "idle", path, "--measured")

    idle_ns = sum(row["components"]["idle"] for row in rows)
    whole_ns = sum(row["step_ns"] for row in rows)
    shares = {line["label"]: line["share"] for line in lines["breakdown"]}
    own = next(line["time_ns"] for line in lines["step"] if line["label"] == "own step")
    assert lost["idle_ns"] == idle_ns == summary["idle"]
    assert lost["waiting_ns"] == sum(row["waiting_for_ranks_ns"] for row in rows)
    assert shares["idle"] == pytest.approx(idle_ns / whole_ns)
    assert own == pytest.approx(whole_ns / len(rows))

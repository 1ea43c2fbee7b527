"""`foretrace run`: its answer, its schema, and traces that load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foretrace as ft
from tests.cli.conftest import Run
from tests.conftest import KeepsSchema

SCRIPTS = Path(__file__).parents[1] / "capture" / "world" / "scripts"

pytest.importorskip("torch")


def test_a_sharded_script_becomes_one_role_whose_traces_replay(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_schema: KeepsSchema
) -> None:
    monkeypatch.setenv("TP", "2")
    outcome = run(
        "run", "--world", 16, "-o", tmp_path, "--machine", "dgx-h100", "--json", "--",
        SCRIPTS / "fsdp.py",
    )  # fmt: skip

    assert outcome.code == 0, outcome.err
    told = json.loads(outcome.out)
    keeps_schema("run", told)
    (role,) = told["roles"]
    assert role["num_ranks"] == 16
    job = ft.load(tmp_path)
    assert sorted({len(one.ranks) for one in job.graph.collectives}) == [2, 8]
    assert ft.replay(job).replayed_step_time_ns == told["step_ns"]

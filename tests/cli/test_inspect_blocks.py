from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_blocks_fit_eighty_columns_and_fold_ranks_alike(run: Run, traces: Path) -> None:
    outcome = run("inspect", traces, "--blocks")

    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 80
    for words in ("\n0-3 ", "backward", "found from", "sequence numbers"):
        assert words in outcome.out


def test_blocks_as_json_add_up(run: Run, traces: Path) -> None:
    outcome = run("inspect", traces, "--blocks", "--json")

    found = json.loads(outcome.out)
    known = sum(
        row["work_ns"]
        for row in found["blocks"]
        if row["part"] != "unknown" and row["phase"] != "unknown"
    )
    assert found["share_assigned"] == known / sum(row["work_ns"] for row in found["blocks"])
    assert {each["about"] for each in found["evidence"]} >= {"phases", "layers", "backward layers"}


def test_a_file_corrects_the_blocks(run: Run, traces: Path, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text('[[rule]]\nkernel = "*FusedAdam*"\npart = "head"\n', encoding="utf-8")

    outcome = run("inspect", traces, "--blocks", "--blocks-file", path, "--json")

    parts = {
        row["part"] for row in json.loads(outcome.out)["blocks"] if "adam" in row["first_operator"]
    }
    assert parts == {"head"}


def test_a_wrong_file_is_named_and_ends_with_one(run: Run, traces: Path, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("layer = 3\n", encoding="utf-8")

    outcome = run("inspect", traces, "--blocks", "--blocks-file", path)

    assert outcome.code == 1
    assert "has the key 'layer'" in outcome.err


def test_a_file_without_blocks_is_a_mistake(run: Run, traces: Path, tmp_path: Path) -> None:
    outcome = run("inspect", traces, "--blocks-file", tmp_path / "my.toml")

    assert outcome.code == 2
    assert "--blocks" in outcome.err

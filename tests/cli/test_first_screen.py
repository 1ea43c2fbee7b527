"""The first screen of a public recording that is known: eight ranks whose hosts stand still."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def ranks(data_dir: Path) -> Path:
    return data_dir / "traces" / "megatron-tp8"


@pytest.mark.large
def test_stalls_of_all_ranks_are_named_and_changes_gain_what_a_what_if_says(
    run: Run, ranks: Path
) -> None:
    """No operator is blamed for what strikes any of them; graphs, the largest saving, are told."""
    screen = json.loads(run("analyze", ranks, "--json").out)
    change = json.loads(run("whatif", ranks, "--cuda-graphs", "all", "--json").out)

    assert screen["verdict"].startswith("host stalls on 8 ranks")
    assert "aten::" not in screen["verdict"]
    (graphs,) = [one for one in screen["changes that pay"] if one["label"] == "CUDA graphs"]
    assert graphs["share"] > 0.5
    assert graphs["time_ns"] == -change["change_ns"]


@pytest.mark.large
@pytest.mark.parametrize("degrees", [("--pp", 2), ("--tp", 16)])
def test_more_ranks_than_a_machine_has_are_refused(
    run: Run, ranks: Path, degrees: tuple[object, ...]
) -> None:
    done = run("whatif", ranks, *degrees, "--machine", "dgx-a100")

    assert (done.code, done.out) == (1, "")
    assert "place 8 lies outside the machine, whose outermost tier 'host' has 8 ranks" in done.err
    assert "state a machine" in done.err


@pytest.mark.large
@pytest.mark.parametrize("command", ["analyze", "replay", "inspect", "breakdown", "idle"])
def test_lines_keep_to_their_width_and_end_with_a_letter(
    run: Run, ranks: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in (80, 160):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = run(command, ranks).out.splitlines()

        assert max(map(len, lines)) <= columns
        assert [line for line in lines if line != line.rstrip()] == []

"""What a recording lacks is said by every command that answers about it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

SAYS = "whole events before that are kept"


@pytest.fixture
def cut(traces: Path, tmp_path: Path) -> Path:
    """The run, one rank's file cut in its last third."""
    folder = tmp_path / "cut"
    folder.mkdir()
    first, *others = sorted(path for path in traces.iterdir() if ".json" in path.name)
    for path in others:
        (folder / path.name).write_bytes(path.read_bytes())
    data = first.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    (folder / first.name.removesuffix(".gz")).write_bytes(text[: len(text) * 9 // 10])
    return folder


@pytest.mark.parametrize(
    "command",
    ["breakdown", "idle", "stragglers", "critical-path", "operators", "sensitivity", "replay"],
)
def test_a_cut_file_is_said_on_stderr_and_in_json(run: Run, cut: Path, command: str) -> None:
    done = run(command, cut, "--json")

    assert done.code == 0
    assert SAYS in done.err
    assert any(SAYS in one for one in json.loads(done.out)["lacks"])


def test_a_whole_run_lacks_nothing(run: Run, traces: Path) -> None:
    done = run("breakdown", traces, "--json")

    assert "lacking" not in done.err
    assert "lacks" not in json.loads(done.out)


@pytest.mark.parametrize(
    "command",
    [
        "analyze",
        "replay",
        "breakdown",
        "idle",
        "stragglers",
        "operators",
        "critical-path",
        "stalls",
        "risk steps",
    ],
)
def test_no_answer_is_made_of_files_without_times(run: Run, repository: Path, command: str) -> None:
    traces = repository / "examples" / "cpu-llama-tp2-dp2" / "traces"

    done = run(*command.split(), traces / "rank0.et.json.gz")

    assert done.code == 1
    assert done.out == ""
    assert "rank0.et.json.gz has no times" in done.err

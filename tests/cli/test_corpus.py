"""Every public trace is replayed or refused with a sentence; none ends in a traceback."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run

COMMANDS = ("inspect", "replay", "analyze")


def files_of(data_dir: Path) -> list[Path]:
    """Every JSON file of the public traces; of ranks of one job the first."""
    found = sorted((data_dir / "traces").rglob("*.json.gz"))
    return [path for path in found if _first_rank(path) in {path, None}]


def _first_rank(path: Path) -> Path | None:
    """Rank 0 beside a file; none, if there is none."""
    first = path.with_name(re.sub(r"rank\d+(?=\.json\.gz$)", "rank0", path.name))
    return first if first.exists() else None


@pytest.fixture(scope="module")
def read_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of what one command read, for the others."""
    return tmp_path_factory.mktemp("read-once")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_file_is_answered(
    run: Run, data_dir: Path, command: str, read_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETRACE_CACHE", str(read_once))
    num_answered = 0
    for path in files_of(data_dir):
        outcome = run(command, path)

        assert "Traceback" not in outcome.err, path
        assert max(map(len, outcome.out.splitlines()), default=0) <= 80, path
        if outcome.code:
            assert outcome.code == 1, path
            assert outcome.err.startswith("error: "), path
            assert path.name in outcome.err
            assert outcome.out == "", path
        num_answered += not outcome.code

    assert num_answered >= 25


@pytest.mark.slow
def test_eight_ranks_of_megatron_are_replayed_from_their_folder(
    run: Run, data_dir: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"

    outcome = run("replay", data_dir / "traces" / "megatron-tp8", "--json", "--report", page)

    assert outcome.code == 0, outcome.err
    (step,) = json.loads(outcome.out)["steps"]
    assert [rank["rank"] for rank in step["ranks"]] == list(range(8))
    assert page.stat().st_size < 2_000_000

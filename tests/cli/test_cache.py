from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_kept_traces_are_listed_and_removed(run: Run, traces: Path, tmp_path: Path) -> None:
    run("breakdown", traces)

    found = json.loads(run("cache", "list", "--json").out)
    shown = run("cache", "list").out
    pruned = run("cache", "prune", "--size", "0")

    assert found["folder"] == str(tmp_path / "cache")
    names = {Path(one["file"]).name for one in found["entries"]}
    assert names == {path.name for path in traces.iterdir() if ".json" in path.name}
    assert all(one["is_current"] for one in found["entries"])
    assert "4 traces" in " ".join(shown.split())
    assert (pruned.code, pruned.err.startswith("removed ")) == (0, True)
    assert json.loads(run("cache", "list", "--json").out)["entries"] == []


def test_the_cache_keeps_to_its_size(
    run: Run, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("breakdown", traces)
    entries = sorted((tmp_path / "cache").glob("*.columns"))
    for age, path in enumerate(entries):
        os.utime(path, (10**9 - age, 10**9 - age))
    monkeypatch.setenv("FORETRACE_CACHE_SIZE", f"{entries[0].stat().st_size + 10}B")

    done = run("cache", "prune")

    assert done.code == 0
    assert sorted((tmp_path / "cache").glob("*.columns")) == entries[:1]


def test_loading_prunes_too(run: Run, traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETRACE_CACHE_SIZE", "0")

    run("breakdown", traces)

    assert json.loads(run("cache", "list", "--json").out)["entries"] == []


@pytest.mark.parametrize("size", ["much", "-1", "5XB"])
def test_a_size_that_is_none_is_refused(run: Run, size: str) -> None:
    done = run("cache", "prune", f"--size={size}")

    assert done.code == 2
    assert "expected a size, as 500MB" in " ".join(done.err.split())


def test_progress_is_told_as_lines_of_json(run: Run, traces: Path) -> None:
    done = run("--progress", "json", "breakdown", traces)
    quiet = run("breakdown", traces)

    told = [json.loads(line) for line in done.err.splitlines()]
    assert {"doing": "reading traces", "done": 4, "total": 4} in told
    assert told[-1]["doing"] == "adding up what ran"
    assert quiet.err == ""

"""Recordings whose names steer terminals, or whose clocks are far apart."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

STEERING = "\x1b[31m\x1b]0;title\x07\x9b2J\r"


def changed(traces: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The small job's files with every event changed."""
    folder.mkdir()
    for path in traces.iterdir():
        is_packed = path.suffix == ".gz"
        raw = gzip.decompress(path.read_bytes()) if is_packed else path.read_bytes()
        content = json.loads(raw)
        for event in content.get("traceEvents", ()):
            change(event)
        text = json.dumps(content).encode()
        (folder / path.name).write_bytes(gzip.compress(text) if is_packed else text)
    return folder


def steers(event: dict[str, Any]) -> None:
    if event.get("cat") in ("kernel", "cpu_op"):
        event["name"] += STEERING


def runs_late(event: dict[str, Any]) -> None:
    if str(event.get("cat")) in ("kernel", "gpu_memcpy", "gpu_memset"):
        event["ts"] += 3_000_000


@pytest.mark.parametrize(
    "line", ["breakdown", "idle", "analyze", "stragglers", "operators", "inspect", "replay"]
)
@pytest.mark.parametrize("end", [(), ("--json",)])
def test_names_do_not_steer_the_terminal(
    run: Run, traces: Path, tmp_path: Path, line: str, end: tuple[str, ...]
) -> None:
    done = run(line, changed(traces, tmp_path / "job", steers), *end)

    assert done.code == 0
    assert not set("\x1b\x07\x9b\r") & set(done.out + done.err)


def test_names_do_not_steer_what_is_drawn(run: Run, traces: Path, tmp_path: Path) -> None:
    job = changed(traces, tmp_path / "job", steers)
    for name in ("drawn.svg", "drawn.dot"):
        done = run("draw", job, "--around", "cutlass", "--depth", 1, "-o", tmp_path / name)

        assert done.code == 0, done.err
        assert not set("\x1b\x07\x9b\r") & set((tmp_path / name).read_text(encoding="utf-8"))


def test_a_folder_whose_name_is_no_utf8_is_told(run: Run, traces: Path, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff"))
    try:
        changed(traces, folder, lambda _: None)
    except OSError:
        pytest.skip("this file system holds UTF-8 names only")

    for end in ((), ("--json",)):
        for line in ("inspect", "breakdown", "replay"):
            done = run(line, folder, *end)
            assert done.code == 0, done.err
            if end:
                json.loads(done.out)


def test_clocks_that_are_seconds_apart_are_a_sentence(
    run: Run, traces: Path, tmp_path: Path
) -> None:
    done = run("breakdown", changed(traces, tmp_path / "job", runs_late))

    assert done.code == 1
    assert "the clocks of host and device differ" in done.err

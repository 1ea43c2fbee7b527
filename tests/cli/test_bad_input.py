"""Whatever is given, the answer is one sentence and the exit code 1."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome, Run


def assert_refused(outcome: Outcome, *words: str) -> None:
    assert outcome.code == 1, outcome.err
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert "Traceback" not in outcome.err
    for word in words:
        assert word in outcome.err


@pytest.mark.parametrize("command", ["replay", "inspect", "analyze", "compare"])
def test_a_missing_file_is_named(run: Run, tmp_path: Path, command: str) -> None:
    assert_refused(run(command, tmp_path / "absent.json"), "absent.json")


@pytest.mark.parametrize("command", ["replay", "inspect", "analyze", "compare"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.json", b""),
        ("text.json", b"this is no trace\n"),
        ("other.json", b'{"some": "thing"}'),
        ("noise.json.gz", gzip.compress(bytes(range(256)) * 8, mtime=0)),
        ("not-gzip.json.gz", b"\x00\x01\x02 nothing compressed"),
    ],
)
def test_a_file_that_is_no_trace_is_named(
    run: Run, tmp_path: Path, command: str, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)

    assert_refused(run(command, tmp_path / name), name)


@pytest.mark.parametrize("command", ["replay", "inspect", "analyze", "compare"])
def test_a_folder_without_traces_is_named(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "nothing").mkdir()

    assert_refused(run(command, tmp_path / "nothing"), "nothing")


def test_an_unknown_step_lists_the_known_ones(run: Run, traces: Path) -> None:
    assert_refused(run("replay", traces, "--step", "99"), "99", "ProfilerStep#")


def test_a_rank_without_a_trace_is_named(run: Run, traces: Path) -> None:
    assert_refused(run("replay", traces, "--ranks", "77"), "77")


@pytest.mark.parametrize("option", ["--trace", "--report", "--csv", "--parquet"])
def test_an_output_that_cannot_be_written_is_named(
    run: Run, traces: Path, tmp_path: Path, option: str
) -> None:
    (tmp_path / "file").touch()

    assert_refused(run("replay", traces, option, tmp_path / "file" / "out"), "file")

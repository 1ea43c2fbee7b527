from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_standard_input_is_a_file_or_an_archive(
    run: Run, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(tmp_path / "run.tar", "w") as archive:
        archive.add(traces, "run")
    expected = run("breakdown", traces, "--json")
    given = io.TextIOWrapper(io.BytesIO((tmp_path / "run.tar").read_bytes()))
    monkeypatch.setattr(sys, "stdin", given)

    done = run("breakdown", "-", "--json")

    assert (done.code, done.out) == (0, expected.out)

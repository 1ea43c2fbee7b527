"""A small run's traces, and a way to run command lines on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from foretrace.cli import main
from tests.truth import Job, JobConfig, make_job, write


@dataclass(frozen=True)
class Outcome:
    """What a command line left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def small_job() -> Job:
    """Four ranks, two steps."""
    return make_job(JobConfig(tp=2, dp=2, num_layers=2, num_steps=2))


@pytest.fixture(scope="session")
def traces(small_job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small job's files."""
    folder = tmp_path_factory.mktemp("small-run")
    write(small_job, folder)
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command line with a cache of its own; arguments become text."""
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def run_line(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = end.value.code
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run_line

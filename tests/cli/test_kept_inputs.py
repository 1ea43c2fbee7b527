"""No command writes over what it reads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from foretrace.cli.lazy import LazyGroup
from tests.bench.traces import RELU, Seen, Written
from tests.cli.conftest import Run


def contents(folder: Path) -> dict[str, str]:
    """What lies in a folder."""
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture
def job(tmp_path: Path, traces: Path) -> Path:
    """A copy of the small job's files, with a second name of the first."""
    folder = tmp_path / "job"
    folder.mkdir()
    for path in traces.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def first_of(folder: Path) -> Path:
    return min(path for path in folder.iterdir() if "rank0" in path.name)


LINES: dict[str, Callable[[Path], list[object]]] = {
    "anonymise": lambda job: ["anonymise", first_of(job), "-o", job],
    "replay": lambda job: ["replay", job, "--trace", first_of(job)],
    "replay, its table": lambda job: ["replay", job, "--csv", first_of(job)],
    "report": lambda job: ["report", first_of(job), "-o", first_of(job)],
    "report, a folder": lambda job: ["report", job, "-o", job / "." / first_of(job).name],
    "breakdown": lambda job: ["breakdown", f"{job}/*", "--parquet", first_of(job)],
}


@pytest.mark.parametrize("line", LINES)
def test_an_output_that_is_an_input_is_refused(run: Run, job: Path, line: str) -> None:
    if line == "anonymise":  # the file that it would write
        first_of(job).rename(job / "rank0.kineto.json.gz")
    before = contents(job)

    done = run(*LINES[line](job))

    assert done.code == 1
    assert "it is one of the files that this command reads" in done.err
    assert contents(job) == before


def test_a_benchmark_does_not_replace_its_trace(run: Run, tmp_path: Path) -> None:
    trace = Written()
    trace.add(20, RELU, [Seen(10, 11)], makes=[Seen(21, 22)])
    path = trace.write(tmp_path)
    before = path.read_bytes()

    done = run("bench", "generate", path, "-o", path)

    assert done.code == 1
    assert "it is one of the files that this command reads" in done.err
    assert path.read_bytes() == before


def test_an_output_beside_the_inputs_may_be_written_twice(run: Run, job: Path) -> None:
    for _ in range(2):
        assert run("breakdown", job, "--csv", job / "table.csv").code == 0


@pytest.mark.parametrize("name", LazyGroup().list_commands(None))
def test_every_command_keeps_its_inputs(name: str) -> None:
    loaded = LazyGroup().loaded(name)

    assert {type(one).__name__ for one in getattr(loaded, "commands", {"": loaded}).values()} == {
        "KeepsInputs"
    }


INTERRUPTED = """
import sys
from foretrace.cli.entry import main

class Pressed:
    def find_spec(self, name, path, target=None):
        if name == "foretrace.cli.errors":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Pressed())
main()
"""


def test_an_interrupt_while_modules_are_imported_ends_quietly() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 130
    assert not ended.stderr


@pytest.mark.parametrize("name", ["job.3.et", "job.groups.json", "job.rank2.json"])
def test_of_a_job_that_cannot_be_written_whole_no_rank_is_left(
    run: Run, traces: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "out" / name).mkdir(parents=True)
    to = "kineto" if "rank" in name else "chakra"

    done = run("convert", traces, "--to", to, "-o", tmp_path / "out" / "job")

    assert done.code == 1
    assert "it is a folder" in done.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]

"""What a command reads: a run's files, and the side of it that is asked for."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from foretrace import api
from foretrace.api import Job
from foretrace.base import visible
from foretrace.cli import options
from foretrace.cli.progress import ProgressLine
from foretrace.cli.settings import cache_folder, max_cache_bytes
from foretrace.graph import Timeline

STANDARD_INPUT = "-"

_PART = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How to read a run."""

    blocks_file: options.BlocksFile = None
    ranks: options.Ranks = None
    no_cache: options.NoCache = False
    workers: options.Workers = None
    names: options.Names = None
    step_mark: options.StepMark = ""

    def __post_init__(self) -> None:
        """Refuse ranks that are none, before any file is read."""
        parsed_ranks(self.ranks)

    def job(self, paths: list[str], doing: ProgressLine) -> Job:
        """The run of these files, read.

        What they lack that bears on every answer is said on stderr.
        """
        doing.now("reading traces")
        with read_from(paths) as files:
            job = self._loaded(files, doing)
        for sentence in job.lacks:
            typer.echo(visible(f"lacking: {sentence}"), err=True)
        return job

    def _loaded(self, paths: list[str], doing: ProgressLine) -> Job:
        return api.load(
            paths,
            ranks=parsed_ranks(self.ranks),
            blocks=self.blocks_file,
            names=self.names,
            step_mark=self.step_mark,
            cache=False if self.no_cache else cache_folder(),
            max_cache_bytes=max_cache_bytes(),
            workers=self.workers,
            progress=doing.advance,
        )


@contextmanager
def read_from(paths: list[str]) -> Iterator[list[str]]:
    """The paths, `-` among them as a file of what standard input gave; it may be any archive."""
    if STANDARD_INPUT not in paths:
        yield paths
        return
    with TemporaryDirectory(prefix="foretrace-") as folder:
        file = Path(folder) / "standard-input"
        with file.open("wb") as target:
            shutil.copyfileobj(sys.stdin.buffer, target)
        yield [str(file) if path == STANDARD_INPUT else path for path in paths]


def timeline_of(job: Job, doing: ProgressLine, *, is_replayed: bool) -> Timeline:
    """The job's replay, or what was measured."""
    job.check_times("replay" if is_replayed else "measure")
    if not is_replayed:
        return job.measured
    doing.now("replaying")
    return api.simulate(job)


def parsed_ranks(text: str | None) -> tuple[int, ...] | None:
    """The ranks that the text lists, rising, each once; None if there is no text."""
    if text is None:
        return None
    ranks: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise typer.BadParameter(
                f"{part!r} is not a rank or a range of ranks: expected numbers as in 0,3-5"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise typer.BadParameter(f"the range {part!r} ends before it begins")
        ranks.update(range(first, last + 1))
    return tuple(sorted(ranks))

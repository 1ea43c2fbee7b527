"""`foretrace trend`: the step time over many runs, and a gate on the last."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.api import Job
from foretrace.cli import options
from foretrace.cli.compare import (
    Confidence,
    FailIfSlower,
    RequireSignificant,
    code_of,
    gate_text,
    stated_limit,
)
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import ProgressLine, activity
from foretrace.cli.source import Reading
from foretrace.trace import files_named


def trend(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="A folder with a folder for each run; or every run's own path."
        ),
    ],
    *,
    fail_if_slower: FailIfSlower = None,
    require_significant: RequireSignificant = False,
    confidence: Confidence = 95,
    top: options.Top = 64,
    outputs: Outputs,
    reading: Reading,
) -> None:
    """Show the step time over many runs, and which of them changed it."""
    limit = stated_limit(fail_if_slower, require_significant=require_significant)
    named = _named(runs)
    lacks: list[str] = []

    def jobs(doing: ProgressLine) -> Iterator[tuple[str, Job]]:
        for name, path in named:
            job = reading.job([path], doing)
            lacks.extend(f"{name}: {one}" for one in job.lacks)
            yield name, job

    with activity() as doing:
        found = api.trend(jobs(doing), confidence=confidence / 100)
    outputs.tell(found, title=_title(runs), top=top, lacks=tuple(lacks))
    code = 0
    if limit is not None and found.last is not None:
        code = code_of(limit, found.last, require_significant=require_significant)
        typer.echo(gate_text(limit, found.last, code), err=True)
    if code:
        raise typer.Exit(code)


def _named(runs: list[str]) -> list[tuple[str, str]]:
    """Runs with their names: the folders of one folder, in the order of their numbers."""
    if len(runs) > 1 or not Path(runs[0]).is_dir():
        return [(Path(one).name or one, one) for one in runs]
    folder = Path(runs[0])
    within = [one for one in folder.iterdir() if one.is_dir() and files_named(str(one))]
    found = sorted(within, key=lambda one: _in_order(one.name)) or [folder]
    return [(one.name, str(one)) for one in found]


def _in_order(name: str) -> list[tuple[bool, int, str]]:
    """What sorts `run-9` before `run-10`."""
    parts = re.findall(r"\d+|\D+", name)
    return [(not one.isdigit(), int(one) if one.isdigit() else 0, one) for one in parts]


def _title(runs: list[str]) -> str:
    return runs[0] if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"

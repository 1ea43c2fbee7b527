"""`foretrace memory`: memory in use over the step, its peak, and what holds it then."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.api import Job
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs, title_text
from foretrace.cli.progress import activity
from foretrace.cli.source import Reading


def memory(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...", help="Profiler files of the run's ranks: files, globs or folders."
        ),
    ] = None,
    *,
    snapshot: Annotated[
        Path | None,
        option(
            "FILE",
            "Read this file of torch.cuda.memory._dump_snapshot instead of traces.",
            dir_okay=False,
        ),
    ] = None,
    step: options.Step = None,
    top: options.Top = 5,
    outputs: Outputs,
    reading: Reading,
) -> None:
    """Show memory in use over a step, its peak, what holds it."""
    if (not paths) == (snapshot is None):
        raise typer.BadParameter("give either PATH or --snapshot FILE")
    if snapshot is not None and (step is not None or reading.ranks is not None):
        raise typer.BadParameter("a snapshot has no steps and no ranks")
    job: Job | None = None
    with activity() as doing:
        if snapshot is None:
            job = reading.job(paths or [], doing)
            doing.now("adding allocations up")
            found = api.memory(job, step=step)
        else:
            doing.now(f"reading {snapshot}")
            found = api.memory(snapshot)

    title = "" if job is None else title_text(job, is_replayed=False)
    outputs.tell(found, title=title, top=top, lacks=() if job is None else job.lacks)

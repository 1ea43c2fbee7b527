"""`foretrace report`: every answer about a run on one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.answer import bytes_text
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.progress import activity
from foretrace.cli.source import Reading


def report(
    paths: options.Paths,
    *,
    output: Annotated[
        Path, option("OUT.html", "Where to write the page.", *options.OUT, dir_okay=False)
    ] = Path("report.html"),
    title: Annotated[str, option("TEXT", "Of the page. Default: the traces' folder.")] = "",
    step: options.Step = None,
    without: options.Without = None,
    reading: Reading,
) -> None:
    """Write one HTML page with all answers; it opens offline."""
    with activity() as doing:
        job = reading.job(paths, doing)
        doing.now("replaying, and asking every question")
        api.report(job, output, title=title, step=step, without=tuple(without or ()))
    typer.echo(f"wrote {output}, {bytes_text(output.stat().st_size)}", err=True)

"""`foretrace report`: every answer about a run on one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.answer import bytes_text
from foretrace.cli import options
from foretrace.cli.progress import activity
from foretrace.cli.source import Reading
from foretrace.graph import Ablation


def report(
    paths: options.Paths,
    *,
    output: Annotated[
        Path,
        typer.Option(
            *options.OUT, metavar="OUT.html", dir_okay=False, help="Where to write the page."
        ),
    ] = Path("report.html"),
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="Of the page. Default: the traces' folder.")
    ] = "",
    step: options.Step = None,
    without: Annotated[
        list[Ablation] | None,
        typer.Option(help="Leave out a class of dependency; may be given again."),
    ] = None,
    reading: Reading,
) -> None:
    """Write one HTML page with all answers; it opens offline."""
    with activity() as doing:
        job = reading.job(paths, doing)
        doing.now("replaying, and asking every question")
        api.report(job, output, title=title, step=step, without=tuple(without or ()))
    typer.echo(f"wrote {output}, {bytes_text(output.stat().st_size)}", err=True)

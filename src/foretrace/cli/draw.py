"""`foretrace draw`: a part of the graph as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.cli import options
from foretrace.cli.progress import activity
from foretrace.cli.source import Reading


def draw(
    paths: options.Paths,
    *,
    output: Annotated[
        Path, typer.Option(*options.OUT, metavar="FILE", help="Ends in .svg or .dot.")
    ],
    around: Annotated[
        str | None,
        typer.Option(metavar="NODE", help="What lies around this node: its number or its name."),
    ] = None,
    depth: Annotated[
        int, typer.Option(min=0, metavar="D", help="Edges from there, in both directions.")
    ] = 2,
    step: options.Step = None,
    rank: Annotated[
        int | None, typer.Option(min=0, metavar="RANK", help="Nodes of this rank only.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="Nodes with these words in name, operator or block."),
    ] = None,
    reading: Reading,
) -> None:
    """Draw some nodes of the graph and what they wait for."""
    with activity() as doing:
        job = reading.job(paths, doing)
        doing.now("drawing")
        number = int(around) if around is not None and around.isdigit() else around
        drawn = api.draw(job, output, around=number, depth=depth, step=step, rank=rank, label=label)
    typer.echo(f"wrote {drawn.path}: {drawn.num_nodes} nodes, {drawn.num_edges} edges", err=True)

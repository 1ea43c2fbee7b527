"""`foretrace draw`: a part of the graph as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.progress import activity
from foretrace.cli.source import Reading


def draw(
    paths: options.Paths,
    *,
    output: Annotated[Path, option("FILE", "Ends in .svg or .dot.", *options.OUT)],
    around: Annotated[
        str | None, option("NODE", "What lies around this node: its number or its name.")
    ] = None,
    depth: Annotated[int, option("D", "Edges from there, in both directions.", min=0)] = 2,
    step: options.Step = None,
    rank: Annotated[int | None, option("RANK", "Nodes of this rank only.", min=0)] = None,
    label: Annotated[
        str | None, option("WORDS", "Nodes with these words in name, operator or block.")
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

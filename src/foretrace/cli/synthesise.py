"""`foretrace synthesise`: a job that never ran, like others that did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.source import Reading
from foretrace.exchange import DEFAULT_ORDER


def synthesise(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Traces of one run to learn from, Chakra or Kineto: files, globs, folders.",
        ),
    ],
    *,
    output: Annotated[Path, option("OUT", "Prefix of the files' names.", *options.OUT)],
    nodes: Annotated[int, option("N", "Nodes per rank.", min=1)],
    ranks: Annotated[int, option("R", "Ranks to make.", min=1)],
    also: Annotated[
        list[str] | None, option("PATH", "Another run to learn from; may be given again.")
    ] = None,
    seed: Annotated[int, option("S", "Draw others.", min=0)] = 0,
    order: Annotated[
        int, option("K", "Nodes back that decide on the next one.", min=0)
    ] = DEFAULT_ORDER,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Say how near it comes to its source.")
    ] = True,
    json: options.AsJson = False,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
) -> None:
    """Make a Chakra trace of any length with a run's statistics."""
    with activity() as doing:
        jobs = [
            Reading(no_cache=no_cache, workers=workers).job(listed, doing)
            for listed in (paths, *([one] for one in also or ()))
        ]
        doing.now("making a job")
        made = api.synthesise(
            jobs,
            output,
            num_nodes=nodes,
            num_ranks=ranks,
            seed=seed,
            order=order,
            is_compared=report,
        )
    Outputs(json).tell(made)

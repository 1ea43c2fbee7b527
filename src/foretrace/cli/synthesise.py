"""`foretrace synthesise`: a job that never ran, like others that did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foretrace import api
from foretrace.cli import options
from foretrace.cli.outputs import print_json
from foretrace.cli.progress import activity
from foretrace.cli.source import Source
from foretrace.cli.tables import plain_table, print_section
from foretrace.exchange import DEFAULT_ORDER, Closeness, Synthesised


def synthesise(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Traces of one run to learn from, Chakra or Kineto: files, globs, folders.",
        ),
    ],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT", help="Prefix of the files' names.")
    ],
    nodes: Annotated[int, typer.Option(min=1, metavar="N", help="Nodes per rank.")],
    ranks: Annotated[int, typer.Option(min=1, metavar="R", help="Ranks to make.")],
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Another run to learn from; may be given again."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Draw others.")] = 0,
    order: Annotated[
        int, typer.Option(min=0, metavar="K", help="Nodes back that decide on the next one.")
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
            Source(listed, None, no_cache, workers).job(doing)
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
    if json:
        print_json(made.as_json())
    else:
        print_synthesised(Console(highlight=False), made)


def print_synthesised(console: Console, made: Synthesised) -> None:
    """Print what was made, and how near it comes."""
    more = f" to {made.paths[-1].name}" if len(made.paths) > 1 else ""
    console.print(
        f"wrote {made.paths[0]}{more}: {made.num_nodes:,} nodes per rank of "
        f"{made.num_tokens:,} kinds"
    )
    if made.closeness is not None:
        _print_closeness(console, made.closeness)


def _print_closeness(console: Console, found: Closeness) -> None:
    table = plain_table("distance (KS, 0 to 1)", "made", "halves", "made of", "source of")
    for one in found.distances:
        table.add_row(
            one.measure,
            *("" if value < 0 else f"{value:.3f}" for value in (one.made, one.halves)),
            f"{one.num_made:,}",
            f"{one.num_source:,}",
        )
    print_section(console, "", table)
    ratio = found.made_ns_per_node / found.source_ns_per_node if found.source_ns_per_node else 0
    console.print(f"\ncritical path per node: {ratio:.2f} times the source's")

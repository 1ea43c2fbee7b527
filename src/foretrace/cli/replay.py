"""`foretrace replay`: a run replayed and held against what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from foretrace import api
from foretrace.cli.progress import activity
from foretrace.cli.ranks import parsed_ranks
from foretrace.cli.replay_table import print_replay
from foretrace.cli.settings import cache_folder
from foretrace.graph import Ablation

TRACES = "Profiler files of the run's ranks: files, globs or folders."


def replay(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help=TRACES)],
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON instead of tables.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT",
            dir_okay=False,
            help="Write measured and replayed side by side; opens in Perfetto.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.html", dir_okay=False, help="Write one self-contained HTML page."
        ),
    ] = None,
    without: Annotated[
        list[Ablation] | None,
        typer.Option(help="Leave out a class of dependency; may be given again."),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Report on this step only, by name or number; may be given again.",
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(metavar="RANKS", help="Read these ranks only, as in 0,3-5."),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Read the files anew and keep nothing.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Files to read at once. Default: what suits."),
    ] = None,
) -> None:
    """Rebuild every rank's step from its dependencies and compare with the measurement."""
    chosen_ranks = parsed_ranks(ranks)
    left_out = tuple(without or ())
    with activity() as doing:
        doing.now("reading traces")
        job = api.load(
            paths,
            ranks=chosen_ranks,
            cache=False if no_cache else cache_folder(),
            workers=workers,
            progress=doing.advance,
        )
        doing.now("replaying, with null models beside")
        replayed = api.simulate(job, without=left_out)
        found = api.replay(job, without=left_out, steps=step)
        if trace is not None:
            doing.now(f"writing {trace}")
            api.write_trace(trace, job, replayed)
        if report is not None:
            doing.now(f"writing {report}")
            api.write_report(report, job, replayed, replay=found, without=left_out)
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found.as_json()), indent=2))
    else:
        print_replay(job, found, without=left_out)
    for path in (trace, report):
        if path is not None:
            typer.echo(f"wrote {path}", err=True)

"""`foretrace replay`: a run replayed and held against what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.base import written_together
from foretrace.cli import options
from foretrace.cli.outputs import Outputs, title_text
from foretrace.cli.progress import activity
from foretrace.cli.source import RunSource
from foretrace.graph import Ablation
from foretrace.validate import Trust

DOUBTED = 3  # the exit code of --strict


def replay(
    paths: options.Paths,
    *,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    table: options.TableName = None,
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
    strict: Annotated[
        bool, typer.Option("--strict", help="End with exit code 3 if the replay is not believed.")
    ] = False,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
    names: options.Names = None,
) -> None:
    """Rebuild every rank's step from its dependencies and compare with the measurement."""
    source, left_out = RunSource(paths, ranks, no_cache, workers, names), tuple(without or ())
    with activity() as doing:
        job = source.job(doing)
        doing.now("replaying, with null models beside")
        replayed = api.simulate(job, without=left_out)
        found = api.replay(job, without=left_out, steps=step)
        with written_together():
            if trace is not None:
                doing.now(f"writing {trace}")
                api.write_trace(trace, job, replayed)
            if report is not None:
                doing.now(f"writing {report}")
                api.write_report(report, job, replayed, replay=found, without=left_out)
    title = title_text(job, is_replayed=True)
    if left_out:
        title += f" without: {', '.join(one.value for one in left_out)}"
    Outputs(json, csv, parquet, table).tell(found, title=title, top=32, lacks=job.lacks)
    for path in (trace, report):
        if path is not None:
            typer.echo(f"wrote {path}", err=True)
    if strict and found.verdict.trust is Trust.DOUBTED:
        raise typer.Exit(DOUBTED)

"""`foretrace sensitivity`: what would help most, and what a change of one's own would do."""

from __future__ import annotations

from typing import Annotated

import typer

from foretrace import api
from foretrace.analyze import Effects
from foretrace.cli import options
from foretrace.cli.outputs import Outputs, title_text
from foretrace.cli.progress import activity
from foretrace.cli.source import Source

CHANGE = "Make this change, as in gemm=0.8 or 'gemm layers:0-3=0'; may be given again."


def sensitivity(
    paths: options.Paths,
    *,
    change: Annotated[list[str] | None, typer.Option(metavar="WORK=FACTOR", help=CHANGE)] = None,
    step: options.Step = None,
    rank: options.Rank = None,
    top: options.Top = 8,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    table: options.TableName = None,
    blocks_file: options.BlocksFile = None,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
) -> None:
    """Say what would shorten the step most, by simulating it."""
    source, outputs = Source(paths, ranks, no_cache, workers), Outputs(json, csv, parquet, table)
    with activity() as doing:
        job = source.job(doing, blocks=blocks_file)
        doing.now("simulating with each thing faster")
        timeline = api.simulate(job)
        if change:
            effects = Effects.of(
                [api.effect(timeline, one, step=step, rank=rank) for one in change],
                api.effect(timeline, change, step=step, rank=rank),
            )
        else:
            found = api.sensitivity(timeline, step=step, rank=rank)
            advice = api.what_helps(found, top=top)

    title = title_text(job, is_replayed=True)
    if change:
        outputs.tell(effects, title=title, top=top)
    else:
        outputs.tell(found, title=title, top=top, parts=(*advice.parts(), *found.parts()))

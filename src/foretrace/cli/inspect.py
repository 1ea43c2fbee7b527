"""`foretrace inspect`: what profiler files contain, and what they lack for a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.cli import options
from foretrace.cli.outputs import Outputs, title_text
from foretrace.cli.progress import activity
from foretrace.cli.settings import cache_folder
from foretrace.cli.source import RunSource, read_from
from foretrace.graph import BlocksWithEvidence

_MOST_FILES = 24  # more rows scroll the summary off the screen


def inspect(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILES...", help="Profiler files: files, globs or folders."),
    ],
    *,
    blocks: Annotated[
        bool, typer.Option("--blocks", help="Of one run: its layers, phases and other blocks.")
    ] = False,
    blocks_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml", dir_okay=False, help="What corrects the blocks: docs/blocks.md."
        ),
    ] = None,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    table: options.TableName = None,
    no_cache: options.NoCache = False,
) -> None:
    """Say what profiler files contain, what they lack, and how to record better ones."""
    if blocks_file is not None and not blocks:
        raise typer.BadParameter("--blocks-file has no effect without --blocks")
    if blocks:
        source = RunSource(paths, None, no_cache, None)
        with activity() as doing:
            job = source.job(doing, blocks=blocks_file)
            notes = tuple(one.text for one in job.findings if one.topic == "blocks")
            blocks_found = BlocksWithEvidence(api.blocks(job), job.recording.block_evidence, notes)
        title = title_text(job, is_replayed=False)
        Outputs(json, csv, parquet, table).tell(blocks_found, title=title, top=64, lacks=job.lacks)
        return
    with activity() as doing:
        doing.now("reading traces")
        with read_from(paths) as files:
            found = api.inspect(
                files, cache=False if no_cache else cache_folder(), progress=doing.advance
            )
    Outputs(json, csv, parquet, table).tell(found, top=_MOST_FILES)

"""`foretrace inspect`: what profiler files contain, and what they lack for a replay."""

from __future__ import annotations

from typing import Annotated

import typer

from foretrace import api
from foretrace.cli import options
from foretrace.cli.outputs import Outputs, title_text
from foretrace.cli.progress import activity
from foretrace.cli.settings import cache_folder
from foretrace.cli.source import Reading, read_from
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
    blocks_file: options.BlocksFile = None,
    outputs: Outputs,
    no_cache: options.NoCache = False,
) -> None:
    """Say what profiler files contain, what they lack, and how to record better ones."""
    if blocks_file is not None and not blocks:
        raise typer.BadParameter("--blocks-file has no effect without --blocks")
    if blocks:
        reading = Reading(blocks_file=blocks_file, no_cache=no_cache)
        with activity() as doing:
            job = reading.job(paths, doing)
            notes = tuple(one.text for one in job.findings if one.topic == "blocks")
            blocks_found = BlocksWithEvidence(api.blocks(job), job.recording.block_evidence, notes)
        title = title_text(job, is_replayed=False)
        outputs.tell(blocks_found, title=title, top=64, lacks=job.lacks)
        return
    with activity() as doing:
        doing.now("reading traces")
        with read_from(paths) as files:
            found = api.inspect(
                files, cache=False if no_cache else cache_folder(), progress=doing.advance
            )
    outputs.tell(found, top=_MOST_FILES)

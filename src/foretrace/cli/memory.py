"""`foretrace memory`: memory in use over the step, its peak, and what holds it then."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foretrace import api
from foretrace.analyze import Holder, MemoryPlace, MemoryUse
from foretrace.answer import bytes_text
from foretrace.api import Job
from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.source import Source
from foretrace.cli.tables import (
    name_text,
    plain_table,
    print_section,
    print_sentences,
    print_title,
)

RECORD = (
    "the traces hold no memory events: record with foretrace.record(memory=True) or with "
    "profile_memory=True, or give an allocator snapshot with --snapshot"
)


def memory(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...", help="Profiler files of the run's ranks: files, globs or folders."
        ),
    ] = None,
    *,
    snapshot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Read this file of torch.cuda.memory._dump_snapshot instead of traces.",
        ),
    ] = None,
    step: options.Step = None,
    top: options.Top = 5,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
) -> None:
    """Show memory in use over a step, its peak, what holds it."""
    if (not paths) == (snapshot is None):
        raise typer.BadParameter("give either PATH or --snapshot FILE")
    if snapshot is not None and (step is not None or ranks is not None):
        raise typer.BadParameter("a snapshot has no steps and no ranks")
    job: Job | None = None
    with activity() as doing:
        if snapshot is None:
            job = Source(paths or [], ranks, no_cache, workers).job(doing)
            doing.now("adding allocations up")
            found = api.memory(job, step=step)
        else:
            doing.now(f"reading {snapshot}")
            found = api.memory(snapshot)

    def show() -> None:
        console = Console(highlight=False)
        if job is not None:
            print_title(console, job, is_replayed=False)
        print_memory(console, found, top)

    Outputs(json, csv, parquet).give(found, show)


def print_memory(console: Console, found: MemoryUse, top: int) -> None:
    """Print every memory, and what holds most of the fullest."""
    if not found.places:
        print_sentences(console, "nothing to show", [RECORD])
        return
    table = plain_table(
        found.step_name or "over all", "begin", "peak", "end", "reserved", "at the peak",
        text_columns=(0, 5),
    )  # fmt: skip
    for one in found.places:
        table.add_row(
            one.label,
            *map(bytes_text, (one.begin_bytes, one.peak_bytes, one.end_bytes)),
            bytes_text(one.peak_reserved_bytes),
            name_text(" ".join(filter(None, (one.peak.block, one.peak.operator))), 24),
        )
    print_section(console, "", table)
    fullest = max(found.places, key=lambda one: one.peak_bytes)
    _print_holders(console, f"alive at the peak of {fullest.label}", fullest.alive_at_peak, top)
    _print_holders(console, f"asked for most on {fullest.label}", fullest.allocated_by, top)
    print_sentences(console, "to know", _notes(found.places))


def _print_holders(console: Console, title: str, holders: tuple[Holder, ...], top: int) -> None:
    table = plain_table(title, "allocations", "bytes")
    for one in holders[:top]:
        table.add_row(
            name_text(one.what or "not known"),
            f"{one.num_allocations:,}",
            bytes_text(one.num_bytes),
        )
    print_section(console, "", table)


def _notes(places: tuple[MemoryPlace, ...]) -> list[str]:
    relative = [one.label for one in places if one.is_relative]
    if not relative:
        return []
    return [f"totals were not recorded of {', '.join(relative)}: bytes count from the least in use"]

"""`foretrace critical-path`: the chain of work and waiting that makes the step as long as it is."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from foretrace import api
from foretrace.analyze import NO_BLOCK, CriticalPath, PathShare
from foretrace.answer import count_text, milliseconds_text
from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.source import Source, timeline_of
from foretrace.cli.tables import name_text, plain_table, print_section, print_title, share_text


def critical_path(
    paths: options.Paths,
    *,
    step: options.Step = None,
    rank: options.Rank = None,
    replayed: options.Replayed = True,
    top: options.Top = 12,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    blocks_file: options.BlocksFile = None,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
) -> None:
    """Show what a step's length is the sum of, over all ranks."""
    source = Source(paths, ranks, no_cache, workers)
    with activity() as doing:
        job = source.job(doing, blocks=blocks_file)
        timeline = timeline_of(job, doing, is_replayed=replayed)
        doing.now("following the critical path")
        found = api.critical_path(timeline, step=step, rank=rank)

    def show() -> None:
        console = Console(highlight=False)
        print_title(console, job, is_replayed=replayed)
        print_path(console, found, top)

    Outputs(json, csv, parquet).give(found, show)


def print_path(console: Console, found: CriticalPath, top: int) -> None:
    """Print where the time on the path went, under several labels."""
    whose = "" if found.span.rank is None else f" of rank {found.span.rank}"
    pieces = count_text(len(found), "piece")
    console.print(
        Text.assemble(
            f"{found.span.step_name}{whose}: ",
            (f"{milliseconds_text(found.step_ns)} ms", "bold"),
            f" in {pieces} without a gap",
        )
    )
    views = {
        "by class": found.by_class(),
        "by rank": found.by_rank(),
        "by phase": found.by_phase(),
        "by block": found.by_block(),
        "by name": found.by_name(),
    }
    for title, shares in views.items():
        if len(shares) > 1 or shares[0].label != NO_BLOCK:
            _print_shares(console, title, shares, top)


def _print_shares(console: Console, title: str, shares: tuple[PathShare, ...], top: int) -> None:
    table = plain_table(title, "ms", "share", "pieces")
    for one in shares[:top]:
        table.add_row(
            name_text(one.label),
            milliseconds_text(one.time_ns),
            share_text(one.share),
            f"{one.num_pieces:,}",
        )
    if len(shares) > top:
        rest = shares[top:]
        table.add_row(
            Text(f"{len(rest):,} more", "dim"),
            milliseconds_text(sum(one.time_ns for one in rest)),
            share_text(sum(one.share for one in rest)),
            f"{sum(one.num_pieces for one in rest):,}",
        )
    print_section(console, "", table)

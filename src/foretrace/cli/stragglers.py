"""`foretrace stragglers`: who came last to collectives, how much others waited, and why."""

from __future__ import annotations

from rich.console import Console

from foretrace import api
from foretrace.analyze import UNRECORDED_RANK, RankBlame, Stragglers
from foretrace.answer import milliseconds_text
from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.source import Source, timeline_of
from foretrace.cli.tables import (
    name_text,
    plain_table,
    print_section,
    print_sentences,
    print_title,
)


def stragglers(
    paths: options.Paths,
    *,
    replayed: options.Replayed = False,
    top: options.Top = 8,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
) -> None:
    """Say which ranks others waited for, how long, and why."""
    source = Source(paths, ranks, no_cache, workers)
    with activity() as doing:
        job = source.job(doing)
        timeline = timeline_of(job, doing, is_replayed=replayed)
        doing.now("following each wait to where it began")
        found = api.stragglers(timeline)

    def show() -> None:
        console = Console(highlight=False)
        print_title(console, job, is_replayed=replayed)
        print_stragglers(console, found, top)

    Outputs(json, csv, parquet).give(found, show)


def print_stragglers(console: Console, found: Stragglers, top: int) -> None:
    """Print the ranks in words, then every rank and group."""
    if not found.waiting_ns_of_all:
        console.print("\nno rank waited for another that was recorded")
        return
    print_sentences(console, "who is waited for", found.sentences(min(top, 5)))
    heads = ("rank", "delays ms", "waits ms", "last", "expected", "why")
    table = plain_table(*heads, text_columns=(0, 5))
    for one in found.ranks[:top]:
        table.add_row(
            "unrecorded" if one.rank == UNRECORDED_RANK else str(one.rank),
            milliseconds_text(one.blame_ns),
            milliseconds_text(one.own_wait_ns),
            f"{one.num_last} of {one.num_collectives}",
            f"{one.expected_last:.1f}",
            _why(one),
            style="bold" if one.is_systematic else "",
        )
    print_section(console, "", table)
    groups = plain_table("group", "ranks", "collectives", "waiting ms", "last most often")
    for group in found.groups[:top]:
        rank, count = next(iter(group.last_by_rank.items()), (UNRECORDED_RANK, 0))
        who = "a rank not recorded" if rank == UNRECORDED_RANK else f"rank {rank}"
        groups.add_row(
            name_text(group.group, 24),
            str(len(group.ranks)),
            f"{group.num_collectives:,}",
            milliseconds_text(group.waiting_ns),
            f"{who}, {count} times" if count else "",
        )
    if len(found.groups) > 1:
        print_section(console, "", groups)


def _why(one: RankBlame) -> str:
    if not one.causes:
        return ""
    first = one.causes[0]
    return (
        f"{first.cause.words}: {name_text(first.subject, 24)}"
        if first.subject
        else (first.cause.words)
    )

"""`foretrace idle`: why devices stood still or waited, every nanosecond with one cause."""

from __future__ import annotations

from rich.console import Console

from foretrace import api
from foretrace.analyze import IdleCauses, Stillness
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
    share_text,
)

_TITLES = {
    Stillness.IDLE: "idle: nothing ran",
    Stillness.WAITING: "waiting in collectives for other ranks",
}


def idle(
    paths: options.Paths,
    *,
    step: options.Step = None,
    replayed: options.Replayed = True,
    top: options.Top = 8,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
) -> None:
    """Say why devices stood still or waited, and who did it."""
    source = Source(paths, ranks, no_cache, workers)
    with activity() as doing:
        job = source.job(doing)
        timeline = timeline_of(job, doing, is_replayed=replayed)
        doing.now("asking each idle moment what it waited for")
        found = api.idle(timeline, step=step)

    def show() -> None:
        console = Console(highlight=False)
        print_title(console, job, is_replayed=replayed)
        print_idle(console, found, top)

    Outputs(json, csv, parquet).give(found, show)


def print_idle(console: Console, found: IdleCauses, top: int) -> None:
    """Print the longest losses in words, then causes and those responsible."""
    print_sentences(console, "what cost most", found.sentences(min(top, 5)))
    for kind, title in _TITLES.items():
        total_ns = max(found.total_ns(kind), 1)
        causes = plain_table(title, "ms, all ranks", "share")
        for cause, lost_ns in found.by_cause(kind).items():
            causes.add_row(cause.words, milliseconds_text(lost_ns), share_text(lost_ns / total_ns))
        print_section(console, "", causes)
        names = plain_table("who is responsible", "ms, all ranks", "share")
        for name, lost_ns in list(found.by_operator(kind).items())[:top]:
            names.add_row(
                name_text(name or "not known"),
                milliseconds_text(lost_ns),
                share_text(lost_ns / total_ns),
            )
        print_section(console, "", names)

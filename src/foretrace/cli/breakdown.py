"""`foretrace breakdown`: compute, overlapped, exposed communication and idle."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from foretrace import api
from foretrace.analyze import COMPONENTS, Breakdown, Parts
from foretrace.answer import component_text, milliseconds_text, percent_text
from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.source import Source, timeline_of
from foretrace.cli.tables import plain_table, print_title


def breakdown(
    paths: options.Paths,
    *,
    step: options.Step = None,
    replayed: options.Replayed = False,
    top: options.Top = 32,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
) -> None:
    """Split steps into compute, overlap, communication and idle."""
    source = Source(paths, ranks, no_cache, workers)
    with activity() as doing:
        job = source.job(doing)
        found = api.breakdown(timeline_of(job, doing, is_replayed=replayed))
    if step is not None:
        found = found.only(api.step_name(step) or "")

    def show() -> None:
        console = Console(highlight=False)
        print_title(console, job, is_replayed=replayed)
        print_breakdown(console, found, top)

    Outputs(json, csv, parquet).give(found, show)


def print_breakdown(console: Console, found: Breakdown, top: int) -> None:
    """Print the steps of the ranks, and all of them together."""
    table = plain_table("step", "rank", "step ms", *map(_head, COMPONENTS))
    for row in found.rows[:top]:
        parts = (milliseconds_text(ns) for ns in row.parts.as_json().values())
        table.add_row(row.step_name, str(row.rank), milliseconds_text(row.step_ns), *parts)
    if len(found.rows) > top:
        table.add_row(Text(f"and {len(found.rows) - top:,} more", "dim"))
    table.add_row("all", "", "", *_shares(found.overall), style="bold")
    console.print(table)


def _head(component: str) -> str:
    return component_text(component).replace("communication", "comm.")


def _shares(parts: Parts) -> list[str]:
    whole_ns = max(parts.total_ns, 1)
    return [percent_text(100 * ns / whole_ns) for ns in parts.as_json().values()]

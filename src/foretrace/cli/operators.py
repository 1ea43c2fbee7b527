"""`foretrace operators`: what device time is made of, and how near it comes to the chip's peak."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from foretrace import api
from foretrace.analyze import AttentionProfile, OperatorRow, OperatorTable, Roofline, shapes_text
from foretrace.answer import milliseconds_text
from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.source import Source, timeline_of
from foretrace.cli.tables import (
    name_text,
    plain_table,
    print_section,
    print_title,
    share_text,
)

_OPERATOR_WIDTH = 34  # with its shapes
_MANY_UNRECOGNISED = 0.05  # of device time, from which the names are shown


class By(StrEnum):
    """What rows are added up by."""

    CLASS = "class"
    FAMILY = "family"
    OPERATOR = "operator"


def operators(
    paths: options.Paths,
    *,
    by: Annotated[
        By, typer.Option(help="Add device time up by operator class, kernel family or operator.")
    ] = By.CLASS,
    attention: Annotated[
        bool, typer.Option("--attention", help="Show sequence lengths of attention instead.")
    ] = False,
    step: options.Step = None,
    replayed: options.Replayed = False,
    top: options.Top = 16,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
) -> None:
    """Say what device time is made of, and how near its peak."""
    source, outputs = Source(paths, ranks, no_cache, workers), Outputs(json, csv, parquet)
    console = Console(highlight=False)
    with activity() as doing:
        job = source.job(doing)
        timeline = timeline_of(job, doing, is_replayed=replayed)
        doing.now("counting operators")
        if attention:
            profile = api.attention(timeline, step=step)
        else:
            found = api.operators(timeline, step=step)
            points = api.roofline(job, found)
    if attention:
        outputs.give(profile, lambda: print_attention(console, profile, top))
        return

    def show() -> None:
        print_title(console, job, is_replayed=replayed)
        print_operators(console, found, by, top)
        print_roofline(console, points, top)

    outputs.give(found, show)


def print_operators(console: Console, found: OperatorTable, by: By, top: int) -> None:
    """Print device time by class, family or operator."""
    rows = found.by(by.value)
    table = plain_table(f"device time by {by.value}", "ms", "share", "kernels", "TFLOP/s", "GB/s")
    for row in rows[:top]:
        table.add_row(
            name_text(_title(row, by)),
            milliseconds_text(row.time_ns),
            share_text(row.share),
            f"{row.num_kernels:,}",
            "" if row.flops_per_ns is None else f"{row.flops_per_ns / 1_000:,.1f}",
            "" if row.bytes_per_ns is None else f"{row.bytes_per_ns:,.0f}",
        )
    if len(rows) > top:
        rest = rows[top:]
        table.add_row(
            Text(f"{len(rest):,} more", "dim"),
            milliseconds_text(sum(row.time_ns for row in rest)),
            share_text(sum(row.share for row in rest)),
            f"{sum(row.num_kernels for row in rest):,}",
        )
    whole = milliseconds_text(found.time_ns)
    console.print(f"{found.step_name or 'the whole recording'}: {whole} ms on all ranks")
    print_section(console, "", table)
    lost = found.unrecognised
    console.print(f"\nnames not recognised: {share_text(lost.share)} of device time")
    if lost.share >= _MANY_UNRECOGNISED:
        for name, time_ns in lost.names[:top]:
            console.print(f"  {milliseconds_text(time_ns):>10} ms  {name_text(name, 60)}")


def print_roofline(console: Console, found: Roofline, top: int) -> None:
    """Print how near the longest operators come to their chip's limits."""
    chip = found.chip_name or "chip not known: no shares"
    table = plain_table("", "ms", "TFLOP/s", "GB/s", "of limit", "bound by", text_columns=(0, 5))
    for point in found.points[:top]:
        table.add_row(
            name_text(f"{point.operator} {shapes_text(point.signature)}", _OPERATOR_WIDTH),
            milliseconds_text(point.time_ns),
            f"{point.flops_per_ns / 1_000:,.1f}",
            "" if point.bytes_per_ns is None else f"{point.bytes_per_ns:,.0f}",
            "" if point.share is None else share_text(point.share),
            f"{point.bound} {point.dtype}".strip(),
        )
    covered = f"{share_text(found.covered)} of the time without communication has shapes"
    print_section(console, f"roofline: {chip}; {covered}", table)


def print_attention(console: Console, found: AttentionProfile, top: int) -> None:
    """Print the sequence lengths of attention."""
    if not len(found):
        console.print("no attention whose shapes are recorded: record with shapes")
        return
    console.print(
        f"{found.step_name or 'the whole recording'}: {len(found):,} calls of attention, "
        f"{share_text(found.share)} of the time of all kernels"
    )
    table = plain_table("queries", "keys", "pass", "how", "calls", "ms", text_columns=(2, 3))
    for row in found.by_length().head(top).iter_rows(named=True):
        table.add_row(
            f"{row['query_length']:,}",
            f"{row['kv_length']:,}",
            "backward" if row["is_backward"] else "forward",
            "fused" if row["is_fused"] else "softmax of scores",
            f"{row['num_calls']:,}",
            milliseconds_text(row["time_ns"]),
        )
    print_section(console, "", table)


def _title(row: OperatorRow, by: By) -> str:
    if by is By.CLASS:
        return row.kind
    own = row.family if by is By.FAMILY else row.operator
    return f"{row.kind}: {own or 'not known'}" if own != row.kind else row.kind

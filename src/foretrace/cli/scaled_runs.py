"""`foretrace validate neighbours` and `lumos`: published runs predicted from other runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.tables import plain_table, print_section, print_sentences, share_text
from foretrace.validate import (
    DimensionErrors,
    LumosReport,
    NeighboursReport,
    lumos_report,
    neighbours_report,
    read_runs,
)

_MOST_REASONS = 5


def neighbours(
    *,
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE.csv",
            exists=True,
            dir_okay=False,
            help="Runs that others measured, one a row: docs/accuracy.md lists the columns.",
        ),
    ],
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
) -> None:
    """Predict each published run from runs that differ from it in one thing."""
    published = read_runs(data)
    with activity() as doing:
        doing.now("estimating runs")
        report = neighbours_report(published, progress=doing.advance)
    console = Console(highlight=False)
    Outputs(json, csv, parquet).give(report, lambda: _print_neighbours(console, report))


def lumos(
    *,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
) -> None:
    """Predict eight scalings of figure 7 of the Lumos paper from a ninth."""
    with activity() as doing:
        doing.now("fitting two constants")
        report = lumos_report(progress=doing.advance)
    console = Console(highlight=False)
    Outputs(json, csv, parquet).give(report, lambda: _print_lumos(console, report))


def _print_neighbours(console: Console, report: NeighboursReport) -> None:
    overall = report.overall
    if overall is None:
        console.print("no two runs of this table differ in one thing only: nothing to predict")
        return
    table = plain_table(
        "differ in", "pairs", "neighbour", "plain ratio", "scratch", "FLOPs", "nearer", "in"
    )
    for one in (*report.dimensions, overall):
        table.add_row(one.dimension, f"{one.num_pairs:,}", *_shares(one))
    title = f"{report.num_runs} runs, each predicted from runs that differ in one thing"
    print_section(console, title, table)
    print_sentences(console, "left out", report.refused[:_MOST_REASONS])
    print_sentences(
        console,
        "how to read it",
        (
            "mean absolute errors, in percent of the measured step time",
            "neighbour: its measured time, scaled by two estimates and the likeliest launch time",
            "plain ratio: its measured time times the ratio of the estimates",
            "scratch: the estimate alone; FLOPs: measured time times the ratio of FLOPs per GPU",
            "nearer: pairs where the neighbour beats scratch",
            "in: measured times in their 80% interval; mean: every line counts alike",
        ),
    )


def _shares(one: DimensionErrors) -> tuple[str, ...]:
    shares = (one.predicted, one.ratio, one.scratch, one.flops, one.wins, one.inside)
    return tuple(share_text(each) for each in shares)


def _print_lumos(console: Console, report: LumosReport) -> None:
    table = plain_table("TPxPPxDP", "measured ms", "predicted ms", "error", "Lumos ms", "error")
    for row in (report.teacher, *report.rows):
        table.add_row(
            row.figure.name + (" ?" if row.figure.is_label_doubtful else ""),
            f"{row.figure.measured.total:,.0f}",
            f"{row.predicted.total:,.0f}",
            "taught" if row is report.teacher else _signed(row.error),
            f"{row.figure.lumos.total:,.0f}",
            _signed(row.lumos_error),
        )
    print_section(console, "GPT-3 15B on H100 (Lumos, figure 7)", table)
    parts = plain_table("ms", *("run", "here", "Lumos") * 4)
    for row in (report.teacher, *report.rows):
        sides = (row.figure.measured, row.predicted, row.figure.lumos)
        names = ("exposed_compute", "overlapped", "exposed_communication", "other")
        cells = (f"{getattr(side, name):,.0f}" for name in names for side in sides)
        parts.add_row(row.figure.name, *cells)
    print_section(console, "compute alone, overlapped, communication alone, neither", parts)
    swapped = report.swapped_mean_error
    taught = f"kernels x {report.kernels:.2f} and communication x {report.network:.2f}"
    print_sentences(
        console,
        "in short",
        (
            f"mean error of the eight: {share_text(report.mean_error)}",
            f"the same with the last two labels (?) swapped: {share_text(swapped)}",
            f"Lumos' own: {share_text(report.lumos_mean_error)}; it begins with a trace at 2x2x4",
            f"the first row taught {taught}",
        ),
    )


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"

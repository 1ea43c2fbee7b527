"""`foretrace validate neighbours` and `lumos`: published runs predicted from other runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foretrace.cli import options
from foretrace.cli.descriptions import Description, Table, described_runs, experiment
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.tables import plain_table, print_section, print_sentences, share_text
from foretrace.validate import (
    DimensionErrors,
    NeighboursReport,
    ScalingsReport,
    neighbours_report,
    read_scalings,
    scalings_report,
)

_MOST_REASONS = 5


def neighbours(
    *,
    data: Table,
    description: Description = None,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
) -> None:
    """Predict each published run from runs that differ from it in one thing."""
    published = described_runs(data, description)
    with activity() as doing:
        doing.now("estimating runs")
        report = neighbours_report(published, progress=doing.advance)
    console = Console(highlight=False)
    Outputs(json, csv, parquet).give(report, lambda: _print_neighbours(console, report))


def lumos(
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            exists=True,
            dir_okay=False,
            help="The figure: scalings, as measured and as predicted by its authors. Default: "
            "lumos.toml of the repository's experiments/.",
        ),
    ] = None,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
) -> None:
    """Predict eight scalings of figure 7 of the Lumos paper from a ninth."""
    figure = read_scalings(data or experiment("lumos.toml", "--data"))
    with activity() as doing:
        doing.now("fitting two constants")
        report = scalings_report(figure, progress=doing.advance)
    console = Console(highlight=False)
    Outputs(json, csv, parquet).give(report, lambda: _print_scalings(console, report))


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


def _print_scalings(console: Console, report: ScalingsReport) -> None:
    figure, rival = report.figure, report.figure.rival
    table = plain_table("TPxPPxDP", "measured ms", "predicted ms", "error", f"{rival} ms", "error")
    for row in (report.teacher, *report.rows):
        table.add_row(
            row.scaling.name + (" ?" if row.scaling.is_label_doubtful else ""),
            f"{row.scaling.measured.total:,.0f}",
            f"{row.predicted.total:,.0f}",
            "taught" if row is report.teacher else _signed(row.error),
            f"{row.scaling.rival.total:,.0f}",
            _signed(row.rival_error),
        )
    print_section(console, figure.title, table)
    parts = plain_table("ms", *("run", "here", rival) * 4)
    for row in (report.teacher, *report.rows):
        sides = (row.scaling.measured, row.predicted, row.scaling.rival)
        names = ("exposed_compute", "overlapped", "exposed_communication", "other")
        cells = (f"{getattr(side, name):,.0f}" for name in names for side in sides)
        parts.add_row(row.scaling.name, *cells)
    print_section(console, "compute alone, overlapped, communication alone, neither", parts)
    swapped = report.swapped_mean_error
    taught = f"kernels x {report.kernels:.2f} and communication x {report.network:.2f}"
    rivals = f"{rival}' own: {share_text(report.rival_mean_error)}"
    print_sentences(
        console,
        "in short",
        (
            f"mean error of the others: {share_text(report.mean_error)}",
            f"the same with labels in doubt (?) swapped: {share_text(swapped)}",
            f"{rivals}; {figure.rival_note}" if figure.rival_note else rivals,
            f"the first row taught {taught}",
        ),
    )


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"

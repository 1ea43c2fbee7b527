"""`foretrace validate`: predictions held against what others measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from foretrace.base import written_beside
from foretrace.cli import options
from foretrace.cli.descriptions import Description, Table, described_runs
from foretrace.cli.live import live
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.scaled_runs import lumos, neighbours
from foretrace.report import cost_plot, standalone_html
from foretrace.validate import cost_errors, left_out_errors, run_points, runs_report

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_FEW_RUNS = 50  # that one process predicts before others have started
app.command()(live)
app.command()(neighbours)
app.command()(lumos)


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Hold predictions against measurements."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def cost(
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Test the shipped constants on this folder of tables: docs/cost/calibrate.md.",
        ),
    ] = None,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
) -> None:
    """Say how far predicted kernel times are off, by family, GPU and region.

    Without a folder: on the measurements that were left out of the fits of the shipped constants.
    """
    errors = left_out_errors() if data is None else cost_errors(data)
    Outputs(json, csv, parquet).tell(errors, top=max(16, len(errors.rows)))


@app.command()
def runs(
    *,
    data: Table,
    description: Description = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Draw predicted against measured times: .svg or .html.",
        ),
    ] = None,
    top: options.Top = 10,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Processes that predict at once. Default: what suits."
        ),
    ] = None,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
) -> None:
    """Predict published runs from their configuration, and say how far off that is."""
    published = described_runs(data, description)
    with activity() as doing:
        doing.now("predicting runs")
        workers = workers or (os.cpu_count() or 1 if len(published) > _FEW_RUNS else 1)
        report = runs_report(published, workers=workers, progress=doing.advance)
    Outputs(json, csv, parquet).tell(report, top=None, parts=report.told(top))
    if plot is not None:
        drawn = cost_plot(run_points(report))
        is_html = plot.suffix.lower() in {".html", ".htm"}
        with written_beside(plot) as beside:
            beside.write_text(standalone_html(drawn) if is_html else drawn, encoding="utf-8")
        typer.echo(f"wrote {plot}", err=True)

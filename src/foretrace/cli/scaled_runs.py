"""`foretrace validate neighbours` and `lumos`: published runs predicted from other runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli import options
from foretrace.cli.descriptions import Description, Table, described_runs, experiment
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.validate import (
    neighbours_report,
    read_scalings,
    scalings_report,
)


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
    Outputs(json, csv, parquet).tell(report, top=None)


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
    Outputs(json, csv, parquet).tell(report, top=None)

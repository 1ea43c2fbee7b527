"""`foretrace validate`: predictions held against what others measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foretrace.cli import options
from foretrace.cli.cost_table import print_errors
from foretrace.cli.outputs import Outputs
from foretrace.validate import cost_errors, left_out_errors

app = typer.Typer(rich_markup_mode=None)


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
    console = Console(highlight=False)
    Outputs(json, csv, parquet).give(errors, lambda: print_errors(console, errors))

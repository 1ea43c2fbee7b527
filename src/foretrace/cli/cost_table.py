"""Errors of the cost models as tables of at most 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from foretrace.cli.tables import name_text, plain_table, print_section, print_sentences
from foretrace.cost import LeftOut, tables_without_model
from foretrace.validate import CostErrors

_GPU_WIDTH = 14
_MAKERS = ("NVIDIA ", "Tesla ", "AMD ")  # left out of names: they cost width


def say_unused_tables(folder: Path) -> None:
    """Name on stderr the tables of a folder that no model predicts."""
    kinds = Counter(path.name.rpartition("-")[0] for path in tables_without_model(folder))
    if kinds:
        named = ", ".join(f"{count} {kind}-*.parquet" for kind, count in kinds.items())
        typer.echo(f"not used, as no model predicts their rows: {named}", err=True)


def print_errors(console: Console, errors: CostErrors) -> None:
    """Print one row per family, GPU, number format and region; errors in percent."""
    by_basis: dict[str, list[LeftOut]] = {}
    for one in errors.rows:
        by_basis.setdefault(one.fitted_on.partition(":")[0], []).append(one)
    for basis, rows in by_basis.items():
        print_section(console, f"predicted from: {basis}", _table(rows))
    print_sentences(
        console,
        "how to read it",
        (
            "errors in percent of the measured time: mean and median of their sizes",
            "roof: mean error of the data sheet's peaks alone",
            "line: mean error of a line through FLOPs and bytes, fitted to the same rows",
        ),
    )


def _table(rows: Sequence[LeftOut]) -> Table:
    heads = ("", "GPU", "region", "rows", "mean", "median", "roof", "line")
    table = plain_table(*heads, text_columns=(0, 1, 2))
    for one in rows:
        errors = one.errors
        table.add_row(
            f"{one.family} {one.dtype}",
            name_text(_plain(one.gpu), _GPU_WIDTH),
            errors.region.replace("below_", "<").replace("from_", ">="),
            str(errors.n),
            _percent(errors.mean_abs_error),
            _percent(errors.median_abs_error),
            _percent(errors.roofline_mean_abs_error),
            _percent(errors.linear_mean_abs_error),
        )
    return table


def _plain(gpu: str) -> str:
    for maker in _MAKERS:
        gpu = gpu.removeprefix(maker)
    return gpu


def _percent(share: float) -> str:
    return f"{100 * share:.1f}" if share < 1 else f"{100 * share:.0f}"

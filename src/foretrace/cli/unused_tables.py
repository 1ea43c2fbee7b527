"""Measured tables of a folder that no cost model predicts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import typer

from foretrace.cost import tables_without_model


def say_unused_tables(folder: Path) -> None:
    """Name on stderr the tables of a folder that no model predicts."""
    kinds = Counter(path.name.rpartition("-")[0] for path in tables_without_model(folder))
    if kinds:
        named = ", ".join(f"{count} {kind}-*.parquet" for kind, count in kinds.items())
        typer.echo(f"not used, as no model predicts their rows: {named}", err=True)

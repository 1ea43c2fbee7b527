"""`foretrace measure`: how fast this device is, as tables that `foretrace calibrate` reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from foretrace.base import written_beside
from foretrace.capture import FAMILIES, Row, device_of, measured_collectives, measured_rows
from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.tables import plain_table, print_section

if TYPE_CHECKING:
    import polars as pl

COLLECTIVES = "collectives"


def measure(
    *,
    seconds: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Time to take, about.")
    ] = 60.0,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FAMILY", help="gemm, attention, movement or collectives; may be repeated."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="cuda or cpu. Default: a GPU if any.")
    ] = None,
    ranks: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Processes to measure collectives between; 1: none."),
    ] = 1,
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Where to write the tables.")
    ] = Path("measured"),
    json: options.AsJson = False,
) -> None:
    """Measure products, attention, movements and collectives; write tables to calibrate with."""
    known = device_of(device)
    wanted = tuple(dict.fromkeys(only or _usual(ranks)))
    kernels = [family for family in wanted if family != COLLECTIVES]
    share = seconds / len(wanted)
    found: dict[str, list[Row]] = {}
    with activity() as doing:
        if kernels:
            doing.now(f"measuring {known.name}")
            found |= measured_rows(
                known, families=kernels, seconds=share * len(kernels), progress=doing.advance
            )
        if COLLECTIVES in wanted:
            doing.now(f"measuring collectives between {ranks} ranks")
            found[COLLECTIVES] = measured_collectives(known, ranks, seconds=share)
    tables = tuple(_written(family, rows, known.name, folder=out) for family, rows in found.items())
    written = _Written(known.name, tables)
    Outputs(json).give(written, lambda: _print(written))


@dataclass(frozen=True)
class _Written:
    """The tables that were written."""

    device: str
    tables: tuple[dict[str, object], ...]

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {"device": self.device, "tables": list(self.tables)}

    def to_frame(self) -> pl.DataFrame:
        """One row per table."""
        import polars as pl  # on demand: it takes longer to import than most commands take

        return pl.DataFrame(list(self.tables))


def _usual(ranks: int) -> tuple[str, ...]:
    return (*FAMILIES, COLLECTIVES) if ranks > 1 else FAMILIES


def _written(family: str, rows: list[Row], device: str, *, folder: Path) -> dict[str, object]:
    import polars as pl  # on demand, as above

    folder.mkdir(parents=True, exist_ok=True)
    label = re.sub(r"[^a-z0-9]+", "-", device.casefold()).strip("-")
    path = folder / f"{family}-{label}.parquet"
    with written_beside(path) as beside:
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(beside)
    return {"family": family, "rows": len(rows), "file": str(path)}


def _print(written: _Written) -> None:
    console = Console(highlight=False)
    console.print(written.device, style="bold")
    table = plain_table("measured", "rows", "table", text_columns=(0, 2))
    for one in written.tables:
        table.add_row(*(str(one[key]) for key in ("family", "rows", "file")))
    print_section(console, "", table)
    console.print("\nfit the cost models to it with: foretrace calibrate --table DIR")

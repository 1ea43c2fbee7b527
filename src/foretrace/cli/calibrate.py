"""`foretrace calibrate`: constants of the cost models from measurements of your own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.analyze import chip_of
from foretrace.base import MachineError, ModelError, write_whole
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import ProgressLine, activity
from foretrace.cli.settings import cache_folder, machine_folders
from foretrace.cost import (
    Constants,
    Measured,
    calibrated,
    calibrated_collectives,
    joined,
    read_tables,
    shipped_constants,
    write_constants,
)
from foretrace.machine import Chip, load_chip
from foretrace.report import cost_plot
from foretrace.validate import cost_points, left_out_errors, measured_calls


def calibrate(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH", help="Recordings to learn from; each is one run: a file or folder."
        ),
    ] = None,
    *,
    table: Annotated[
        Path | None,
        option(
            "DIR",
            "Learn from the tables of measurements in here: docs/cost/calibrate.md.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    chip: Annotated[
        str | None,
        option(
            "NAME", "What recordings, and GPUs unknown by name, ran on. Default: what they name."
        ),
    ] = None,
    out: Annotated[
        Path, option("DIR", "Where to write the constants.", *options.OUT, file_okay=False)
    ] = Path("constants"),
    plot: Annotated[
        Path | None, option("OUT.svg", "Draw predicted beside measured times.", dir_okay=False)
    ] = None,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
) -> None:
    """Fit the cost models to measurements, and say the error on what was left out."""
    if not paths and table is None:
        raise ModelError("there is nothing to learn from: name recordings, or a table with --table")
    made = datetime.now(UTC).date().isoformat()
    with activity() as doing:
        doing.now("fitting tables")
        named = None if chip is None else load_chip(chip, machine_folders())
        measured = [] if table is None else list(read_tables(table, chip=named))
        found = calibrated(measured, made) if measured else ()
        if paths:
            known = joined(found, shipped_constants())
            recorded = _recorded(paths, chip, known, doing)
            doing.now("fitting recordings")
            found = joined(found, calibrated(recorded, made, near=found or known))
            measured += recorded
        doing.now("fitting collectives")
        networks = calibrated_collectives(table, made) if table is not None else ()
    if not any(one.fits for one in (*found, *networks)):
        raise ModelError(
            "nothing was learnt: there are too few operations with known shapes; record with "
            "shapes (`record_shapes=True`), or name a larger table."
        )
    out.mkdir(parents=True, exist_ok=True)
    for kind, files in (("kernels", found), ("collectives", networks)):
        for one in files:
            write_constants(one, out / f"{kind}-{one.chip}.toml")
    typer.echo(f"wrote {len(found) + len(networks)} files to {out}", err=True)
    if plot is not None:
        write_whole(plot, cost_plot(cost_points(measured, found)))
    errors = left_out_errors((*found, *networks))
    outputs = Outputs(json=json, csv=csv, parquet=parquet)  # a table is what it learns from
    outputs.tell(errors, top=max(16, len(errors.rows)))


def _recorded(
    paths: list[str], chip: str | None, constants: tuple[Constants, ...], doing: ProgressLine
) -> list[Measured]:
    measured: list[Measured] = []
    for path in paths:
        doing.now(f"reading {path}")
        job = api.load([path], cache=cache_folder(), progress=doing.advance)
        devices = {name for meta in job.metas for name in meta.device_names}
        measured += measured_calls(job.measured, _chip(chip, devices, path), constants)
    return measured


def _chip(name: str | None, devices: set[str], path: str) -> Chip:
    found = load_chip(name, machine_folders()) if name is not None else chip_of(devices)
    if found is None:
        called = ", ".join(sorted(devices)) or "no device"
        raise MachineError(
            f"{path!r} names {called}, which is no chip that is described: say which one it is "
            "with --chip; `foretrace machine list` names them."
        )
    return found

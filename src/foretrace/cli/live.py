"""`foretrace validate live`: what-ifs predicted from one recording, then run and timed here."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from foretrace.capture import device_of
from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import Activity, activity
from foretrace.validate import LiveReport, live_report, measure_live


def live(
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            help="Keep recordings and timed steps here, and go on with what is missing.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="Run nothing: predict again for what an earlier --out holds.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="How often each configuration is run.")
    ] = 5,
    steps: Annotated[
        int, typer.Option(min=3, metavar="N", help="Steps to time in each of these runs.")
    ] = 12,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, metavar="SECONDS", help="Begin no further round after so long."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="cuda or cpu. Default: a GPU if any.")
    ] = None,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
) -> None:
    """Record a small training job here, predict it changed in many ways, then run them all."""
    if folder is not None and out is not None:
        raise typer.BadParameter("--from looks at a folder and --out makes one: give one of them.")
    with activity() as doing:
        if folder is not None:
            report = _report(folder, doing)
        else:
            with tempfile.TemporaryDirectory(prefix="foretrace-live-") as temporary:
                kept = out if out is not None else Path(temporary)
                measure_live(
                    kept,
                    device=device_of(device),
                    rounds=rounds,
                    steps=steps,
                    seconds=seconds,
                    progress=lambda what, done, total: _tell(doing, what, done, total),
                )
                report = _report(kept, doing)
    Outputs(json, csv, parquet).tell(report, top=None)
    if out is not None:
        typer.echo(f"kept {out}: foretrace validate live --from {out}", err=True)


def _report(folder: Path, doing: Activity) -> LiveReport:
    doing.now("predicting")
    return live_report(folder, progress=doing.advance)


def _tell(doing: Activity, what: str, done: int, total: int) -> None:
    doing.now(what)
    doing.advance(done, total)

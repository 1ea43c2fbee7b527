"""`foretrace validate`: predictions held against what others measured."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

import foretrace
from foretrace.base import SweepEngine, WorkloadError, write_whole
from foretrace.capture import device_of
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import ProgressLine, activity
from foretrace.report import cost_plot, standalone_html
from foretrace.validate import (
    LiveReport,
    PublishedRun,
    RunsDescription,
    cost_errors,
    left_out_errors,
    lessons,
    live_report,
    measure_live,
    neighbours_report,
    read_description,
    read_runs,
    read_scalings,
    run_points,
    runs_report,
    scalings_report,
    undescribed_software,
    unread_columns,
    unread_rows,
)

app = options.group("Hold predictions against measurements.")
_FEW_RUNS = 50  # that one process predicts before others have started

_FOLDER = "experiments"  # of a checkout; no wheel has it
Table: TypeAlias = Annotated[
    Path,
    option(
        "FILE.csv",
        "Runs that others measured, one a row: docs/accuracy.md lists the columns.",
        exists=True,
        dir_okay=False,
    ),
]
Tables: TypeAlias = Annotated[
    list[Path],
    option(
        "FILE.csv",
        "Runs that others measured, one a row: docs/accuracy.md lists the columns. May be "
        "given again.",
        exists=True,
        dir_okay=False,
    ),
]
Description: TypeAlias = Annotated[
    Path | None,
    option(
        "FILE.toml",
        "What the columns mean: docs/accuracy.md. Default: FILE.toml beside the table, else "
        "runs.toml of the repository's experiments/.",
        exists=True,
        dir_okay=False,
    ),
]


@app.command()
def cost(
    *,
    data: Annotated[
        Path | None,
        option(
            "DIR",
            "Test the shipped constants on this folder of tables: docs/cost/calibrate.md.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    outputs: Outputs,
) -> None:
    """Say how far predicted kernel times are off, by family, GPU and region.

    Without a folder: on the measurements that were left out of the fits of the shipped constants.
    """
    errors = left_out_errors() if data is None else cost_errors(data)
    outputs.tell(errors, top=max(16, len(errors.rows)))


@app.command()
def runs(
    *,
    data: Tables,
    description: Description = None,
    plot: Annotated[
        Path | None,
        option("FILE", "Draw predicted against measured times: .svg or .html.", dir_okay=False),
    ] = None,
    by_class: Annotated[
        bool,
        typer.Option(
            "--by-class",
            help="Predict twice more: with the class of each run's software known alone, and with "
            "nothing known of it.",
        ),
    ] = False,
    teach: Annotated[
        bool,
        typer.Option(
            "--teach", help="Print what each source teaches of software, as its files hold it."
        ),
    ] = False,
    top: options.Top = 10,
    workers: Annotated[
        int | None, option("N", "Processes that predict at once. Default: what suits.", min=1)
    ] = None,
    engine: options.WhichEngine = SweepEngine.PROCESSES,
    outputs: Outputs,
) -> None:
    """Predict published runs from their configuration, and say how far off that is."""
    published = tuple(run for path in data for run in described_runs(path, description))
    unread = tuple(
        why for path in data for why in unread_rows(path, _description_of(path, description))
    )
    with activity() as doing:
        doing.now("predicting runs")
        workers = workers or (os.cpu_count() or 1 if len(published) > _FEW_RUNS else 1)
        report = runs_report(
            published,
            by_class=by_class,
            unread=unread,
            workers=workers,
            engine=engine,
            progress=doing.advance,
        )
    if teach:
        for lesson in lessons(published, report.rows):
            typer.echo(f"# {lesson.family}\n{lesson.as_toml()}")
        return
    outputs.tell(report, top=None, parts=report.told(top))
    if plot is not None:
        drawn = cost_plot(run_points(report))
        is_html = plot.suffix.lower() in {".html", ".htm"}
        write_whole(plot, standalone_html(drawn) if is_html else drawn)
        typer.echo(f"wrote {plot}", err=True)


def described_runs(data: Path, description: Path | None) -> tuple[PublishedRun, ...]:
    """A table of runs with its description; warns of rows and software that it does not know.

    Raises:
        WorkloadError: if there is no description, or it or the table is wrong.
    """
    found = _description_of(data, description)
    runs = read_runs(data, found)
    skipped = (f"skipped: {each}" for each in unread_rows(data, found))
    idle = unread_columns(data, found)
    for sentence in (*skipped, *idle, *undescribed_software(runs)):
        typer.echo(f"warning: {sentence}", err=True)
    return runs


def _description_of(data: Path, description: Path | None) -> RunsDescription:
    beside = data.with_suffix(".toml")
    path = description or (beside if beside.is_file() else experiment("runs.toml", "--description"))
    return read_description(path)


def experiment(name: str, option: str) -> Path:
    """A file of the checkout's experiments.

    Raises:
        WorkloadError: if this is no checkout; says which option names the file instead.
    """
    path = Path(foretrace.__file__).parents[2] / _FOLDER / name
    if not path.is_file():
        raise WorkloadError(
            "no description of published runs is installed with foretrace: give "
            f"{option} FILE.toml; {_FOLDER}/{name} of its repository is one."
        )
    return path


@app.command()
def neighbours(*, data: Table, description: Description = None, outputs: Outputs) -> None:
    """Predict each published run from runs that differ from it in one thing."""
    published = described_runs(data, description)
    with activity() as doing:
        doing.now("estimating runs")
        report = neighbours_report(published, progress=doing.advance)
    outputs.tell(report, top=None)


@app.command()
def lumos(
    *,
    data: Annotated[
        Path | None,
        option(
            "FILE.toml",
            "The figure: scalings, as measured and as predicted by its authors. Default: "
            "lumos.toml of the repository's experiments/.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    outputs: Outputs,
) -> None:
    """Predict eight scalings of figure 7 of the Lumos paper from a ninth."""
    figure = read_scalings(data or experiment("lumos.toml", "--data"))
    with activity() as doing:
        doing.now("fitting two constants")
        report = scalings_report(figure, progress=doing.advance)
    outputs.tell(report, top=None)


@app.command()
def live(
    *,
    out: Annotated[
        Path | None,
        option(
            "FOLDER",
            "Keep recordings and timed steps here, and go on with what is missing.",
            *options.OUT,
            file_okay=False,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        option(
            "FOLDER",
            "Run nothing: predict again for what an earlier --out holds.",
            "--from",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    rounds: Annotated[int, option("N", "How often each configuration is run.", min=1)] = 5,
    steps: Annotated[int, option("N", "Steps to time in each of these runs.", min=3)] = 12,
    seconds: Annotated[
        float | None, option("SECONDS", "Begin no further round after so long.", min=1)
    ] = None,
    device: options.DeviceName = None,
    outputs: Outputs,
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
    outputs.tell(report, top=None)
    if out is not None:
        typer.echo(f"kept {out}: foretrace validate live --from {out}", err=True)


def _report(folder: Path, doing: ProgressLine) -> LiveReport:
    doing.now("predicting")
    return live_report(folder, progress=doing.advance)


def _tell(doing: ProgressLine, what: str, done: int, total: int) -> None:
    doing.now(what)
    doing.advance(done, total)

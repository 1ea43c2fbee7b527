"""Where the description of published runs is found: code knows none of their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

import foretrace
from foretrace.base import WorkloadError
from foretrace.validate import PublishedRun, read_description, read_runs, undescribed_software

_FOLDER = "experiments"  # of a checkout; no wheel has it
Table: TypeAlias = Annotated[
    Path,
    typer.Option(
        metavar="FILE.csv",
        exists=True,
        dir_okay=False,
        help="Runs that others measured, one a row: docs/accuracy.md lists the columns.",
    ),
]
Description: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.toml",
        exists=True,
        dir_okay=False,
        help="What the columns mean: docs/accuracy.md. Default: FILE.toml beside the table, else "
        "runs.toml of the repository's experiments/.",
    ),
]


def described_runs(data: Path, description: Path | None) -> tuple[PublishedRun, ...]:
    """A table of runs with its description; warns of software that it does not know.

    Raises:
        WorkloadError: if there is no description, or it or the table is wrong.
    """
    beside = data.with_suffix(".toml")
    path = description or (beside if beside.is_file() else experiment("runs.toml", "--description"))
    runs = read_runs(data, read_description(path))
    for sentence in undescribed_software(runs):
        typer.echo(f"warning: {sentence}", err=True)
    return runs


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

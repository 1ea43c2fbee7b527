"""Arguments and options that several commands share, each with its one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Paths: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...", help="Profiler files of the run's ranks: files, globs or folders."
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print everything as JSON instead of tables.")
]
Csv: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="OUT.csv", dir_okay=False, help="Write the main table as CSV."),
]
Parquet: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="OUT.parquet", dir_okay=False, help="Write the main table as Parquet."),
]
TableName: TypeAlias = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="Write this table instead of the main one."),
]
Step: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Look at this step, by name or number."),
]
Rank: TypeAlias = Annotated[
    int | None,
    typer.Option(min=0, metavar="RANK", help="Of this rank's own step. Default: the job's step."),
]
Ranks: TypeAlias = Annotated[
    str | None, typer.Option(metavar="RANKS", help="Read these ranks only, as in 0,3-5.")
]
NoCache: TypeAlias = Annotated[
    bool, typer.Option("--no-cache", help="Read the files anew and keep nothing.")
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Files to read at once. Default: what suits."),
]
Replayed: TypeAlias = Annotated[
    bool,
    typer.Option("--replayed/--measured", help="Look at the replay, or at what was measured."),
]
Top: TypeAlias = Annotated[
    int, typer.Option(min=1, metavar="N", help="Rows to show; files and JSON hold all.")
]
BlocksFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.toml", dir_okay=False, help="What corrects the blocks: docs/blocks.md."
    ),
]

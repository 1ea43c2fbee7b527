"""`foretrace inspect`: what profiler files contain, and what they lack for a replay."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace import api
from foretrace.cli import options
from foretrace.cli.blocks_table import FoundBlocks, print_blocks
from foretrace.cli.inspect_table import print_contents
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.settings import cache_folder
from foretrace.cli.source import Source
from foretrace.trace import Contents

if TYPE_CHECKING:
    import polars as pl


def inspect(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILES...", help="Profiler files: files, globs or folders."),
    ],
    *,
    blocks: Annotated[
        bool, typer.Option("--blocks", help="Of one run: its layers, phases and other blocks.")
    ] = False,
    blocks_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml", dir_okay=False, help="What corrects the blocks: docs/blocks.md."
        ),
    ] = None,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    no_cache: options.NoCache = False,
) -> None:
    """Say what profiler files contain, what they lack, and how to record better ones."""
    if blocks_file is not None and not blocks:
        raise typer.BadParameter("--blocks-file has no effect without --blocks")
    if blocks:
        source = Source(paths, None, no_cache, None)
        with activity() as doing:
            job = source.job(doing, blocks=blocks_file)
            table = FoundBlocks(job, api.blocks(job))
        Outputs(json, csv, parquet).give(table, lambda: print_blocks(table))
        return
    with activity() as doing:
        doing.now("reading traces")
        found = api.inspect(
            paths, cache=False if no_cache else cache_folder(), progress=doing.advance
        )
    Outputs(json, csv, parquet).give(Files(found), lambda: print_contents(found))


@dataclass(frozen=True)
class Files:
    """What all files contain."""

    rows: tuple[Contents, ...]

    def as_json(self) -> list[dict[str, object]]:
        """Everything, one mapping per file."""
        return [asdict(one) for one in self.rows]

    def to_frame(self) -> pl.DataFrame:
        """One row per file; what a file has several of is a list."""
        import polars as pl  # on demand: it takes longer to import than most files to read

        counts = ("events_by_category", "dropped", "communication")
        rows = [
            {
                name: [{"name": key, "count": count} for key, count in value.items()]
                if name in counts and isinstance(value, dict)
                else value
                for name, value in row.items()
            }
            for row in self.as_json()
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

"""`foretrace inspect`: what profiler files contain, and what they lack for a replay."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace import api
from foretrace.cli import options
from foretrace.cli.inspect_table import print_contents, print_links
from foretrace.cli.outputs import Outputs, title_text
from foretrace.cli.progress import activity
from foretrace.cli.settings import cache_folder
from foretrace.cli.source import Source
from foretrace.graph import BlocksWithEvidence, Links
from foretrace.trace import Contents

if TYPE_CHECKING:
    import polars as pl

NO_LINKS = Links(())


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
    table: options.TableName = None,
    no_cache: options.NoCache = False,
) -> None:
    """Say what profiler files contain, what they lack, and how to record better ones."""
    if blocks_file is not None and not blocks:
        raise typer.BadParameter("--blocks-file has no effect without --blocks")
    if blocks:
        source = Source(paths, None, no_cache, None)
        with activity() as doing:
            job = source.job(doing, blocks=blocks_file)
            notes = tuple(one.text for one in job.findings if one.topic == "blocks")
            blocks_found = BlocksWithEvidence(api.blocks(job), job.recording.block_evidence, notes)
        title = title_text(job, is_replayed=False)
        Outputs(json, csv, parquet, table).tell(blocks_found, title=title, top=64)
        return
    with activity() as doing:
        doing.now("reading traces")
        found = api.inspect(
            paths, cache=False if no_cache else cache_folder(), progress=doing.advance
        )
        doing.now("joining execution traces")
        links = api.link(paths, cache=False if no_cache else cache_folder())

    def show() -> None:
        print_contents(found)
        print_links(links)

    Outputs(json, csv, parquet).give(Files(found, links), show)


@dataclass(frozen=True)
class Files:
    """What all files contain."""

    rows: tuple[Contents, ...]
    links: Links = NO_LINKS  # of those with an execution trace beside them

    def as_json(self) -> list[dict[str, object]]:
        """Everything, one mapping per file."""
        by_rank = {one.rank: one.as_json() for one in self.links.by_rank}
        rows = [asdict(one) for one in self.rows]
        for row, one in zip(rows, self.rows, strict=True):
            if one.rank in by_rank:
                row["execution_trace"] = by_rank[one.rank]
        return rows

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
            for row in map(asdict, self.rows)
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

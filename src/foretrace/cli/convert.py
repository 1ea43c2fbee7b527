"""`foretrace convert`: a run in the files of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.answer import bytes_text
from foretrace.api import Format
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.progress import activity
from foretrace.cli.source import Reading


def convert(
    paths: options.Paths,
    *,
    output: Annotated[
        Path, option("OUT", "Where to; of chakra and kineto the files' prefix.", *options.OUT)
    ],
    to: Annotated[
        Format | None, typer.Option("--to", help="What to write. Default: as OUT's name ends.")
    ] = None,
    replayed: options.Replayed = False,
    reading: Reading,
) -> None:
    """Write a run as Chakra, Perfetto, Kineto or Parquet files."""
    chosen = to or Format.of_name(output)
    with activity() as doing:
        job = reading.job(paths, doing)
        doing.now(f"writing {chosen.value}")
        written = api.convert(job, output, to=chosen, replayed=replayed)
    num_bytes = sum(path.stat().st_size for path in written)
    files = f"{written[0]} and {len(written) - 1} more" if len(written) > 1 else str(written[0])
    typer.echo(f"wrote {files}, {bytes_text(num_bytes)}", err=True)

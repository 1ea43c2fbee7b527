"""`foretrace inspect`: what profiler files contain, and what they lack for a replay."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from foretrace import api
from foretrace.cli.inspect_table import print_contents
from foretrace.cli.progress import activity
from foretrace.cli.settings import cache_folder


def inspect(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILES...", help="Profiler files: files, globs or folders."),
    ],
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON instead of tables.")
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Read the files anew and keep nothing.")
    ] = False,
) -> None:
    """Say what profiler files contain, what they lack, and how to record better ones."""
    with activity() as doing:
        doing.now("reading traces")
        found = api.inspect(
            paths, cache=False if no_cache else cache_folder(), progress=doing.advance
        )
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        print_contents(found)

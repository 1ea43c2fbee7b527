"""`foretrace cache`: the parsed traces that are kept, and their room on disk."""

from __future__ import annotations

from typing import Annotated

import typer

from foretrace.answer import bytes_text
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.settings import cache_folder, max_cache_bytes, parsed_bytes
from foretrace.trace import cached_traces
from foretrace.trace import prune as pruned

app = options.group("List parsed traces that are kept, and remove those of longest ago.")


@app.command(name="list")
def list_all(
    *, top: Annotated[int, option("N", "Rows to show.", min=1)] = 32, json: options.AsJson = False
) -> None:
    """List kept traces, their sizes, and when each was used last."""
    Outputs(json).tell(cached_traces(cache_folder(), max_cache_bytes()), top=top)


@app.command()
def prune(
    *,
    size: Annotated[
        str | None,
        option("SIZE", "What may stay: 5GB, 0. Default: FORETRACE_CACHE_SIZE, or 20GB.", "--size"),
    ] = None,
) -> None:
    """Remove what was used longest ago until the rest fits."""
    limit = max_cache_bytes() if size is None else parsed_bytes(size, "--size")
    freed = pruned(cache_folder(), limit)
    left = cached_traces(cache_folder(), limit)
    typer.echo(f"removed {bytes_text(freed)}; {left.headline}", err=True)

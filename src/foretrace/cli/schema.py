"""`foretrace schema`: what a command prints under `--json`, as a JSON Schema."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Annotated

import typer

from foretrace.cli.outputs import print_json


def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="As it is typed: breakdown, or risk steps."),
    ] = None,
) -> None:
    """Print the JSON Schema of what a command prints under --json."""
    folder = files("foretrace.cli").joinpath("schemas")
    known = sorted(one.name.removesuffix(".json") for one in folder.iterdir())
    if not command:
        typer.echo("\n".join(known))
        return
    name = "-".join(command)
    if name not in known:
        raise typer.BadParameter(
            f"no schema of {' '.join(command)!r}: expected one of {', '.join(known)}"
        )
    print_json(json.loads(folder.joinpath(f"{name}.json").read_text(encoding="utf-8")))

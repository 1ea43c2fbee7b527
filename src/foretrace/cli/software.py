"""`foretrace software`: the training software that is described, and what is known of it."""

from __future__ import annotations

from typing import Annotated

import typer

from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.settings import software_folders
from foretrace.software import known_software, software_called

app = options.group("Say what training software is described, and what is known of one.")


@app.command(name="list")
def list_all(*, json: options.AsJson = False) -> None:
    """List releases and classes of software."""
    Outputs(json).tell(known_software(software_folders()), top=None)


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Software, what others call it, or a TOML file.")
    ],
    *,
    json: options.AsJson = False,
) -> None:
    """Show what software does in a plan, and its kernels' figures with their sources."""
    Outputs(json).tell(software_called(name, software_folders()), top=None)

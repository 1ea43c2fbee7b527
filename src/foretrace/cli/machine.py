"""`foretrace machine`: the hardware that is described, and whether a description holds water."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.base import write_whole
from foretrace.cli import options
from foretrace.cli.errors import MODEL_ERROR
from foretrace.cli.outputs import Outputs
from foretrace.cli.settings import machine_folders
from foretrace.machine import check as checked
from foretrace.machine import described, hardware, import_description

app = options.group("Say what hardware is described, and check a description of your own.")


@app.command(name="list")
def list_all(*, json: options.AsJson = False) -> None:
    """List chips, hosts and machines with their key figures."""
    Outputs(json).tell(hardware(machine_folders()), top=None)


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A chip, a host, a machine, or a TOML file.")
    ],
    *,
    json: options.AsJson = False,
) -> None:
    """Show every number with its unit and source."""
    Outputs(json).tell(described(name, machine_folders()), top=None)


@app.command()
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A TOML file, or a name.")],
    *,
    json: options.AsJson = False,
) -> None:
    """Say what a description lacks, and what cannot be.

    Ends with 1 if a number is implausible; what is missing or has no source is only named.
    """
    folders = machine_folders()
    found = checked(described(file, folders), folders)
    Outputs(json).tell(found, top=None)
    if not found.is_plausible:
        raise typer.Exit(MODEL_ERROR)


@app.command(name="import")
def import_file(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="NCCL's topology, the text of nvidia-smi topo -m, ASTRA-sim's network, or a table "
            "of links.",
        ),
    ],
    *,
    chip: Annotated[str | None, options.option("NAME", "The chip of a host.")] = None,
    host: Annotated[str | None, options.option("NAME", "The host of a machine.")] = None,
    output: Annotated[
        Path | None, options.option("OUT.toml", "Write it there.", *options.OUT, dir_okay=False)
    ] = None,
) -> None:
    """Write a host or a machine as a TOML file, from what other tools say of it."""
    found = import_description(file, chip=chip, host=host)
    if output is None:
        typer.echo(found.text, nl=False)
        return
    write_whole(output, found.text)
    typer.echo(f"wrote {output}", err=True)

"""`foretrace machine`: the hardware that is described, and whether a description holds water."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from foretrace.cli.errors import MODEL_ERROR
from foretrace.cli.machine_table import print_description, print_list, print_remarks
from foretrace.cli.settings import machine_folders
from foretrace.machine import (
    Severity,
    chip_names,
    described,
    host_names,
    load_chip,
    load_host,
    load_machine,
    machine_names,
    remarks_on,
)

app = typer.Typer(add_completion=False, rich_markup_mode=None)

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print everything as JSON instead of tables.")
]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Say what hardware is described, and check a description of your own."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(name="list")
def list_all(*, json: JsonFlag = False) -> None:
    """List chips, hosts and machines with their key figures."""
    folders = machine_folders()
    chips = [load_chip(name, folders) for name in chip_names(folders)]
    hosts = [load_host(name, folders) for name in host_names(folders)]
    machines = [load_machine(name, folders) for name in machine_names(folders)]
    if json:
        _echo(
            {
                "chips": [one.as_json() for one in chips],
                "hosts": [one.as_json() for one in hosts],
                "machines": [one.as_json() for one in machines],
            }
        )
    else:
        print_list(chips, hosts, machines)


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A chip, a host, a machine, or a TOML file.")
    ],
    *,
    json: JsonFlag = False,
) -> None:
    """Show every number with its unit and source."""
    found = described(name, machine_folders())
    if json:
        _echo(found.as_json())
    else:
        print_description(found)


@app.command()
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A TOML file, or a name.")],
    *,
    json: JsonFlag = False,
) -> None:
    """Say what a description lacks, and what cannot be.

    Ends with 1 if a number is implausible; what is missing or has no source is only named.
    """
    folders = machine_folders()
    found = described(file, folders)
    remarks = remarks_on(found, folders)
    is_wrong = any(remark.severity is Severity.IMPLAUSIBLE for remark in remarks)
    if json:
        _echo(
            {
                "name": found.name,
                "is_plausible": not is_wrong,
                "remarks": [remark.as_json() for remark in remarks],
            }
        )
    else:
        print_remarks(found, remarks)
    if is_wrong:
        raise typer.Exit(MODEL_ERROR)


def _echo(value: object) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))

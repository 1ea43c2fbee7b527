"""`foretrace model`: the models that are described, and what they come to."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from foretrace.cli.model_table import print_account, print_models
from foretrace.cli.settings import model_folders
from foretrace.workload import account, load_model, model_names

app = typer.Typer(add_completion=False, rich_markup_mode=None)

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print everything as JSON instead of tables.")
]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Say what models are described, and count parameters, FLOPs and bytes of one."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(name="list")
def list_all(*, json: JsonFlag = False) -> None:
    """List models with their key figures."""
    folders = model_folders()
    found = [account(load_model(name, folders)) for name in model_names(folders)]
    if json:
        _echo({"models": [one.as_json() for one in found]})
    else:
        print_models(found)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A model, a TOML file, or a config.json of Hugging Face.",
        ),
    ],
    *,
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens",
            min=1,
            help="Tokens of a sequence; the model's context, at most 8192, if left out.",
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show a model's parameters, FLOPs by convention, bytes, and every number's source."""
    found = account(load_model(name, model_folders()), tokens)
    if json:
        _echo(found.as_json())
    else:
        print_account(found)


def _echo(value: object) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))

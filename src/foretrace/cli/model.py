"""`foretrace model`: the models that are described, and what they come to."""

from __future__ import annotations

from typing import Annotated

import typer

from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.settings import model_folders
from foretrace.workload import account, accounts, load_model

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Say what models are described, and count parameters, FLOPs and bytes of one."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(name="list")
def list_all(*, json: options.AsJson = False) -> None:
    """List models with their key figures."""
    Outputs(json).tell(accounts(model_folders()), top=None)


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
    json: options.AsJson = False,
) -> None:
    """Show a model's parameters, FLOPs by convention, bytes, and every number's source."""
    Outputs(json).tell(account(load_model(name, model_folders()), tokens), top=None)

"""`foretrace model`: the models that are described, and what they come to."""

from __future__ import annotations

from typing import Annotated

import typer

from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.settings import model_folders
from foretrace.workload import account, accounts, load_model

app = options.group("Say what models are described, and count parameters, FLOPs and bytes of one.")


@app.command(name="list")
def list_all(*, json: options.AsJson = False) -> None:
    """List models with their key figures."""
    Outputs(json).tell(accounts(model_folders()), top=None)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A model, a TOML file, or a config.json of Hugging Face."
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

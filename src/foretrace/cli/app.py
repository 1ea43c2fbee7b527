"""The command `foretrace` and what all its subcommands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from foretrace import __version__
from foretrace.cli.errors import errors_as_sentences
from foretrace.cli.lazy import LazyGroup
from foretrace.cli.settings import PROGRESS, ProgressKind

app = typer.Typer(
    name="foretrace",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    progress: Annotated[
        ProgressKind | None,
        typer.Option(
            "--progress",
            help="How progress is told on stderr. Default: FORETRACE_PROGRESS, or auto, which is "
            "a line on a terminal.",
        ),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Predict training and serving runs of large AI models, from their traces or a model alone."""
    if progress is not None:
        os.environ[PROGRESS] = progress  # read where progress is told, commands deeper
        context.call_on_close(partial(os.environ.pop, PROGRESS, None))
    if version:
        typer.echo(f"foretrace {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line; exits 0, 1 (the input's fault) or 2 (the command line's).

    Args:
        arguments: without the program's name; the process's own, if left out.
    """
    with errors_as_sentences():
        app(args=None if arguments is None else list(arguments), prog_name="foretrace")

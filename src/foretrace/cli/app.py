"""The command `foretrace` and what all its subcommands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from foretrace import __version__
from foretrace.analyze import questions
from foretrace.cli import bench, machine, model, risk, validate
from foretrace.cli.analyze import analyze
from foretrace.cli.anonymise import anonymise
from foretrace.cli.calibrate import calibrate
from foretrace.cli.compare import compare
from foretrace.cli.convert import convert
from foretrace.cli.draw import draw
from foretrace.cli.errors import errors_as_sentences
from foretrace.cli.estimate import estimate
from foretrace.cli.hang import hang
from foretrace.cli.inspect import inspect
from foretrace.cli.measure import measure
from foretrace.cli.memory import memory
from foretrace.cli.operators import operators
from foretrace.cli.questions import command_of
from foretrace.cli.replay import replay
from foretrace.cli.report import report
from foretrace.cli.sensitivity import sensitivity
from foretrace.cli.synthesise import synthesise
from foretrace.cli.whatif import whatif

COMMANDS: tuple[Callable[..., None], ...] = (
    inspect,
    replay,
    analyze,
    sensitivity,
    hang,
    operators,
    memory,
    compare,
    whatif,
    estimate,
    report,
    convert,
    draw,
    anonymise,
    synthesise,
    measure,
    calibrate,
    *(command_of(one) for name in dir(questions) if (one := getattr(questions, name)).help),
)  # in the order of `--help`

app = typer.Typer(
    name="foretrace",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)
for command in COMMANDS:
    app.command(name=command.__name__.replace("_", "-"))(command)
app.add_typer(bench.app, name="bench")
app.add_typer(machine.app, name="machine")
app.add_typer(model.app, name="model")
app.add_typer(risk.app, name="risk")
app.add_typer(validate.app, name="validate")


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """From profiler files of a training run to a replay that can be believed."""
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

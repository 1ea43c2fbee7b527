"""Arguments and options that several commands share, each with its one help text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

from foretrace.base import NetworkUse, SweepEngine
from foretrace.graph import Ablation
from foretrace.machine import COST_FILES, tells_costs

# Headings of help; an option that has none stands under "Options".
READING = "How files are read"
OUTPUT = "Output"
MODEL_AND_PLAN = "Model and plan"
_TIMES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_AMOUNT = re.compile(
    r"(?P<number>\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*(?P<times>[KMBGT]?)", re.IGNORECASE
)


def option(
    metavar: str | None, words: str, *flags: str, heading: str | None = None, **limits: Any
) -> Any:
    """An option that takes a value.

    Args:
        metavar: what stands for the value in the help; "OUT..." if a file is written there.
        words: the help.
        flags: how it is typed, where that does not follow from the keyword's name.
        heading: where it stands in the help.
        limits: what the value may be, as typer takes it.
    """
    return typer.Option(*flags, metavar=metavar, help=words, rich_help_panel=heading, **limits)


def amount(stated: object) -> float:
    """A positive number as it is typed, or stands in a file: `15T`, `2.6M`, `1e12`.

    Raises:
        BadParameter: if it is none.
    """
    text = str(stated).strip()
    found = _AMOUNT.fullmatch(text)
    number = float(found["number"]) * _TIMES[found["times"].upper()] if found else 0.0
    if not 0 < number < float("inf"):
        raise typer.BadParameter(f"{text!r} is no positive number: write it as 15T, 2.6M or 1e12")
    return number


def flag(typed: str, words: str, *, heading: str | None = None) -> Any:
    """An option that is there or not."""
    return typer.Option(typed, help=words, rich_help_panel=heading)


def _tells_costs(folder: Path | None) -> Path | None:
    if folder is not None and not tells_costs(folder):
        raise typer.BadParameter(
            f"{folder} holds no {', '.join(COST_FILES)}: name what `foretrace calibrate` wrote"
        )
    return folder


OUT = ("--out", "--output", "-o")  # where to write, of every command that has one such place
Paths: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...", help="Profiler files of the run's ranks: files, globs or folders."
    ),
]
AsJson: TypeAlias = Annotated[
    bool, flag("--json", "Print everything as JSON instead of tables.", heading=OUTPUT)
]
Markdown: TypeAlias = Annotated[
    bool,
    flag("--markdown", "Print Markdown, as for a comment on a pull request.", heading=OUTPUT),
]
Csv: TypeAlias = Annotated[
    Path | None, option("OUT.csv", "Write the main table as CSV.", dir_okay=False)
]
Parquet: TypeAlias = Annotated[
    Path | None, option("OUT.parquet", "Write the main table as Parquet.", dir_okay=False)
]
TableName: TypeAlias = Annotated[
    str | None,
    option("NAME", "Write this table instead of the main one.", "--table", heading=OUTPUT),
]
Step: TypeAlias = Annotated[str | None, option("NAME", "Look at this step, by name or number.")]
Rank: TypeAlias = Annotated[
    int | None, option("RANK", "Of this rank's own step. Default: the job's step.", min=0)
]
Ranks: TypeAlias = Annotated[
    str | None, option("RANKS", "Read these ranks only, as in 0,3-5.", heading=READING)
]
StepMark: TypeAlias = Annotated[
    str,
    option(
        "TEXT",
        "How names of marks begin that are steps. Default: what profilers, engines and frameworks "
        "write.",
        heading=READING,
    ),
]
NoCache: TypeAlias = Annotated[
    bool, flag("--no-cache", "Read the files anew and keep nothing.", heading=READING)
]
WhichEngine: TypeAlias = Annotated[
    SweepEngine,
    typer.Option(
        "--engine", help="Where workers of a sweep run: on this machine, or Ray's cluster."
    ),
]
Workers: TypeAlias = Annotated[
    int | None, option("N", "Files to read at once. Default: what suits.", heading=READING, min=1)
]
Replayed: TypeAlias = Annotated[
    bool, typer.Option("--replayed/--measured", help="Look at the replay, or at what was measured.")
]
Top: TypeAlias = Annotated[int, option("N", "Rows to show; files and JSON hold all.", min=1)]
BlocksFile: TypeAlias = Annotated[
    Path | None,
    option(
        "FILE.toml", "What corrects the blocks: docs/blocks.md.", heading=READING, dir_okay=False
    ),
]
Page: TypeAlias = Annotated[
    Path | None, option("OUT.html", "Write one page that opens offline.", dir_okay=False)
]
Seed: TypeAlias = Annotated[int, option("N", "The same seed gives the same result.", min=0)]
Substitutes: TypeAlias = Annotated[
    list[str] | None,
    option(
        "RULE", "Other products where they are faster: fp8, strassen:1; repeatable.", "--substitute"
    ),
]
Price: TypeAlias = Annotated[float | None, option("PRICE", "Of one GPU for an hour.", min=0)]
DeviceName: TypeAlias = Annotated[
    str | None, option("DEVICE", "cuda or cpu. Default: a GPU if any.")
]
Without: TypeAlias = Annotated[
    list[Ablation] | None,
    typer.Option(help="Leave out a class of dependency; may be given again."),
]
Network: TypeAlias = Annotated[
    NetworkUse,
    typer.Option(
        help="private: each collective as if alone; shared: those that meet divide links."
    ),
]
Machine: TypeAlias = Annotated[str, option("NAME", "A machine, a host, or a TOML file.")]
Costs: TypeAlias = Annotated[
    Path | None,
    option(
        "DIR",
        "Your own constants (of `calibrate`) and tables of products go before those shipped: "
        "docs/cost/calibrate.md.",
        exists=True,
        file_okay=False,
        callback=_tells_costs,
    ),
]
Names: TypeAlias = Annotated[
    Path | None,
    option(
        "FILE.toml",
        "What kernels are of a class: docs/analyses.md.",
        heading=READING,
        dir_okay=False,
    ),
]


def command_with(
    run: Callable[..., None],
    parameters: Iterable[inspect.Parameter],
    *,
    name: str,
    words: str | None,
) -> Callable[..., None]:
    """A function as typer makes a command of it, its parameters known at run time only.

    Args:
        run: what is called with every keyword.
        parameters: its options and arguments, annotated.
        name: of the function.
        words: its documentation, which is the help.
    """
    listed = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    run.__name__, run.__doc__ = name, words
    run.__annotations__ = {one.name: one.annotation for one in listed}
    vars(run)["__signature__"] = inspect.Signature(listed)  # what typer reads
    return run


def with_options(
    name: str, told: Iterable[inspect.Parameter], made: Callable[[dict[str, Any]], object]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with several options in the place of one keyword.

    Args:
        name: of the keyword.
        told: the options.
        made: what the keyword gets, of the options' values by name.
    """
    listed = list(told)

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        def whole(**given: Any) -> None:
            values = {one.name: given.pop(one.name) for one in listed}
            command(**given, **{name: made(values)})

        own = inspect.signature(command, eval_str=True).parameters.values()
        parts = (listed if one.name == name else [one] for one in own)
        parameters = [one for part in parts for one in part]
        return command_with(whole, parameters, name=command.__name__, words=command.__doc__)

    return decorated


def with_sets(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose keywords of a class are the options that the class has as fields."""
    for one in inspect.signature(command, eval_str=True).parameters.values():
        kind = one.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            types = get_type_hints(kind, include_extras=True)
            told = [keyword(each.name, types[each.name], each.default) for each in fields(kind)]
            command = with_options(one.name, told, partial(_made, kind))(command)
    return command


def _made(kind: Callable[..., object], given: dict[str, Any]) -> object:
    return kind(**given)


def group(words: str) -> typer.Typer:
    """Commands under one word, which alone prints their help."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.callback(invoke_without_command=True, help=words)
    def root(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return app


def keyword(name: str, kind: Any, default: object = None) -> inspect.Parameter:
    """An option of a command that is made at run time."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)

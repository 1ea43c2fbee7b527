"""A question as a command: its options, and what all questions about a run share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

import typer

from foretrace.answer import Option, Question
from foretrace.cli import options
from foretrace.cli.outputs import Outputs, title_text
from foretrace.cli.progress import activity
from foretrace.cli.source import Source, timeline_of
from foretrace.graph import MEASURED, RECORDING

_SHARED: dict[str, Any] = {
    "json": (options.AsJson, False),
    "csv": (options.Csv, None),
    "parquet": (options.Parquet, None),
    "table": (options.TableName, None),
    "blocks_file": (options.BlocksFile, None),
    "ranks": (options.Ranks, None),
    "no_cache": (options.NoCache, False),
    "workers": (options.Workers, None),
}


def command_of(question: Question[Any, Any, ..., Any]) -> Callable[..., None]:
    """The function that typer makes a command of."""

    def command(**given: Any) -> None:
        own = {one.name: given.pop(one.name) for one in question.options}
        _answer(question, own, given)

    kinds: dict[str, Any] = {"paths": (options.Paths, inspect.Parameter.empty)}
    kinds |= {one.name: (_typed(one), one.default) for one in question.options}
    if question.of is not RECORDING:
        kinds["replayed"] = (options.Replayed, question.of is not MEASURED)
    kinds |= {"top": (options.Top, question.top), **_SHARED}
    command.__name__, command.__doc__ = question.name, question.help
    command.__annotations__ = {name: kind for name, (kind, _) in kinds.items()}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=value)
        for name, (kind, value) in kinds.items()
    ]
    vars(command)["__signature__"] = inspect.Signature(parameters)  # what typer reads
    return command


def _answer(
    question: Question[Any, Any, ..., Any], own: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    source = Source(given["paths"], given["ranks"], given["no_cache"], given["workers"])
    outputs = Outputs(given["json"], given["csv"], given["parquet"], given["table"])
    is_replayed = given.get("replayed", False)
    with activity() as doing:
        job = source.job(doing, blocks=given["blocks_file"])
        subject = (
            job.recording
            if question.of is RECORDING
            else timeline_of(job, doing, is_replayed=is_replayed)
        )
        doing.now(question.doing)
        found = question(subject, **own)
    outputs.tell(found, title=title_text(job, is_replayed=is_replayed), top=given["top"])


def _typed(parameter: inspect.Parameter) -> Any:
    """A keyword as typer understands it: one type, and its option."""
    kind, told = get_args(parameter.annotation)[:2]
    if not isinstance(told, Option):
        raise TypeError(f"{parameter.name} is annotated with {told!r}: an Option is expected")
    if isinstance(kind, UnionType) and set(get_args(kind)) == {str, int, type(None)}:
        kind = str | None  # a name, or a number: text either way
    names = (f"--{parameter.name.replace('_', '-')}",) if get_origin(kind) or kind is bool else ()
    found = typer.Option(
        *names, metavar=told.metavar, min=told.minimum, max=told.maximum, help=told.help
    )
    return Annotated[kind, found]

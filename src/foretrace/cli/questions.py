"""A question as a command: its options, and what all questions about a run share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

import typer

from foretrace.answer import Answer, Gate, Instead, Question
from foretrace.cli import options
from foretrace.cli.outputs import Outputs, title_text
from foretrace.cli.progress import activity
from foretrace.cli.source import Reading, timeline_of
from foretrace.graph import MEASURED, RECORDING, REPLAYED, SIMULATED

SHUT = 1  # the exit code of a gate


def command_of(question: Question[Any, Any, ..., Any]) -> Callable[..., None]:
    """The function that typer makes a command of."""

    def command(**given: Any) -> None:
        other = question.instead
        asked = other.question if other is not None and given[other.option] else question
        own = {one.name: given[one.name] for one in asked.options}
        found = _answer(asked, own, given)
        if (
            question.gate is not None
            and given[question.gate.option]
            and question.gate.is_shut(found)
        ):
            raise typer.Exit(SHUT)

    told = [options.keyword("paths", options.Paths, inspect.Parameter.empty)]
    told += [one.replace(annotation=_typed(one)) for one in _keywords(question)]
    for flag in (question.gate, question.instead):
        if flag is not None and flag.option not in {one.name for one in told}:
            told.append(options.keyword(flag.option, _flag(flag), default=False))
    if question.of in (MEASURED, REPLAYED):
        is_replayed = question.of is not MEASURED
        told.append(options.keyword("replayed", options.Replayed, is_replayed))
    told.append(options.keyword("top", options.Top, question.top))
    told += [options.keyword("outputs", Outputs), options.keyword("reading", Reading)]
    return options.command_with(command, told, name=question.name, words=question.help)


def _keywords(question: Question[Any, Any, ..., Any]) -> Iterator[inspect.Parameter]:
    """The question's own, and those that the one behind an option has beside."""
    own = question.options
    known = {one.name for one in own}
    other = () if question.instead is None else question.instead.question.options
    yield from (one.replace(default=None) for one in other if one.name not in known)
    yield from own


def _flag(told: Gate | Instead) -> Any:
    name = f"--{told.option.replace('_', '-')}"
    return Annotated[bool, typer.Option(name, help=told.help)]


def _answer(
    question: Question[Any, Any, ..., Any], own: Mapping[str, Any], given: Mapping[str, Any]
) -> Answer:
    is_replayed = given.get("replayed", question.of is SIMULATED)
    with activity() as doing:
        job = given["reading"].job(given["paths"], doing)
        subject = (
            job.recording
            if question.of is RECORDING
            else timeline_of(job, doing, is_replayed=is_replayed)
        )
        doing.now(question.doing)
        found: Answer = question(subject, **own)
    top = given["top"]
    parts = None if question.told is None else question.told(found, top)
    title = title_text(job, is_replayed=is_replayed)
    given["outputs"].tell(found, title=title, top=top, parts=parts, lacks=job.lacks)
    return found


def _typed(parameter: inspect.Parameter) -> Any:
    """A keyword as typer understands it: one type, and its option."""
    kind, told = get_args(parameter.annotation)[:2]
    if isinstance(kind, UnionType) and set(get_args(kind)) == {str, int, type(None)}:
        kind = str | None  # a name, or a number: text either way
    names = (f"--{parameter.name.replace('_', '-')}",) if get_origin(kind) or kind is bool else ()
    found = typer.Option(
        *names, metavar=told.metavar, min=told.minimum, max=told.maximum, help=told.help
    )
    return Annotated[kind, found]

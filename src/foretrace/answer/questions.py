"""`Question`: an analysis as one value; command, verb, JSON, notebook and page follow from it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import WRAPPER_ASSIGNMENTS
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from foretrace.answer.answer import Answer
from foretrace.answer.parts import Told

Given = TypeVar("Given")
Taken = TypeVar("Taken")
Options = ParamSpec("Options")
Found = TypeVar("Found", bound=Answer)


@dataclass(frozen=True)
class Option:
    """What a command line says about a keyword of a question; a verb has the keyword itself."""

    help: str
    metavar: str | None = None
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Subject(Generic[Given, Taken]):
    """What a question is asked of: how it is taken from what a user holds."""

    name: str
    take: Callable[[Given], Taken]


@dataclass(frozen=True)
class Place:
    """Where the answer stands on a page of a job."""

    order: int  # sections with lower ones stand above
    title: str
    short: str = ""  # in the page's list of sections; the title, if empty


@dataclass(frozen=True)
class Gate:
    """A flag with which a command ends with 1 where its answer says that something is wrong."""

    option: str  # the keyword's name: "fail_if_hung"
    help: str
    is_shut: Callable[[Any], bool]  # of an answer


@dataclass(frozen=True)
class Instead:
    """An option with which a command asks another question of the same subject."""

    option: str  # a keyword of that question, or a flag
    question: Question[Any, Any, ..., Any]
    help: str = ""  # of a flag


@dataclass(frozen=True, eq=False)
class Question(Generic[Given, Taken, Options, Found]):
    """A question: what it is asked of, what computes it, and how a command line names it."""

    compute: Callable[Concatenate[Taken, Options], Found]
    of: Subject[Given, Taken]
    help: str  # of the command, in one sentence; "": another command asks it
    doing: str  # shown while it is worked out
    place: Place | None = None
    top: int = 8  # rows that the command shows
    told: Callable[[Any, int], tuple[Told, ...]] | None = None  # what it shows; all, if left out
    gate: Gate | None = None
    instead: Instead | None = None

    def __post_init__(self) -> None:
        """Look like the function: name, documentation, keywords."""
        own: dict[str, object] = {key: getattr(self.compute, key) for key in WRAPPER_ASSIGNMENTS}
        vars(self).update(own, __wrapped__=self.compute)

    @property
    def name(self) -> str:
        """The verb's name, and the command's with hyphens."""
        return self.compute.__name__

    @property
    def options(self) -> tuple[inspect.Parameter, ...]:
        """The keywords that a command line has, their annotations resolved."""
        signature = inspect.signature(self.compute, eval_str=True)
        return tuple(one for one in signature.parameters.values() if _is_told(one))

    def __call__(self, subject: Given, /, *args: Options.args, **kwargs: Options.kwargs) -> Found:
        """The answer about a subject."""
        return self.compute(self.of.take(subject), *args, **kwargs)


def _is_told(keyword: inspect.Parameter) -> bool:
    return any(isinstance(one, Option) for one in getattr(keyword.annotation, "__metadata__", ()))


def question(
    of: Subject[Given, Taken],
    *,
    doing: str,
    help: str = "",  # noqa: A002  the word of command lines
    place: Place | None = None,
    top: int = 8,
    told: Callable[[Any, int], tuple[Told, ...]] | None = None,
    gate: Gate | None = None,
    instead: Instead | None = None,
) -> Callable[
    [Callable[Concatenate[Taken, Options], Found]], Question[Given, Taken, Options, Found]
]:
    """Make a question of the function that answers it.

    Args:
        of: what it is asked of.
        doing: what a terminal shows while it is worked out.
        help: of the command, in one sentence; none is made without.
        place: on the page of a job; none, if left out.
        top: rows that the command shows.
        told: what the command shows of the answer in so many rows; all its parts, if left out.
        gate: what makes the command end with 1.
        instead: an option that asks another question.
    """

    def made(
        compute: Callable[Concatenate[Taken, Options], Found],
    ) -> Question[Given, Taken, Options, Found]:
        return Question(
            compute, of, help, doing, place=place, top=top, told=told, gate=gate, instead=instead
        )

    return made

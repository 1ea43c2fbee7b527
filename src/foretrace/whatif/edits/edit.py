"""`Edit`: one thing that is different about a job, with its check, its sentence and its effect.

An edit is a frozen value in a module of this folder. The list of edits is `__init__.py`: options of
the command line, keys of scenario files and names in Python follow from it and from the `KEYS` of
each class. Edits of sizes, plan and machine map a scenario to a scenario; edits of work are kept in
the scenario, and change the graph and its durations once those are known.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum, IntEnum, auto
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from foretrace.analyze import EVERYTHING, Selection, selection_of
from foretrace.base import NS_PER_UNIT, ScenarioError
from foretrace.graph import ExecutionGraph
from foretrace.machine import Chip
from foretrace.whatif.edits.costed import CostedJob

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

_DURATION = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*(s|ms|us|ns)\s*")


class EditTurn(IntEnum):
    """When an edit acts, whatever the order in which edits were given."""

    SIZES = 0
    DEGREES = 1
    PLAN = 2
    BATCH = 3
    MACHINE = 4
    FIGURES = 5
    ATTENTION = 6
    SUBSTITUTES = 7
    LENGTHS = 8
    FACTORS = 9
    DELAYS = 10
    FUSION = 11
    CHECKS = 12
    GRAPHS = 13
    WAITS = 14
    LOADING = 15


class Holds(Enum):
    """What is stated under a key."""

    COUNT = auto()  # a whole number from 1 on
    NAME = auto()
    FLAG = auto()  # true or false
    FACTORS = auto()  # a table of names and numbers above 0: NAME=FACTOR on a command line
    TIMES = auto()  # a table of names and times with their unit: NAME=TIME
    TABLE = auto()  # a table of keys of a plan or a machine: KEY=VALUE
    NAMES = auto()  # one text or several; true: everything
    TIME_OR_FACTOR = auto()


@dataclass(frozen=True)
class Key:
    """What a command line and a scenario file state by one name: `--micro-batch`, `micro_batch`."""

    name: str
    holds: Holds
    help: str  # of the option
    expected: str  # in words, for errors; what it holds
    metavar: str = ""
    field: str = ""  # of the edit that it fills; "": of the same name

    @property
    def filled(self) -> str:
        """The field that it fills."""
        return self.field or self.name


def count_key(name: str, text: str, field: str = "") -> Key:
    """A key that holds a whole number from 1 on."""
    return Key(name, Holds.COUNT, text, "a whole number of at least 1", "N", field)


@dataclass(frozen=True)
class StatedValues:
    """What was stated, and where, for errors."""

    values: Mapping[str, object]  # by key
    where: str  # in words
    folders: Sequence[Path] = ()  # the user's own, of files that names are looked up in

    def refused(self, key: Key) -> ScenarioError:
        """What to raise for a value that a key cannot hold."""
        return ScenarioError(
            f"{key.name!r} of {self.where} is {self.values[key.name]!r}, where {key.expected} is "
            "expected"
        )

    def fields(self, keys: Sequence[Key]) -> dict[str, int | str | bool]:
        """Counts, names and flags that are stated under these keys, by field."""
        found: dict[str, int | str | bool] = {}
        for key in keys:
            value = self.values.get(key.name)
            if value is None:
                continue
            if not _is_held(key.holds, value):
                raise self.refused(key)
            if isinstance(value, int | str):
                found[key.filled] = value
        return found

    def table(self, key: Key) -> Mapping[str, object]:
        """A table; nothing counts as an empty one."""
        value = self.values.get(key.name, {})
        if not isinstance(value, Mapping):
            raise self.refused(key)
        return {str(name): each for name, each in value.items()}

    def factors(self, key: Key) -> Iterator[tuple[str, float]]:
        """Entries of a table of factors."""
        for name, value in self.table(key).items():
            if not is_factor(value):
                raise self.refused(key)
            yield name, float(str(value))

    def times(self, key: Key) -> Iterator[tuple[str, int]]:
        """Entries of a table of times, in ns."""
        for name, value in self.table(key).items():
            yield name, duration_ns_of(value)

    def names(self, key: Key) -> tuple[str, ...]:
        """One text or several; `true` stands for everything."""
        value = self.values.get(key.name)
        listed = value if isinstance(value, list | tuple) else (value,)
        if value is None or value is False:
            return ()
        if value is True:
            return (EVERYTHING,)
        if not all(isinstance(one, str) and one for one in listed):
            raise self.refused(key)
        return tuple(map(str, listed))

    def names_of_work(self, key: Key) -> Iterator[tuple[str, Selection]]:
        """Names and the work that each is for, of texts like `NAME=WORK`; all work without."""
        for text in self.names(key):
            name, _, work = text.partition("=")
            yield name.strip(), selection_of(work) if work.strip() else Selection()

    def counts(self, keys: Sequence[Key]) -> dict[str, int]:
        """The same as `fields`, where every key holds a count."""
        return {name: int(each) for name, each in self.fields(keys).items()}


def _is_held(holds: Holds, value: object) -> bool:
    if holds is Holds.COUNT:
        return type(value) is int and value >= 1
    return (
        isinstance(value, bool) if holds is Holds.FLAG else isinstance(value, str) and value != ""
    )


def duration_ns_of(text: object) -> int:
    """Nanoseconds, rounded, of `2ms`, `1.5 us` or `-300 ns`.

    Raises:
        ScenarioError: if it is no time with its unit.
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ScenarioError(
            f"{text!r} is no time: write a number with its unit (s, ms, us or ns), as in '2 ms'"
        )
    return round(float(match[1]) * NS_PER_UNIT[match[2]])


def is_factor(value: object) -> bool:
    """Whether something is a number above 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < float(str(value)) < float("inf")


def check_factor(factor: float) -> None:
    """Refuse what no time can be multiplied by.

    Raises:
        ScenarioError: if it is below 0, infinite or no number.
    """
    if not 0 <= factor < float("inf"):
        raise ScenarioError(f"a factor must be 0 or more, got {factor}")


def hash_of_entries(entries: Mapping[str, object]) -> int:
    """A hash of a mapping's entries, whatever their order."""
    return hash(tuple(sorted((key, repr(each)) for key, each in entries.items())))


class Edit(ABC):
    """A frozen value that changes one thing about a scenario."""

    KEYS: ClassVar[tuple[Key, ...]] = ()
    TURNS: ClassVar[tuple[EditTurn, ...]]

    @classmethod
    @abstractmethod
    def stated(cls, stated: StatedValues) -> Iterator[Self]:
        """The edits of this class that keys state."""

    @abstractmethod
    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this change.

        Raises:
            ScenarioError: if the scenario has nothing that it could change.
        """

    @abstractmethod
    def sentence(self, before: Scenario) -> str:
        """One line that says what changes: `layers 40 -> 80`."""

    def as_json(self) -> dict[str, object]:
        """Its name, and what its fields hold, selections as they are written."""
        held = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return {"edit": type(self).__name__, **{name: _plain(one) for name, one in held.items()}}


class WorkEdit(Edit):
    """An edit of durations and dependencies, of a recording as of an estimate."""

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario that has this edit too."""
        return replace(scenario, changes=(*scenario.changes, self))

    @property
    def changes_nothing(self) -> bool:
        """Whether it states that everything stays: a factor of 1."""
        return False

    @property
    def order(self) -> str:
        """Edits of one turn are made in this order, so that the one given makes no difference."""
        return repr(self)

    def workspace_bytes(self, graph: ExecutionGraph, chip: Chip | None) -> int:  # noqa: ARG002  few need any
        """What its kernels hold on a device while they run, beside what the job holds."""
        return 0

    @abstractmethod
    def check(self, job: CostedJob) -> None:
        """Refuse what names nothing in the job, or needs what is not stated.

        Raises:
            ScenarioError: naming what there is.
        """

    @abstractmethod
    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:
        """The job with this edit's part of a turn."""


def _plain(value: object) -> object:
    if isinstance(value, Selection):
        return value.written
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)

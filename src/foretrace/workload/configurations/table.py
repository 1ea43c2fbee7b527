"""What a configuration of other software says, setting by setting, and the plan's fields for it.

One row says both ways what settings mean: reading and writing are made of the same table, so what
is written reads back as it was. A field is one of `Plan` ("tensor", "overlap.gradients"), or a key
of a model's file ("shape.layers").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from foretrace.base import Count, DescriptionKey, Share, WorkloadError, read_value

Fields: TypeAlias = Mapping[str, Any]
Values: TypeAlias = Mapping[str, Any]

_UNRESOLVED = "$"
_OPEN = (None, "", "auto")  # what leaves a setting to the software

_NOTHING: tuple[object, ...] = (None, False, "", 0, "none", "no", "auto", [], {})


@dataclass(frozen=True)
class Settings:
    """Settings of a configuration by name, asked for by kind."""

    values: Values
    where: str  # in words, for an error

    def has(self, *names: str) -> bool:
        """Whether any of them is set."""
        return any(self.values.get(name) not in _OPEN for name in names)

    def of(self, name: str, kind: Any) -> Any:
        """The value under a name, strictly read.

        Raises:
            WorkloadError: if it is of another kind, or a shell variable that nothing sets.
        """
        value = self.values.get(name)
        if isinstance(value, str) and _UNRESOLVED in value:
            variable = value.lstrip(_UNRESOLVED).strip("{}")
            raise WorkloadError(
                f"{name!r} of {self.where} is {value!r}, and nothing sets {variable}: set it in "
                f"front, as in {variable}=1, or write its value"
            )
        return read_value(value, DescriptionKey(name, kind), self.where, error=WorkloadError)

    def count(self, name: str, default: int = 0) -> int:
        """A whole number of at least one."""
        found = self.of(name, Count) if self.has(name) else default
        return int(found)

    def number(self, name: str, default: float = 0.0) -> float:
        """A number of at least zero."""
        return float(self.of(name, Share)) if self.has(name) else default

    def flag(self, name: str) -> bool:
        """Whether it is set, and not to false."""
        return bool(self.of(name, bool)) if self.has(name) else False

    def word(self, name: str, default: str = "") -> str:
        """A text."""
        return str(self.of(name, str)) if self.has(name) else default


@dataclass(frozen=True)
class SettingRow:
    """Settings that say the same as fields."""

    names: tuple[str, ...]  # of settings
    read: Callable[[Settings], Fields]
    write: Callable[[Fields], Values]


@dataclass(frozen=True)
class JobConfiguration:
    """What a configuration says, in our words; what it leaves open follows from the ranks."""

    software: str  # the format's name
    fields: Fields = field(default_factory=dict)
    model: Mapping[str, Mapping[str, object]] | None = None  # tables of a model's file
    model_name: str = ""  # of a model that is known by its name
    no_model: str = ""  # why there is no model; a sentence's end
    num_ranks: int | None = None
    passes: int | None = None  # microbatches of one copy of the model in a step
    replicas: int | None = None  # copies of what is sharded
    preset: str = ""  # of a plan: what the software does that no setting says
    notes: tuple[str, ...] = ()  # what has no counterpart, and what was not understood


@dataclass(frozen=True)
class ConfigurationText:
    """A configuration as it stands somewhere."""

    text: str
    where: str  # in words, for an error
    path: Path | None = None  # `None`: it is no file
    part: str = ""  # the function of a Python file


@dataclass(frozen=True)
class ConfigurationFormat:
    """How one software's configurations are told, read and written."""

    name: str  # "megatron"
    title: str  # in sentences: "Megatron-LM's arguments"
    recognises: Callable[[str], bool]  # a text
    read: Callable[[ConfigurationText], JobConfiguration]
    rows: tuple[SettingRow, ...]
    text: Callable[[Values, JobConfiguration], str]  # settings, and sizes that are no settings


def row(
    names: str, read: Callable[[Settings], Fields], write: Callable[[Fields], Values]
) -> SettingRow:
    """Settings, with spaces between their names, that say the same as fields by two functions."""
    return SettingRow(tuple(names.split()), read, write)


def sized(name: str, field_name: str, default: int | None = None) -> SettingRow:
    """A whole number; one that is left out is the software's default."""

    def read(given: Settings) -> Fields:
        if given.has(name):
            return {field_name: given.count(name)}
        return {} if default is None else {field_name: default}

    def write(fields: Fields) -> Values:
        value = fields.get(field_name)
        return {} if value is None or value == default else {name: value}

    return SettingRow((name,), read, write)


def switched(
    name: str, field_name: str, *, turns: bool = True, default: bool | None = None
) -> SettingRow:
    """A switch.

    Args:
        name: of the setting.
        field_name: of the field.
        turns: what the field is where the setting is true.
        default: of the setting, where it is left out.
    """

    def read(given: Settings) -> Fields:
        is_set = given.flag(name) if given.has(name) or default is None else default
        return {field_name: is_set == turns}

    def write(fields: Fields) -> Values:
        is_set = fields[field_name] == turns
        return {name: is_set} if is_set != bool(default) else {}

    return SettingRow((name,), read, write)


def worded(name: str, field_name: str, words: Mapping[str, str], default: str = "") -> SettingRow:
    """A word for a word; of several that mean the same, the first is written."""
    ours = {meant: word for word, meant in reversed(tuple(words.items()))}

    def read(given: Settings) -> Fields:
        word = given.word(name, default)
        if word and word not in words:
            raise WorkloadError(
                f"{name!r} of {given.where} is {word!r}, which has no counterpart: expected is "
                f"one of {', '.join(words)}; set it to one of these, or leave it out"
            )
        return {field_name: words[word]} if word else {}

    def write(fields: Fields) -> Values:
        word = ours.get(str(fields[field_name]))
        return {} if word is None or word == default else {name: word}

    return SettingRow((name,), read, write)


def read_rows(rows: Sequence[SettingRow], given: Settings) -> dict[str, Any]:
    """Every field that settings say something about."""
    found: dict[str, Any] = {}
    for row in rows:
        found.update(row.read(given))
    return found


def written_rows(rows: Sequence[SettingRow], fields: Fields) -> dict[str, Any]:
    """Settings that say these fields."""
    found: dict[str, Any] = {}
    for row in rows:
        found.update(row.write(fields))
    return found


def unread_notes(
    given: Settings,
    rows: Sequence[SettingRow],
    *,
    lacking: Mapping[str, str],
    idle: Callable[[str], object],
    title: str,
) -> Iterator[str]:
    """Sentences on settings that no row reads.

    Args:
        given: all settings.
        rows: what reads them.
        lacking: those that are known and that no plan can say, with what they do.
        idle: whether a setting of that name changes neither time nor memory.
        title: of the format.
    """
    known = {name for row in rows for name in row.names}
    rest = [
        name
        for name, value in given.values.items()
        if name not in known and value not in _NOTHING and not idle(name)
    ]
    if without := [f"{name} ({lacking[name]})" for name in rest if name in lacking]:
        yield f"of {title} these have no counterpart in a plan: {', '.join(without)}"
    if strange := [name for name in rest if name not in lacking]:
        yield f"of {title} these were not understood: {', '.join(strange)}"

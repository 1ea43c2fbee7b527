"""`Plain`: a value whose JSON is its fields, and the properties that it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias

Json: TypeAlias = Any  # builtins as JSON has them


class Plain:
    """A dataclass that becomes builtins: its fields by name, and what else it says."""

    # Attributes that are said instead of the fields, `of.another` too; properties beside the
    # fields; what goes under another name ("" leaves one out).
    json_only: ClassVar[tuple[str, ...]] = ()
    json_also: ClassVar[tuple[str, ...]] = ()
    json_names: ClassVar[Mapping[str, str]] = {}

    def as_json(self) -> Json:
        """Everything, as builtins; times in ns, sizes in bytes."""
        return plain_fields(self)


def plain_fields(value: object) -> dict[str, Json]:
    """A dataclass as a mapping, the values in it as builtins."""
    names: Mapping[str, str] = getattr(value, "json_names", {})
    also: tuple[str, ...] = getattr(value, "json_also", ())
    only: tuple[str, ...] = getattr(value, "json_only", ())
    own = [one.name for one in fields(value)] if is_dataclass(value) else []
    return {
        names.get(key, key): plain(attrgetter(key)(value))
        for key in (*(only or own), *also)
        if names.get(key, key)
    }


def plain(value: object) -> Json:
    """A value as JSON has it: enumerations by text or name, arrays as lists."""
    if isinstance(value, Enum):
        return value.name.lower() if isinstance(value, IntEnum) else plain(value.value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(held) for key, held in value.items()}
    if isinstance(value, tuple | list | set):
        return [plain(one) for one in value]
    return _plain_object(value)


def _plain_object(value: object) -> Json:
    said = getattr(value, "as_json", None)
    if callable(said):
        return said()
    if is_dataclass(value):
        return plain_fields(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)  # an array; a path

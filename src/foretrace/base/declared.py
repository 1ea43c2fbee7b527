"""What a key of a description may hold, said once as a type, and read strictly.

A kind is a type that msgspec converts to: `Count`, `bool`, an enum, `tuple[Share, ...]`. It says
the range too, so that numbers which are none (NaN, infinities, digits without end) are refused;
the words of an error follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, EnumType
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import msgspec

from foretrace.base.documents import Citation, Table, check_keys
from foretrace.base.errors import ModelError

LARGEST_COUNT = 2**40  # far beyond any job, so that products of counts stay exact
# Far beyond any model: the deepest here has 128 layers, the one with most experts 512 in each.
MOST_LAYERS, MOST_EXPERTS = 10_000, 10_000
# Ranks of a job; the largest published ran on about 100,000 devices. Tables of more would fill the
# memory.
MOST_RANKS = 1 << 20
_LARGEST = 1e300  # of numbers with decimals: products of a few stay finite
_MAX_SHOWN = 60  # letters of a wrong value that an error repeats

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_COUNT)]
Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=_LARGEST)]
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=_LARGEST)]
Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]

_WORDS: Mapping[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}


@dataclass(frozen=True)
class DescriptionKey:
    """One key of a description."""

    name: str  # as it is written: "tp"
    kind: Any  # a type that msgspec converts to
    table: str = ""  # the table that it stands in: "parallelism"
    field: str = ""  # what it sets, where that is called otherwise
    is_required: bool = False
    expected: str = ""  # in words for an error; those of the kind, if left out
    made: Callable[[Any, str], Any] | None = None  # of the value, and of where it stands in words

    @property
    def path(self) -> str:
        """Table and name: "parallelism.tp"."""
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def words(self) -> str:
        """What it may hold."""
        return self.expected or words_of(self.kind)


@dataclass(frozen=True)
class Statement:
    """What a description says under one key, and why it is believed."""

    value: Any
    source: Citation | None
    assumed: str  # the reason, where a source gives it in part or not at all; else ""
    note: str


_PARTS = (
    DescriptionKey("value", Any),
    DescriptionKey("source", Text),
    DescriptionKey("assumed", str),
    DescriptionKey("note", str),
)


def read_statements(
    table: Table,
    keys: Sequence[DescriptionKey],
    where: str,
    *,
    sources: Mapping[str, Citation],
    error: type[ModelError],
) -> dict[str, Statement]:
    """What a table states with its sources, by name in the order of `keys`.

    An entry is a value, or `{ value = 126, source = "paper" }`, where `paper` is a key of the
    file's `[sources]`, or `{ value = 126, assumed = "why" }`.

    Raises:
        ModelError: `error`, for a key that is unknown or missing, or a source that is not listed.
    """
    _check_all(table, keys, where, error=error, remedy="add them, or extend a preset")
    found = {}
    for key in keys:
        if key.name not in table:
            continue
        written, place = table[key.name], f"{key.name!r} of {where}"
        parts: Table = written if isinstance(written, Mapping) else {"value": written}
        stated = read_keys(parts, _PARTS, place, error=error)
        if "value" not in stated:
            raise error(f"{place} has no value: write it as {{ value = ..., source = ... }}")
        found[key.name] = Statement(
            value=read_value(stated["value"], key, where, error=error),
            source=_source(stated.get("source"), sources, place, error=error),
            assumed=stated.get("assumed", ""),
            note=stated.get("note", ""),
        )
    return found


def _source(
    key: str | None, sources: Mapping[str, Citation], place: str, *, error: type[ModelError]
) -> Citation | None:
    if key is None or key in sources:
        return None if key is None else sources[key]
    near = get_close_matches(key, sources, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise error(
        f"{place} names the source {key!r}, which [sources] does not hold (it has "
        f"{', '.join(sources) or 'none'}): add its title and url there{hint}"
    )


def read_keys(
    table: Table, keys: Sequence[DescriptionKey], where: str, *, error: type[ModelError]
) -> dict[str, Any]:
    """What a table states, by name, each as its key's kind.

    Raises:
        ModelError: `error`, for a key that is unknown or missing, or a value that it cannot hold.
    """
    _check_all(table, keys, where, error=error)
    return {
        key.name: read_value(table[key.name], key, where, error=error)
        for key in keys
        if key.name in table
    }


def read_fields(
    table: Table, keys: Sequence[DescriptionKey], where: str, *, error: type[ModelError]
) -> dict[str, Any]:
    """What a table states, by the fields that its keys set: arguments of the class it describes.

    Raises:
        ModelError: as `read_keys`.
    """
    stated = read_keys(table, keys, where, error=error)
    return {key.field or key.name: stated[key.name] for key in keys if key.name in stated}


def _check_all(
    table: Table,
    keys: Sequence[DescriptionKey],
    where: str,
    *,
    error: type[ModelError],
    remedy: str = "add them",
) -> None:
    """Refuse keys that are unknown, and the lack of one that is required."""
    check_keys(table, [key.name for key in keys], where, error=error)
    if missing := [key.name for key in keys if key.is_required and key.name not in table]:
        raise error(f"{where} lacks {', '.join(missing)}: {remedy}")


def read_value(written: object, key: DescriptionKey, where: str, *, error: type[ModelError]) -> Any:
    """What is written under a key, as its kind.

    Raises:
        ModelError: `error`, if the key cannot hold it, with what it can and the nearest word.
    """
    try:
        value = msgspec.convert(written, key.kind)
    except (msgspec.ValidationError, RecursionError):
        pass
    else:
        return value if key.made is None else key.made(value, f"{key.name!r} of {where}")
    near = get_close_matches(str(written), words_allowed(key.kind), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    shown = repr(written)
    shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
    raise error(f"{key.name!r} of {where} is {shown}, where {key.words} is expected{hint}")


def words_allowed(kind: Any) -> tuple[str, ...]:
    """The words that a kind allows; none, if it is not one of a few words."""
    if isinstance(kind, EnumType):
        members: Mapping[str, Enum] = kind.__members__
        return tuple(str(each.value) for each in members.values())
    return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()


def words_of(kind: Any) -> str:
    """What a value of this kind is, in words."""
    if allowed := words_allowed(kind):
        return f"one of {', '.join(allowed)}" if len(allowed) > 1 else repr(allowed[0])
    if get_origin(kind) is Annotated:
        kind, limits = get_args(kind)[:2]
        return _WORDS[kind] + _limits(limits)
    if get_origin(kind) in (tuple, list):
        return f"a list, each {words_of(get_args(kind)[0])},"
    return _WORDS[kind]


def _limits(limits: msgspec.Meta) -> str:
    if limits.gt is not None:
        return f" above {limits.gt:g}"
    if limits.ge is None:
        return ""
    is_open = limits.le is None or limits.le >= LARGEST_COUNT
    return f" of at least {limits.ge:g}" + ("" if is_open else f" and at most {limits.le}")

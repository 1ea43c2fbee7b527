"""What people write about work and time as values: `gemm layers:0-3` is a selection, `2ms` a time.

A selection is words with spaces between: a class or family of work alone (`gemm`, `flash
attention`), `all`, or `kernels:PATTERN`, `operators:PATTERN`, `part:NAME`, `phase:NAME`,
`layers:0,4-7`, `ranks:3`; `with-host` takes the host's time in too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import IntEnum
from typing import TypeVar

from foretrace.base import ScenarioError
from foretrace.graph import Part, Phase
from foretrace.whatif.changes.selection import Selection

EVERYTHING = "all"
WITH_HOST = "with-host"
SELECTION_EXAMPLE = "'gemm', 'kernels:*flash*' or 'gemm layers:0-3 ranks:1'"

_DURATION = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*(s|ms|us|ns)\s*")
_NS_PER_UNIT = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_LARGEST_NUMBER = 2**20  # of a layer or rank: a slip of the hand must not fill the memory

Member = TypeVar("Member", bound=IntEnum)


def selection_of(text: str) -> Selection:
    """The work that a text names.

    Raises:
        ScenarioError: if a word of it means nothing.
    """
    found: dict[str, object] = {}
    words = text.split()
    if not words:
        raise ScenarioError(
            f"{text!r} names no work: write 'all', a family or more, as in {SELECTION_EXAMPLE}"
        )
    for word in words:
        name, colon, value = word.partition(":")
        if word == WITH_HOST:
            found["with_host"] = True
        elif not colon and word != EVERYTHING:
            found["family"] = f"{found['family']} {word}" if "family" in found else word
        elif colon:
            key = _key(name, word)
            if key in found:
                raise ScenarioError(f"{text!r} states {key} twice: state it once")
            found[key] = _READERS[key](value)
    return Selection(**found)  # type: ignore[arg-type]  # read for their fields


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
    return round(float(match[1]) * _NS_PER_UNIT[match[2]])


def _key(name: str, word: str) -> str:
    key = name if name in _READERS else f"{name}s"
    if key in _READERS:
        return key
    near = get_close_matches(name, _READERS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"an operator is 'operators:{word}'"
    raise ScenarioError(
        f"{word!r} begins with {name!r}, which selects nothing: allowed are "
        f"{', '.join(f'{key}:' for key in _READERS)}; {hint}"
    )


def _numbers(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        first = int(match[1]) if match else 0
        last = int(match[2] or match[1]) if match else -1
        if not first <= last <= _LARGEST_NUMBER:
            raise ScenarioError(f"{text!r} are no numbers: write them as in 0,4-7")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def _member(kind: type[Member]) -> Callable[[str], Member]:
    names = {one.name.lower(): one for one in kind if one}

    def read(text: str) -> Member:
        if text in names:
            return names[text]
        near = get_close_matches(text, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ScenarioError(
            f"no {kind.__name__.lower()} is called {text!r}: expected one of "
            f"{', '.join(names)}{hint}"
        )

    return read


def _text(text: str) -> str:
    if not text:
        raise ScenarioError(f"a selection names nothing: write it as in {SELECTION_EXAMPLE}")
    return text


_READERS: Mapping[str, Callable[[str], object]] = {
    "family": _text,
    "kernels": _text,
    "operators": _text,
    "part": _member(Part),
    "phase": _member(Phase),
    "layers": _numbers,
    "ranks": _numbers,
}

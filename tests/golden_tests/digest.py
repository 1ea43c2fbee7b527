"""`digest`: a JSON document of any length as one short line for each path in it.

    steps[].ranks[].replayed_ns -> "int 16 of 3801234 [237399552, 236904605, ...] 1f2e3d4c"

Indices of lists fall together, so that paths name columns: how many values, of which type, their
sum, the first of them, and a hash over all in order. A key or a number that differs is named by
its path.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping

from tests.golden_tests.table import rounded

LEADING = 3  # values that are shown
SHORT = 40  # characters of a text that are shown


def digest(document: object) -> dict[str, object]:
    """What each path of a document holds; the value itself where there is one short one."""
    columns: dict[str, list[object]] = {}
    for path, value in _scalars(rounded(document), ""):
        columns.setdefault(path, []).append(value)
    return {path: _column(values) for path, values in columns.items()}


def hashed(value: object) -> str:
    """Eight digits that stand for a JSON value."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def hashes(document: Mapping[str, object], *, without: Collection[str]) -> dict[str, str]:
    """A hash for each key of a document that is not kept in full."""
    return {key: hashed(rounded(value)) for key, value in document.items() if key not in without}


def _scalars(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _scalars(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for one in value:
            yield from _scalars(one, f"{path}[]")
    else:
        yield path, value


def _column(values: list[object]) -> object:
    if len(values) == 1 and len(json.dumps(values[0])) <= 2 * SHORT:
        return values[0]
    types = "/".join(sorted({type(value).__name__ for value in values}))
    integers = [value for value in values if type(value) is int]
    total = f" of {sum(integers)}" if len(integers) == len(values) else ""
    shown = ", ".join(_shown(value) for value in values[:LEADING])
    more = ", ..." if len(values) > LEADING else ""
    return f"{types} {len(values)}{total} [{shown}{more}] {hashed(values)}"


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHORT else f"{text[:SHORT]}~"

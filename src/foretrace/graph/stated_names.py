"""`StatedNames`: what a user's TOML says that kernels are, where their names do not tell.

    [[rule]]
    name = "*my_experts*dispatch*"
    class = "collective"

Patterns are shell wildcards, upper and lower case alike; the first rule that matches wins. What a
kernel was stated to be goes with its name, as in `my_kernel [as gemm]`, so that every answer shows
it and takes it for that. A collective's kind follows from its name where that holds one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import numpy as np

from foretrace.base import DescriptionKey, GraphError, Text, parsed_toml, read_keys
from foretrace.operators import OperatorClass, with_class
from foretrace.trace import Category, ChakraTrace, Trace

_CLASSES = tuple(str(kind) for kind in OperatorClass)
_RULE_KEYS = (
    DescriptionKey("name", Text, is_required=True, expected="a pattern such as '*my_kernel*'"),
    DescriptionKey("class", Literal[_CLASSES], is_required=True),
)
_FILE_KEYS = (
    DescriptionKey("rule", tuple[dict[str, object], ...], expected="tables headed [[rule]]"),
)
_MOST_NAMED = 3


@dataclass(frozen=True)
class StatedNames:
    """Rules in their order: a pattern, and the class of what it matches."""

    rules: tuple[tuple[str, OperatorClass], ...]
    path: Path

    def kind_of(self, name: str) -> OperatorClass | None:
        """What a kernel is stated to be; none: nothing is said of it."""
        lowered = name.lower()
        return next((kind for text, kind in self.rules if fnmatchcase(lowered, text)), None)


def read_names(path: Path) -> StatedNames:
    """The names that a file states.

    Raises:
        GraphError: if the file is no TOML, or has a key or value that is not allowed.
        OSError: if the file cannot be read.
    """
    where = f"names file {str(path)!r}"
    stated = read_keys(parsed_toml(path, GraphError), _FILE_KEYS, where, error=GraphError)
    rules = []
    for number, table in enumerate(stated.get("rule", ()), start=1):
        rule = read_keys(table, _RULE_KEYS, f"rule {number} of {where}", error=GraphError)
        missing = [key.name for key in _RULE_KEYS if key.name not in rule]
        if missing:
            raise GraphError(f"rule {number} of {where} lacks {', '.join(missing)}: add them")
        rules.append((str(rule["name"]).lower(), OperatorClass(rule["class"])))
    return StatedNames(tuple(rules), path)


def with_stated_names(
    traces: Iterable[Trace | ChakraTrace], names: StatedNames
) -> tuple[Trace, ...]:
    """The traces, their kernels' names with what they were stated to be.

    Raises:
        GraphError: if a rule matches no kernel, or a file states no kernels' names.
    """
    found: list[Trace] = []
    matched: set[str] = set()
    seen: dict[str, None] = {}
    for trace in traces:
        if not isinstance(trace, Trace):
            raise GraphError(
                f"names file {str(names.path)!r}: a Chakra graph says itself what communicates; "
                "names are stated for profiler files"
            )
        strings = list(trace.strings)
        used = np.unique(trace.name[trace.category == Category.KERNEL])
        for index in used.tolist():
            name = strings[index]
            seen[name] = None
            matched |= {text for text, _ in names.rules if fnmatchcase(name.lower(), text)}
            kind = names.kind_of(name)
            if kind is not None:
                strings[index] = with_class(name, kind)
        found.append(replace(trace, strings=tuple(strings)))
    missing = [text for text, _ in names.rules if text not in matched]
    if missing:
        told = ", ".join(repr(name[:60]) for name in list(seen)[:_MOST_NAMED]) or "none"
        raise GraphError(
            f"names file {str(names.path)!r}: no kernel is called {missing[0]!r} (there are "
            f"{len(seen)}, as {told}); patterns match whole names, with * for any text"
        )
    return tuple(found)

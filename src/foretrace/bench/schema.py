"""`Schema`: an operator's schema text becomes its name, its arguments and its results.

The text is PyTorch's own: "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) ->
Tensor(a!)".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from keyword import iskeyword

# Operators of PyTorch whose names look like Python's own methods.
_DUNDER = frozenset(
    f"__{in_place}{name}__"
    for in_place in ("", "i")
    for name in ("and", "or", "xor", "lshift", "rshift")
)
_OPENING, _CLOSING = "([{<", ")]}>"


@dataclass(frozen=True)
class Parameter:
    """One argument that an operator takes."""

    type: str  # "Tensor(a!)", "SymInt[]", "ScalarType?", ...
    name: str
    default: str | None  # its text; none: it must be given
    is_keyword: bool

    @property
    def base_type(self) -> str:
        """The type without aliasing and optionality: "Tensor", "SymInt[]", "ScalarType"."""
        return _without_aliasing(self.type).rstrip("?")


@dataclass(frozen=True)
class Schema:
    """An operator's signature."""

    namespace: str  # "aten"
    name: str  # "add_"
    overload: str  # "Tensor"; "default" where the text names none
    parameters: tuple[Parameter, ...]
    results: tuple[str, ...]  # types

    @property
    def operator(self) -> str:
        """Name with its namespace: "aten::add_"."""
        return f"{self.namespace}::{self.name}"


@lru_cache(maxsize=4096)
def parsed_schema(text: str) -> Schema | None:
    """The schema in this text; none where the text is none, or names what Python could not.

    Args:
        text: as an execution trace records it.
    """
    head, _, rest = text.replace(" -> *", "").partition("(")  # of `Tensor(a -> *)`
    namespace, _, full_name = head.partition("::")
    inside, arrow, results = _cut(rest)
    if not full_name or not arrow:
        return None
    name, _, overload = full_name.partition(".")
    overload, parameters = overload or "default", _parameters(inside)
    names = [namespace, *(one.name for one in parameters if one.is_keyword)]
    is_called = (name in _DUNDER or _is_plain(name)) and not iskeyword(name)
    if not is_called or not _is_plain(overload) or not all(map(_is_plain, names)):
        return None
    return Schema(namespace, name, overload, parameters, _results(results))


def _is_plain(name: str) -> bool:
    """Whether it is a name that Python's own machinery does not use."""
    return name.isascii() and name.isidentifier() and not name.startswith("__")


def _cut(rest: str) -> tuple[str, str, str]:
    """What stands inside the arguments' brackets, the arrow, and what follows it."""
    depth = 1
    for position, letter in enumerate(rest):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            _, arrow, results = rest[position + 1 :].partition("->")
            return rest[:position], arrow, results.strip()
    return "", "", ""


def _parameters(text: str) -> tuple[Parameter, ...]:
    found, is_keyword = [], False
    for part in top_level_parts(text):
        if part == "*":
            is_keyword = True
            continue
        declared, has_default, default = part.partition("=")
        kind, _, name = declared.strip().rpartition(" ")
        found.append(Parameter(kind, name, default if has_default else None, is_keyword))
    return tuple(found)


def _results(text: str) -> tuple[str, ...]:
    if not text or text == "()":
        return ()
    inside = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    kinds = (part.split(" ")[0] for part in top_level_parts(inside))
    return tuple(_without_aliasing(kind) for kind in kinds)


def _without_aliasing(kind: str) -> str:
    """A type without its alias set: "Tensor(a!)[]" is "Tensor[]"."""
    head, has_set, rest = kind.partition("(")
    return head + rest.partition(")")[2] if has_set else kind


def top_level_parts(text: str) -> tuple[str, ...]:
    """Parts between commas that no bracket encloses, stripped; empty text has none."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return (*parts, text[start:].strip()) if text.strip() else ()

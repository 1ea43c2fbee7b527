"""`Change`: work or waiting that takes a stated factor of its time, and how a person writes one.

    class=gemm:0.8                 every matrix product takes 80% of its time
    collective=allreduce:0         all-reduces are free
    rank=3,class=gemm|attention:1.2
    name=*flash_fwd*,layer=0-9:0.5
    edge=launch:0.5                the latency from launch to kernel halves
    edge=wake:removed              the host does not wait for the device

Conditions of one change hold together; a `|` stands between alternatives.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TypeAlias

import numpy as np

from foretrace.analyze.attributes import NUMBERED, Field, attribute, edge_values
from foretrace.base import Bools, ScenarioError
from foretrace.graph import ExecutionGraph, NodeKind

REMOVED = "removed"
_NEXT_FIELD = re.compile(r",(?=\s*[a-z]+\s*=)")  # names of kernels hold commas too
_RANGE = re.compile(r"(\d+)-(\d+)")
_MAX_NAMED = 5


@dataclass(frozen=True)
class Condition:
    """One field and the values it may have."""

    field: Field
    values: tuple[str, ...]  # globs without regard to case; of numbers also ranges, "0-9"

    def __str__(self) -> str:
        """As it is written: `class=gemm|attention`."""
        return f"{self.field}={'|'.join(self.values)}"

    def chosen(self, values: tuple[str, ...]) -> Bools:
        """Which of a field's values the condition names; bool[values]."""
        found = np.zeros(len(values), np.bool_)
        for wanted in self.values:
            found |= np.array([self._is_meant(wanted, one) for one in values], np.bool_)
        return found

    def _is_meant(self, wanted: str, value: str) -> bool:
        span = _RANGE.fullmatch(wanted) if self.field in NUMBERED else None
        if span is not None:
            return int(span[1]) <= int(value) <= int(span[2])
        return value == wanted or fnmatchcase(value.lower(), wanted.lower())


Conditions: TypeAlias = tuple[Condition, ...]


@dataclass(frozen=True)
class Change:
    """What meets all conditions takes `factor` times as long (0.8: 20% less), or is removed."""

    select: Conditions
    factor: float  # 0 or more
    is_removed: bool = False  # edges that no longer hold; `factor` has no meaning then

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not self.select or not (math.isfinite(self.factor) and self.factor >= 0):
            raise ScenarioError(
                f"a change needs a condition and a factor of 0 or more, got {str(self)!r}: write "
                'for example "class=gemm:0.8".'
            )
        if self.on_edges and len(self.select) > 1:
            raise ScenarioError(
                f"change {str(self)!r}: edges are chosen by their kind alone, leave the other "
                "conditions out."
            )
        if self.is_removed and not self.on_edges:
            raise ScenarioError(
                f"change {str(self)!r}: only edges can be removed; give work a factor of 0."
            )

    @property
    def on_edges(self) -> bool:
        """Whether it is about waiting between nodes, not about work."""
        return any(condition.field == Field.EDGE for condition in self.select)

    def __str__(self) -> str:
        """As it is written: `rank=3,class=gemm:1.2`."""
        factor = REMOVED if self.is_removed else f"{self.factor:g}"
        return f"{','.join(str(condition) for condition in self.select)}:{factor}"


def read_change(text: str) -> Change:
    """A change as a person writes it, see above.

    Raises:
        ScenarioError: if it has no factor, an unknown field, or an empty value.
    """
    selection, colon, factor = text.rpartition(":")
    factor = factor.strip()
    if not colon or not (factor == REMOVED or _is_number(factor)):
        raise ScenarioError(
            f"change {text!r} does not end with a factor: expected `{text.strip()}:0.8` for 20% "
            f"less time, `:0` for none, or `:{REMOVED}` of edges."
        )
    is_removed = factor == REMOVED
    select = tuple(_condition(one, text) for one in _NEXT_FIELD.split(selection))
    return Change(select, 0.0 if is_removed else float(factor), is_removed)


def selected(graph: ExecutionGraph, select: Conditions) -> Bools:
    """Nodes that meet all conditions; bool[nodes]. The start of a rank is nobody's work.

    Raises:
        ScenarioError: if a condition names nothing in the graph, or all of them together do not.
    """
    mask: Bools = graph.kind > NodeKind.STEP_END
    for condition in select:
        found = attribute(graph, condition.field)
        present = np.bincount(found.label + 1, minlength=len(found.values) + 1)[1:] > 0
        chosen = condition.chosen(found.values) & present
        if not chosen.any():
            have = [one for one, has in zip(found.values, present.tolist(), strict=True) if has]
            raise ScenarioError(_nothing(condition, have))
        mask &= found.mask(chosen)
    if not mask.any():
        raise ScenarioError(
            f"nothing meets {','.join(str(one) for one in select)!r}: each condition has nodes, "
            "but none has them all; leave one out."
        )
    return mask


def selected_edges(condition: Condition) -> Bools:
    """Kinds of edges that a condition names; bool[edge kinds].

    Raises:
        ScenarioError: if it names none.
    """
    chosen = condition.chosen(edge_values())
    if not chosen.any():
        raise ScenarioError(_nothing(condition, list(edge_values())))
    return chosen


def _condition(text: str, whole: str) -> Condition:
    """One `field=value|value`."""
    name, equals, values = text.strip().partition("=")
    allowed = [field.value for field in Field]
    if not equals or name.strip() not in allowed:
        near = get_close_matches(name.strip(), allowed, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ScenarioError(
            f"change {whole!r}: {text.strip()!r} is not field=value with a field of "
            f"{', '.join(allowed)}.{hint}"
        )
    alternatives = tuple(one.strip() for one in values.split("|"))
    if not all(alternatives):
        raise ScenarioError(f"change {whole!r}: {name.strip()!r} has an empty value.")
    return Condition(Field(name.strip()), alternatives)


def _is_number(text: str) -> bool:
    """Whether a factor can be read; its range is the change's to judge."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _nothing(condition: Condition, have: list[str]) -> str:
    """A condition names nothing: what is there instead, nearest first."""
    named = list(dict.fromkeys([*_near(condition, have), *have]))[:_MAX_NAMED]
    rest = f" and {len(have) - len(named)} more" if len(have) > len(named) else ""
    there = f"there are {', '.join(repr(one) for one in named)}{rest}" if have else "none is known"
    return f"no {condition.field} is called {'|'.join(condition.values)!r}: {there}."


def _near(condition: Condition, have: list[str]) -> Iterator[str]:
    """Existing values that look or sound like those asked for."""
    for wanted in condition.values:
        plain = wanted.strip("*").lower()
        yield from (one for one in have if plain and plain in one.lower())
        by_lower = {one.lower(): one for one in have}
        yield from (by_lower[one] for one in get_close_matches(plain, by_lower, _MAX_NAMED))

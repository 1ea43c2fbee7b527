"""Edits of a model's sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from foretrace.base import LARGEST_COUNT, MOST_LAYERS, ScenarioError
from foretrace.whatif.edits.edit import Edit, EditTurn, StatedValues, count_key
from foretrace.whatif.resize.named import Sizes

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario


def _resized(scenario: Scenario, **sizes: int) -> Scenario:
    return replace(scenario, sizes=replace(scenario.sizes, **sizes))


def _line(before: Scenario, field: str, words: str, count: int) -> str:
    was = getattr(before.sizes, field)
    return f"{words} {'unknown' if was is None else f'{was:,}'} -> {count:,}"


def _check(words: str, count: int, *, most: int = LARGEST_COUNT) -> None:
    if type(count) is not int or not 1 <= count <= most:
        raise ScenarioError(f"{words} must be a whole number from 1 to {most:,}, got {count!r}")


@dataclass(frozen=True)
class Layers(Edit):
    """So many layers, over all stages."""

    count: int

    KEYS = (count_key("layers", "Layers, over all stages.", "count"),)
    TURNS = (EditTurn.SIZES,)

    def __post_init__(self) -> None:
        """Refuse what is no number of layers."""
        _check("layers", self.count, most=MOST_LAYERS)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Layers]:
        """One, if their number is stated."""
        for count in stated.counts(cls.KEYS).values():
            yield cls(count)

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with so many layers."""
        return _resized(scenario, layers=self.count)

    def sentence(self, before: Scenario) -> str:
        """`layers 40 -> 80`."""
        return _line(before, "layers", "layers", self.count)


@dataclass(frozen=True, kw_only=True)
class Widths(Edit):
    """Other widths of the model; what is left out stays.

    Two follow where they did before, unless they are stated: the width of a head, where the heads
    together are as wide as the model, and heads of keys and values, where each head has its own.
    """

    hidden: int | None = None
    feed_forward: int | None = None
    heads: int | None = None
    key_value_heads: int | None = None
    head_width: int | None = None
    vocabulary: int | None = None
    experts: int | None = None

    KEYS = (
        count_key("hidden", "Width between layers."),
        count_key("ffn", "Width inside feed-forward blocks.", "feed_forward"),
        count_key("heads", "Attention heads."),
        count_key("kv_heads", "Heads of keys and values.", "key_value_heads"),
        count_key("head_width", "Width of one head."),
        count_key("vocabulary", "Tokens there are."),
        count_key("experts", "Experts of a layer."),
    )
    TURNS = (EditTurn.SIZES,)

    def __post_init__(self) -> None:
        """Refuse what is no width."""
        if not self._widths():
            raise ScenarioError("no width is stated: give one, as in Widths(hidden=8192)")
        for name, count in self._widths().items():
            _check(name, count)

    def _widths(self) -> dict[str, int]:
        names = [each for each in Sizes.__dataclass_fields__ if each != "layers"]
        return {name: each for name in names if (each := getattr(self, name)) is not None}

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Widths]:
        """One of all widths that are stated."""
        widths = stated.counts(cls.KEYS)
        if widths:
            yield cls(**widths)

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with these widths, and with what follows from them.

        Raises:
            ScenarioError: if heads do not divide the hidden size they fill, or key-value heads the
                heads.
        """
        return _resized(scenario, **self._all(scenario.sizes))

    def sentence(self, before: Scenario) -> str:
        """`hidden 4,096 -> 8,192, head_width 128 -> 256`."""
        stated = self._all(before.sizes)
        return ", ".join(_line(before, name, name, each) for name, each in stated.items())

    def _all(self, before: Sizes) -> dict[str, int]:
        """What is stated, and what follows."""
        found = self._widths()
        own_heads = before.heads is not None and before.heads == before.key_value_heads
        if "heads" in found and "key_value_heads" not in found and own_heads:
            found["key_value_heads"] = found["heads"]
        if ("hidden" in found or "heads" in found) and "head_width" not in found:
            width = _head_width(before, replace(before, **found))
            if width is not None:
                found["head_width"] = width
        _check_key_heads(replace(before, **found))
        return found


def _head_width(before: Sizes, after: Sizes) -> int | None:
    """Of the heads that fill the hidden size; none where they did not, or nothing is known."""
    if None in {before.hidden, before.heads, before.head_width} or after.hidden is None:
        return None
    heads, hidden = after.heads or 1, after.hidden
    if (before.heads or 1) * (before.head_width or 1) != before.hidden:
        return None
    if hidden % heads:
        nearest = max(round(hidden / heads), 1) * heads
        raise ScenarioError(
            f"{heads} heads do not divide a hidden size of {hidden:,}, which they fill "
            f"({before.heads} x {before.head_width} before): take hidden {nearest:,}, or state "
            "heads and head_width in the same edit."
        )
    return hidden // heads


def _check_key_heads(sizes: Sizes) -> None:
    heads, keys = sizes.heads, sizes.key_value_heads
    if heads is None or keys is None or heads % keys == 0:
        return
    divisors = [each for each in range(1, heads + 1) if heads % each == 0]
    nearest = min(divisors, key=lambda each: (abs(each - keys), each))
    raise ScenarioError(
        f"{heads} heads do not share {keys} key-value heads evenly: take "
        f"{nearest} key-value heads, or a multiple of {keys} heads."
    )

"""Edits of a model's sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrace.base import ScenarioError
from foretrace.whatif.resize.sizes import Sizes
from foretrace.whatif.scenario import Scenario


def _resized(scenario: Scenario, **sizes: int) -> Scenario:
    return replace(scenario, sizes=replace(scenario.sizes, **sizes))


def _line(before: Scenario, field: str, words: str, count: int) -> str:
    was = getattr(before.sizes, field)
    return f"{words} {'unknown' if was is None else f'{was:,}'} -> {count:,}"


def _check(words: str, count: int) -> None:
    if type(count) is not int or count < 1:
        raise ScenarioError(f"{words} must be a whole number from 1 on, got {count!r}")


@dataclass(frozen=True)
class Layers:
    """So many layers, over all stages."""

    count: int

    def __post_init__(self) -> None:
        """Refuse what is no number of layers."""
        _check("layers", self.count)

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with so many layers."""
        return _resized(scenario, layers=self.count)

    def sentence(self, before: Scenario) -> str:
        """`layers 40 -> 80`."""
        return _line(before, "layers", "layers", self.count)


@dataclass(frozen=True, kw_only=True)
class Widths:
    """Other widths of the model; what is left out stays."""

    hidden: int | None = None
    feed_forward: int | None = None
    heads: int | None = None
    key_value_heads: int | None = None
    head_width: int | None = None
    vocabulary: int | None = None
    experts: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no width."""
        if not self._stated():
            raise ScenarioError("no width is stated: give one, as in Widths(hidden=8192)")
        for name, count in self._stated().items():
            _check(name, count)

    def _stated(self) -> dict[str, int]:
        names = [each for each in Sizes.__dataclass_fields__ if each != "layers"]
        return {name: each for name in names if (each := getattr(self, name)) is not None}

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with these widths."""
        return _resized(scenario, **self._stated())

    def sentence(self, before: Scenario) -> str:
        """`hidden 4,096 -> 8,192, feed_forward 16,384 -> 32,768`."""
        return ", ".join(_line(before, name, name, each) for name, each in self._stated().items())

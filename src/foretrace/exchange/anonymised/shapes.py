"""Shapes, and what gives them away, multiplied by a factor."""

from __future__ import annotations

from dataclasses import dataclass

# Numbers below are ranks of tensors, positions of dimensions and codes of data types.
_LEAST_SIZE = 32


@dataclass(frozen=True)
class Scale:
    """Multiplies every dimension above 1: equal dimensions stay equal, so products still fit."""

    factor: float = 1.0

    @property
    def is_on(self) -> bool:
        """Whether anything changes."""
        return self.factor != 1.0

    def size(self, number: int) -> int:
        """One dimension, or a number of elements or bytes."""
        return max(1, round(number * self.factor)) if number > 1 else number

    def sizes(self, value: object) -> object:
        """Dimensions in lists of any depth."""
        if isinstance(value, bool) or not isinstance(value, int | list):
            return value
        if isinstance(value, list):
            return [self.sizes(inner) for inner in value]
        return self.size(value)

    def value(self, value: object) -> object:
        """A plain value: whole numbers large enough to be a dimension."""
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        if isinstance(value, bool) or not isinstance(value, int) or value < _LEAST_SIZE:
            return value
        return self.size(value)

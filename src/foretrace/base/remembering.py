"""`Remembering`: a frozen value that keeps what functions made of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Self, TypeVar, cast

_Made = TypeVar("_Made")


class Remembering:
    """What many questions ask of one value is made once, and goes with it."""

    def once(self, make: Callable[[Self], _Made]) -> _Made:
        """What `make` makes of this value; kept, so that many may ask.

        Args:
            make: a function or a class of a module, whose answers nobody writes to.
        """
        if make not in self._made:
            self._made[make] = make(self)
        return cast("_Made", self._made[make])

    @cached_property
    def _made(self) -> dict[Callable[[Any], object], object]:
        return {}

    def __getstate__(self) -> dict[str, object]:
        """What goes to another process: what can be made again stays."""
        return {name: value for name, value in self.__dict__.items() if name != "_made"}

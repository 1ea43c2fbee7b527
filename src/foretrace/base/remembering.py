"""`Remembering`: a frozen value that keeps what functions made of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Self, TypeVar, TypeVarTuple, cast

_Given = TypeVarTuple("_Given")
_Made = TypeVar("_Made")


class Remembering:
    """What many questions ask of one value is made once, and goes with it."""

    def once(self, make: Callable[[Self, *_Given], _Made], *given: *_Given) -> _Made:
        """What `make` makes of this value; kept, so that many may ask.

        Args:
            make: a function or a class of a module, whose answers nobody writes to.
            given: what else it takes, and what has few values: an answer is kept for each.
        """
        key = (make, *given)
        if key not in self._made:
            self._made[key] = make(self, *given)
        return cast("_Made", self._made[key])

    @cached_property
    def _made(self) -> dict[tuple[object, ...], object]:
        return {}

    def __getstate__(self) -> dict[str, object]:
        """What goes to another process: what can be made again stays."""
        return {name: value for name, value in self.__dict__.items() if name != "_made"}

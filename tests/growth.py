"""How the work of an action grows, counted, so that no clock judges it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

_HOME = "/foretrace/"
_MOST_GROWTH = 2.3  # of what another doubling adds; 2 is linear, 4 quadratic


def grows_in_proportion(actions: Sequence[Callable[[], object]]) -> bool:
    """Whether three actions, each of twice the size of the one before, do as much more work."""
    first, second, third = map(lines_run, actions)
    return third - second < _MOST_GROWTH * (second - first)


def lines_run(action: Callable[[], object]) -> int:
    """Lines of this package's Python that an action runs, turns of comprehensions too."""
    count = 0

    def in_frame(*_: Any) -> Any:
        nonlocal count
        count += 1
        return in_frame

    def entered(frame: FrameType, *_: Any) -> Any:
        return in_frame if _HOME in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        action()
    finally:
        sys.settrace(before)
    return count

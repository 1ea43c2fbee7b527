"""`mapped`: work spread over processes, answered in order; sweeps start theirs here."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Protocol, TypeVar

_Asked = TypeVar("_Asked")
_Found = TypeVar("_Found")


class Mapper(Protocol):
    """What `map` is, wherever the function runs."""

    def __call__(
        self, function: Callable[[_Asked], _Found], asked: Iterable[_Asked], /
    ) -> Iterator[_Found]:
        """What the function finds for each, in order."""


@contextmanager
def mapped(workers: int) -> Iterator[Mapper]:
    """A `map` over so many processes; one does its work here.

    An interrupt is this process's to answer; others end what they are at.
    """
    if workers <= 1:
        yield _here
        return
    # A fork would copy the locks that numba and polars hold.
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_leave_interrupts) as pool:
        yield pool.map


def _here(function: Callable[[_Asked], _Found], asked: Iterable[_Asked], /) -> Iterator[_Found]:
    return map(function, asked)


def _leave_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

"""Runs of calls that repeat: one layer after the other, one parameter after the other.

A run is a window of calls that follows itself, with the same operators, the same plain arguments
and the same wiring inside. It is written as a function that is called several times.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s

_LEAST_PERIOD = 3  # calls; a shorter body says less than it hides
_LEAST_SAVED = 6  # lines
_MOST_PERIOD = 1024


@dataclass(frozen=True)
class RepeatedCalls:
    """`count` windows of `period` calls from `start` on."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        """The first call after it."""
        return self.start + self.period * self.count

    def windows(self) -> Iterator[range]:
        """Calls of each window."""
        for begin in range(self.start, self.stop, self.period):
            yield range(begin, begin + self.period)


@dataclass(frozen=True)
class Item:
    """What matters of a call to whether it repeats another."""

    key: Hashable  # operator and plain arguments; none: never part of a run
    reads: tuple[int, ...]  # values, in order
    makes: tuple[int, ...]


def runs_of(items: Sequence[Item]) -> tuple[RepeatedCalls, ...]:
    """Runs that do not overlap, in order; those that save most are taken first."""
    ids: dict[Hashable, int] = {}
    keys = np.array(
        [
            -1 - i if item.key is None else ids.setdefault(item.key, len(ids))
            for i, item in enumerate(items)
        ],
        dtype=np.int64,
    )
    return tuple(_within(items, keys, start=0, stop=len(items)))


def _within(
    items: Sequence[Item], keys: Int64s, *, start: int, stop: int
) -> Iterator[RepeatedCalls]:
    best = _best_run(items, keys[start:stop], offset=start)
    if best is not None:
        yield from _within(items, keys, start=start, stop=best.start)
        yield best
        yield from _within(items, keys, start=best.stop, stop=stop)


def _best_run(items: Sequence[Item], keys: Int64s, *, offset: int) -> RepeatedCalls | None:
    found: list[tuple[int, int, int]] = []  # saved, -period, start
    for period in range(_LEAST_PERIOD, min(_MOST_PERIOD, len(keys) // 2) + 1):
        is_same = keys[:-period] == keys[period:]
        edges = np.flatnonzero(np.diff(np.concatenate(([0], is_same.astype(np.int8), [0]))))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            saved = (end - begin) // period * period
            if saved >= _LEAST_SAVED:
                found.append((saved, -period, begin))
    found.sort(reverse=True)
    best: RepeatedCalls | None = None
    for saved, negative_period, begin in found:
        if best is not None and saved <= best.period * (best.count - 1):
            break
        run = _alike(items, begin + offset, -negative_period, count=saved // -negative_period + 1)
        gain = run.period * (run.count - 1)
        if gain >= _LEAST_SAVED and (best is None or gain > best.period * (best.count - 1)):
            best = run
    return best


def _alike(items: Sequence[Item], start: int, period: int, *, count: int) -> RepeatedCalls:
    """The longest run inside of one, of windows whose wiring is the same."""
    wirings = [
        wiring(items[begin : begin + period])
        for begin in range(start, start + period * count, period)
    ]
    best, first = RepeatedCalls(start, period, 1), 0
    for i in range(1, count + 1):
        if i == count or wirings[i] != wirings[first]:
            if i - first > best.count:
                best = RepeatedCalls(start + first * period, period, i - first)
            first = i
    return best


def wiring(window: Sequence[Item]) -> tuple[tuple[int, ...], ...]:
    """What each call of a window reads: positions of what was made in it, or came from outside."""
    known: dict[int, int] = {}
    outside = 0
    result = []
    for item in window:
        row = []
        for value in item.reads:
            if value not in known:
                outside -= 1
                known[value] = outside
            row.append(known[value])
        for value in item.makes:
            known[value] = len(known) + 1 if value not in known else known[value]
        result.append(tuple(row))
    return tuple(result)

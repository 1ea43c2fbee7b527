"""Two sequences of names laid beside each other: runs in common first, then what lies between."""

from __future__ import annotations

import numpy as np

from foretrace.base import Int64s, Integers, joined_ranges

# Names in a row that mark a place. Long enough to be rare, short enough to lie within a layer.
_RUN = 8
_GAP = 4  # places in a row that may differ inside one stretch
_ENOUGH = 0.9  # share of names that long stretches explain in traces of one run
_MOST_PAIRS = 10**9  # bits of the table that finds the most common names: 125 MB
_MOST_PLACES = 256  # places of a run in the longer sequence that are looked at
_FACTOR = 1_000_003


def aligned_names(names: Integers, others: Integers) -> tuple[Int64s, bool]:
    """For each name its place in the other sequence, rising, -1 where it has none.

    Long stretches in common are laid beside each other first, so that one iteration meets one
    iteration. Where they leave much over, the sequences are of different runs, and the most
    names that can be paired in order are.

    Returns:
        Places, int64[names], and whether another part of `others` would have fitted as well.
    """
    found, is_tied = _by_stretches(names, others)
    is_enough = (found >= 0).sum() >= _ENOUGH * len(names)
    if is_enough or len(names) * len(others) > _MOST_PAIRS:
        return found, is_tied
    longest = _longest_common(names.tolist(), others.tolist())
    return (longest, True) if (longest >= 0).sum() > (found >= 0).sum() else (found, is_tied)


def _longest_common(names: list[int], others: list[int]) -> Int64s:
    """Places of a longest common subsequence: int64[names], -1 for names outside it.

    Rows of the table are integers with a bit per place, 0 where the length grows.
    Source: Hyyro, Bit-parallel LCS-length computation revisited, AWOCA 2004.
    """
    places: dict[int, int] = {}
    for at, name in enumerate(others):
        places[name] = places.get(name, 0) | 1 << at
    everything = (1 << len(others)) - 1
    rows = [everything]
    for name in names:
        row = rows[-1]
        meets = row & places.get(name, 0)
        rows.append((row + meets | row - meets) & everything)
    found = np.full(len(names), -1, np.int64)
    row, column = len(names), len(others)
    while row and column:
        if rows[row] >> column - 1 & 1:
            column -= 1
        elif not rows[row - 1] >> column - 1 & 1:
            row -= 1
        else:
            row, column = row - 1, column - 1
            found[row] = column
    return found


def _by_stretches(names: Integers, others: Integers) -> tuple[Int64s, bool]:
    """Places by long stretches in common alone."""
    found = np.full(len(names), -1, np.int64)
    is_tied = False
    # Parts of both that are still to be laid beside each other.
    parts = [(0, len(names), 0, len(others))]
    while parts:
        begin, end, first, last = parts.pop()
        shift, tied = _best_shift(names[begin:end], others[first:last])
        if shift is None:
            continue
        is_tied |= tied and begin == 0 and end == len(names)
        low, high = max(0, -shift), min(end - begin, last - first - shift)
        mine = np.arange(low, high)
        same = mine[names[begin + mine] == others[first + shift + mine]]
        same = _longest_stretch(same)
        if not len(same):
            continue
        found[begin + same] = first + shift + same
        head, tail = int(same[0]), int(same[-1])
        parts.append((begin, begin + head, first, first + head + shift))
        parts.append((begin + tail + 1, end, first + tail + shift + 1, last))
    return found, is_tied


def _longest_stretch(same: Int64s) -> Int64s:
    """Of rising places the stretch with most, in which no two neighbours lie far apart.

    Where it ends, the sequences went on differently, and another shift may fit better.
    """
    if not len(same):
        return same
    bounds = np.flatnonzero(np.diff(same) > _GAP) + 1
    begins, ends = np.append(0, bounds), np.append(bounds, len(same))
    longest = int(np.argmax(ends - begins))
    return same[begins[longest] : ends[longest]]


def _best_shift(names: Integers, others: Integers) -> tuple[int | None, bool]:
    """By how much the other sequence is ahead where most runs agree; whether two shifts tie."""
    length = min(_RUN, len(names), len(others))
    if length == 0:
        return None, False
    mine, theirs = _hashes(names, length), _hashes(others, length)
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    begin = np.searchsorted(ordered, mine)
    count = np.minimum(np.searchsorted(ordered, mine, side="right") - begin, _MOST_PLACES)
    row = np.repeat(np.arange(len(mine)), count)
    if not len(row):
        return None, False
    shifts, votes = np.unique(order[joined_ranges(begin, count)] - row, return_counts=True)
    best = int(votes.max())
    return int(shifts[np.argmax(votes)]), int((votes == best).sum()) > 1


def _hashes(names: Integers, length: int) -> Int64s:
    """A number for every run of so many names."""
    total = np.zeros(len(names) - length + 1, np.uint64)
    for at in range(length):
        part = names[at : len(names) - length + 1 + at].astype(np.uint64)
        total = total * np.uint64(_FACTOR) + part + np.uint64(1)
    return total.view(np.int64)

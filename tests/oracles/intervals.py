"""Sets of moments as sets of integers: [start, end) is range(start, end)."""

from __future__ import annotations

from collections.abc import Iterable


def moments(spans: Iterable[tuple[int, int]]) -> set[int]:
    """Every integer moment that some span covers."""
    return {moment for start, end in spans for moment in range(start, end)}


def spans_of(covered: set[int]) -> list[tuple[int, int]]:
    """The longest spans that cover exactly these moments, rising."""
    spans: list[tuple[int, int]] = []
    for moment in sorted(covered):
        if spans and spans[-1][1] == moment:
            spans[-1] = (spans[-1][0], moment + 1)
        else:
            spans.append((moment, moment + 1))
    return spans


def by_bin(covered: set[int], bin_ns: int, num_bins: int) -> list[int]:
    """How many moments lie in each bin."""
    return [
        len(covered & set(range(index * bin_ns, (index + 1) * bin_ns))) for index in range(num_bins)
    ]

"""Items are dealt to bins so that the fullest bin is not much fuller than it must be."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def greedy(
    costs: Sequence[float],
    num_bins: int,
    *,
    sizes: Sequence[int] | None = None,
    room: Sequence[int] | None = None,
    loads: Sequence[float] | None = None,
) -> list[int]:
    """A bin for each item: the largest cost first, into the bin that has least so far.

    Equal costs go by size, the largest first, then by position; equal loads by bin.

    Args:
        costs: of each item.
        num_bins: 1 or more.
        sizes: of each item, what takes room; 0 if left out.
        room: of each bin; without end if left out.
        loads: what each bin has to begin with; nothing if left out.

    Returns:
        The bin of each item, -1 for one that no bin has room for.

    Raises:
        ValueError: if there is no bin.
    """
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, got {num_bins}")
    size = list(sizes) if sizes is not None else [0] * len(costs)
    left = list(room) if room is not None else None
    begin = list(loads) if loads is not None else [0.0] * num_bins
    by_load = [(load, at) for at, load in enumerate(begin)]
    heapq.heapify(by_load)
    bins = [-1] * len(costs)
    for item in sorted(range(len(costs)), key=lambda at: (-costs[at], -size[at], at)):
        full: list[tuple[float, int]] = []
        while by_load:
            load, chosen = heapq.heappop(by_load)
            if left is None or left[chosen] >= size[item]:
                bins[item] = chosen
                if left is not None:
                    left[chosen] -= size[item]
                full.append((load + costs[item], chosen))
                break
            full.append((load, chosen))
        for each in full:
            heapq.heappush(by_load, each)
    return bins


def differencing(costs: Sequence[float], num_bins: int) -> list[int]:
    """A bin for each item, by the largest differencing method of Karmarkar and Karp.

    Every item begins as a partition of its own; the two partitions whose fullest and emptiest
    bins differ most become one, the fullest bin of one with the emptiest of the other.

    Raises:
        ValueError: if there is no bin.
    """
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, got {num_bins}")
    if not costs:
        return []
    heap: list[tuple[float, int, list[tuple[float, tuple[int, ...]]]]] = []
    for item, cost in enumerate(costs):
        empty: tuple[int, ...] = ()
        parts = [*[(0.0, empty)] * (num_bins - 1), (float(cost), (item,))]
        heap.append((parts[0][0] - parts[-1][0], item, parts))
    heapq.heapify(heap)
    number = len(costs)
    while len(heap) > 1:
        _, _, first = heapq.heappop(heap)
        _, _, second = heapq.heappop(heap)
        merged = sorted(
            (one[0] + other[0], one[1] + other[1])
            for one, other in zip(first, reversed(second), strict=True)
        )
        heapq.heappush(heap, (merged[0][0] - merged[-1][0], number, merged))
        number += 1
    bins = [0] * len(costs)
    for at, (_, items) in enumerate(heap[0][2]):
        for item in items:
            bins[item] = at
    return bins

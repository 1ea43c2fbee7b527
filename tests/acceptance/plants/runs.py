"""The recorded runs of this folder, and what was planted in each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """What is planted, in which rank of how many, and how much."""

    cause: str
    num_ranks: int
    rank: int
    amount: float  # seconds; objects; entries that are looked up; batches in one


RUNS = {
    "stall": Run("stall", 1, 0, 0.12),
    "stall-of-two": Run("stall", 2, 1, 0.5),
    "collection": Run("garbage collection", 1, 0, 1_500_000),
    "collection-of-two": Run("garbage collection", 2, 0, 1_500_000),
    "loader": Run("late loader", 1, 0, 0.06),
    "loader-of-two": Run("late loader", 2, 1, 0.06),
    "operator": Run("slow operator", 2, 1, 1 << 23),
    "operator-of-first": Run("slow operator", 2, 0, 1 << 23),
    "uneven": Run("uneven work", 2, 1, 4),
    "uneven-more": Run("uneven work", 2, 0, 6),
}

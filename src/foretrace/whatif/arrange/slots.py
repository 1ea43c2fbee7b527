"""What stood last at a place, and before that: how a dependency is found again in a new order.

A dependency from one piece of a program to another cannot be copied with either of them. It is
kept as "the k-th last node of that kind on that lane before me": 0 is the last. Nodes that can be
meant together share a *slot*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s

NO_PLACE = -1


@dataclass(frozen=True)
class SlotIndex:
    """Places 0, 1, ... in issue order, of which each belongs to one slot or to none."""

    num_places: int
    key: Int64s  # int64[members], slot x places + place, rising
    first: Int64s  # int64[slots + 1], where each slot's members begin

    @staticmethod
    def of(slot: Int64s, num_slots: int) -> SlotIndex:
        """The index of a column that gives each place its slot; below 0: in none."""
        member = np.flatnonzero(slot >= 0)
        member = member[np.argsort(slot[member], kind="stable")]
        own = slot[member]
        first = np.searchsorted(own, np.arange(num_slots + 1)).astype(np.int64)
        return SlotIndex(len(slot), own * len(slot) + member, first)

    def num_before(self, slot: Int64s, place: Int64s) -> Int64s:
        """How many members of a slot stand before a place; int64[questions]."""
        found: Int64s = np.searchsorted(self.key, slot * self.num_places + place)
        return found - self.first[slot]

    def num_between(self, slot: Int64s, member: Int64s, place: Int64s) -> Int64s:
        """How many members of a slot stand behind one of them and before a place.

        Of a place before the member: less than 0, so that `nth_last` finds it again.
        """
        return self.num_before(slot, place) - 1 - self.num_before(slot, member)

    def nth_last(self, slot: Int64s, place: Int64s, back: Int64s) -> Int64s:
        """Place of the `back`-th last member of a slot before a place; NO_PLACE where none is.

        Args:
            slot: slots asked for, int64[questions]; below 0: none.
            place: places before which to look, int64[questions].
            back: 0 for the last, 1 for the one before; -1 for the first not before the place.
        """
        asked = np.maximum(slot, 0)
        at = self.num_before(asked, place) - 1 - back
        is_there = (slot >= 0) & (at >= 0) & (at < self.first[asked + 1] - self.first[asked])
        found = np.full(len(slot), NO_PLACE, np.int64)
        member = self.first[asked[is_there]] + at[is_there]
        found[is_there] = self.key[member] - asked[is_there] * self.num_places
        return found

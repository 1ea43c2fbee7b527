"""How dependencies are found again in a new order, by definition, on plain lists."""

from __future__ import annotations

from collections.abc import Sequence


def nth_last(slots: Sequence[int], slot: int, place: int, back: int) -> int:
    """Place of the `back`-th last member of a slot before a place; -1 where none is.

    Below 0, `back` counts on from the place: -1 is the first member not before it.
    """
    members = [at for at, own in enumerate(slots) if own == slot]
    before = sum(at < place for at in members)
    at = before - 1 - back
    return members[at] if slot >= 0 and 0 <= at < len(members) else -1


def last_in_new_order(
    slots: Sequence[int], edge: tuple[int, int], order: Sequence[int], place: int
) -> int:
    """Where a copy at `place` of an edge's target finds what it waits for; -1: nowhere.

    Args:
        slots: slot of each recorded node, nodes in issue order.
        edge: recorded source and target.
        order: recorded node at each place of the new program.
        place: of the target's copy.
    """
    source, target = edge
    back = sum(own == slots[source] for own in slots[source + 1 : target])
    found = [at for at in range(place) if slots[order[at]] == slots[source]]
    return found[-1 - back] if back < len(found) else -1

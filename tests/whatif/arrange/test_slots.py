"""What stood last at a place is what the definition says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretrace.whatif.arrange.source import SlotIndex
from tests.oracles import arrange as oracle

_slots = st.lists(st.integers(-1, 3), min_size=1, max_size=30)


@given(_slots, st.data())
def test_last_members_are_those_of_the_definition(slots: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(slots) - 1))
    slot, back = data.draw(st.integers(-1, 3)), data.draw(st.integers(-2, 5))
    index = SlotIndex.of(np.array(slots, np.int64), 4)

    found = index.nth_last(np.array([slot]), np.array([place]), np.array([back]))

    assert found.tolist() == [oracle.nth_last(slots, slot, place, back)]


@given(_slots, st.data())
def test_what_is_counted_in_one_order_is_found_in_another(
    slots: list[int], data: st.DataObject
) -> None:
    target = data.draw(st.integers(0, len(slots) - 1))
    source = data.draw(st.integers(0, target))
    order = data.draw(st.lists(st.integers(0, len(slots) - 1), min_size=1, max_size=40))
    place = data.draw(st.integers(0, len(order) - 1))
    recorded = SlotIndex.of(np.array(slots, np.int64), 4)
    index = SlotIndex.of(np.array([slots[node] for node in order], np.int64), 4)
    asked = np.array([slots[source]])
    if slots[source] < 0 or source == target:
        return

    back = recorded.num_between(asked, np.array([source]), np.array([target]))
    found = index.nth_last(asked, np.array([place]), back)

    assert found.tolist() == [oracle.last_in_new_order(slots, (source, target), order, place)]

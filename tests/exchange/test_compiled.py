from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.exchange import _compiled
from tests.oracles import exchange as oracle

LARGEST = 2**63 - 1
AT_NS = st.integers(0, 2**62)
ID = st.integers(1, 2**40)
EVENTS = st.tuples(
    st.tuples(
        AT_NS, st.sampled_from([1, 2, 4]), ID, st.integers(0, 2**31), st.integers(-LARGEST, LARGEST)
    ),
    st.lists(st.tuples(ID, st.sampled_from([0, 1]), st.integers(-LARGEST, LARGEST)), max_size=3),
    st.lists(st.tuples(st.integers(1, LARGEST), st.sampled_from([0, 1])), max_size=3),
)


def ranges(lists: list[list[tuple[int, ...]]]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Where each list begins and ends in all of them joined."""
    ends = np.cumsum([0, *(len(each) for each in lists)])
    return np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64)


@pytest.mark.compiled
@given(st.lists(EVENTS, max_size=6))
def test_packets_are_what_the_definition_says(
    rows: list[tuple[tuple[int, ...], list[tuple[int, int, int]], list[tuple[int, int]]]],
) -> None:
    events = [event for event, _, _ in rows]
    arguments = [own for _, own, _ in rows]
    flows = [ends for _, _, ends in rows]
    buffer = np.zeros(1000 * (len(rows) + 1), np.uint8)
    most = (
        _compiled.MOST_EVENT_BYTES * len(events)
        + _compiled.MOST_ARGUMENT_BYTES * sum(map(len, arguments))
        + _compiled.FLOW_BYTES * sum(map(len, flows))
    )

    written = _compiled.events_into(
        buffer,
        np.array(events, np.int64).reshape(-1, 5),
        np.array([one for own in arguments for one in own], np.int64).reshape(-1, 3),
        ranges([list(own) for own in arguments]),
        np.array([one for ends in flows for one in ends], np.int64).reshape(-1, 2),
        ranges([list(ends) for ends in flows]),
    )

    assert buffer[:written].tobytes() == oracle.packets(events, arguments, flows)
    assert written <= most


@pytest.mark.compiled
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 9)), max_size=30).map(
        sorted
    )
)
def test_spans_of_a_sublane_do_not_overlap(rows: list[tuple[int, int, int]]) -> None:
    lanes = [lane for lane, _, _ in rows]
    spans = [(start, start + length) for _, start, length in rows]
    found = np.full(len(rows), -1, np.int64)

    _compiled.sublanes(
        np.array(lanes, np.int64),
        np.array([start for start, _ in spans], np.int64),
        np.array([end for _, end in spans], np.int64),
        found,
    )

    assert found.tolist() == oracle.sublanes(lanes, spans)

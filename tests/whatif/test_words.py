from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import ScenarioError
from foretrace.whatif.edits.edit import duration_ns_of


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [("2ms", 2_000_000), ("1.5 us", 1_500), ("-300 ns", -300), (" 1 s ", 10**9), ("0ms", 0)],
)
def test_times_have_units(text: str, duration_ns: int) -> None:
    assert duration_ns_of(text) == duration_ns


@pytest.mark.parametrize("text", ["2", "ms", "2 m", "2,5 ms", 2, None])
def test_a_time_without_a_unit_is_refused(text: object) -> None:
    with pytest.raises(ScenarioError, match="write a number with its unit"):
        duration_ns_of(text)


@given(st.integers(-(10**15), 10**15))
def test_whole_nanoseconds_are_kept(duration_ns: int) -> None:
    assert duration_ns_of(f"{duration_ns} ns") == duration_ns

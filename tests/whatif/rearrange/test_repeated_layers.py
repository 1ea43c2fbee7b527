"""Which recorded layer stands for which new one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.whatif.rearrange.repeated_layers import layer_sources, period, spread, stretched


def chunks(num_chunks: int, num_layers: int) -> dict[int, tuple[int, ...]]:
    """Layers of each chunk, evenly."""
    each = num_layers // num_chunks
    return {chunk: tuple(range(chunk * each, (chunk + 1) * each)) for chunk in range(num_chunks)}


def test_as_many_layers_are_the_same_layers() -> None:
    assert stretched(5, 5) == (0, 1, 2, 3, 4)


def test_more_layers_repeat_those_in_the_middle() -> None:
    assert stretched(6, 4) == (0, 1, 1, 2, 2, 3)


def test_fewer_layers_keep_the_ends() -> None:
    assert stretched(3, 6) == (0, 1, 5)


def test_layers_that_take_turns_keep_their_turns() -> None:
    places = stretched(12, 8, 2)

    assert [place % 2 for place in places] == [0, 1] * 6
    assert set(places) == set(range(8))


def test_what_is_repeated_once_more_keeps_the_mean() -> None:
    duration_ns = [10, 50, 10, 10, 12, 10]

    places = stretched(7, 6, 1, duration_ns)

    total = sum(duration_ns[place] for place in places)
    assert abs(total - 7 / 6 * sum(duration_ns)) < 10  # the nearest that one layer can make it


def test_no_layer_cannot_be_repeated() -> None:
    with pytest.raises(ValueError, match="no layer was recorded"):
        stretched(2, 0)


@given(st.integers(1, 60), st.integers(1, 20), st.lists(st.integers(1, 99), max_size=20))
def test_stretching_keeps_order_and_ends(new: int, old: int, known: list[int]) -> None:
    places = stretched(new, old, 1, known)

    assert len(places) == new
    assert list(places) == sorted(places)
    assert places[0] == 0
    if new > 1:
        assert places[-1] == old - 1
    counts = [places.count(place) for place in range(1, old - 1)]
    assert not counts or max(counts) - min(counts) <= 1


def test_even_spreading_is_a_quarter_each() -> None:
    assert spread(range(8), (3, 5, 7, 9)) == [3, 3, 5, 5, 7, 7, 9, 9]


def test_kinds_that_repeat_have_a_period() -> None:
    assert period(["x", "a", "b", "a", "b", "y"]) == 2
    assert period(["a"] * 6) == 1
    assert period(["a", "b", "c", "d", "e"]) == 1


def test_first_layers_of_stages_stay_first_and_others_stay_others() -> None:
    found = layer_sources(chunks(2, 8), chunks(4, 8), {})

    first_before = {0, 4}
    assert {found.forward[layer] for layer in (0, 2, 4, 6)} == first_before
    assert not {found.forward[layer] for layer in (1, 3, 5, 7)} & first_before
    # The backward pass begins with the last layer of a stage.
    last_before = {3, 7}
    assert {found.backward[layer] for layer in (1, 3, 5, 7)} == last_before
    assert not {found.backward[layer] for layer in (0, 2, 4, 6)} & last_before


def test_only_the_stage_that_embeds_repeats_the_one_that_embedded() -> None:
    found = layer_sources(chunks(2, 8), chunks(4, 8), {})

    assert [found.forward[layer] for layer in (0, 2, 4, 6)] == [0, 4, 4, 4]


def test_one_layer_a_stage_begins_both_passes() -> None:
    found = layer_sources(chunks(2, 4), chunks(2, 2), {})

    assert found.forward == {0: 0, 1: 2}
    assert found.backward == {0: 1, 1: 3}


def test_stages_that_stay_keep_their_own_layers() -> None:
    found = layer_sources(chunks(2, 6), chunks(2, 12), {})

    assert {found.forward[layer] for layer in range(6)} == {0, 1, 2}
    assert {found.forward[layer] for layer in range(6, 12)} == {3, 4, 5}

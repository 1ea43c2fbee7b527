from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.workload import Plan, chunk_layers


@given(st.integers(1, 16), st.integers(1, 8), st.integers(0, 130))
def test_chunks_hold_all_layers_as_evenly_as_can_be(stages: int, chunks: int, layers: int) -> None:
    found = chunk_layers(Plan(pipeline=stages, num_chunks=chunks), layers)

    assert len(found) == stages * chunks
    assert sum(found) == layers
    assert max(found) - min(found) <= 1


@given(st.integers(1, 16), st.integers(0, 130))
def test_shorter_chunks_stand_at_the_ends(stages: int, layers: int) -> None:
    found = chunk_layers(Plan(pipeline=stages), layers)

    middle = found.index(max(found))
    assert list(found[:middle]) == sorted(found[:middle])
    assert list(found[middle:]) == sorted(found[middle:], reverse=True)
    assert found[-1] <= found[0]


def test_llama_3_has_one_layer_less_on_the_first_and_on_the_last_stage() -> None:
    stages = chunk_layers(Plan(pipeline=16), 126)
    chunks = chunk_layers(Plan(pipeline=16, num_chunks=8), 126)

    assert stages == (7, *(8,) * 14, 7)
    assert chunks == (0, *(1,) * 126, 0)


def test_stated_layers_are_taken_as_they_are() -> None:
    assert chunk_layers(Plan(pipeline=3, layers_of_chunk=(5, 1, 0)), 6) == (5, 1, 0)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ((3, 3, 3), "has 3 numbers, and pp 2 x 1 chunks a stage = 2 chunks"),
        ((3, 4), "sums to 7 .* where the model has 6 layers"),
        ((7, -1), "smallest number is -1"),
    ],
)
def test_stated_layers_that_do_not_fit_are_refused(stated: tuple[int, ...], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        chunk_layers(Plan(pipeline=2, layers_of_chunk=stated), 6)

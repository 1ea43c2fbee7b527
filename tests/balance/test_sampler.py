"""A data loader draws every document once, the same in every process, and goes on where it was."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.balance import BatchSampler
from foretrace.base import WorkloadError

WINDOW = 512
LENGTHS = st.lists(st.integers(1, WINDOW), min_size=1, max_size=150)


def sampler_of(lengths: list[int], copy: int = 0, copies: int = 2, seed: int = 3) -> BatchSampler:
    return BatchSampler(
        lengths, window=WINDOW, num_microbatches=2, num_copies=copies, copy=copy, seed=seed
    )


@settings(max_examples=40, deadline=None)
@given(lengths=LENGTHS, copies=st.integers(1, 3))
def test_an_epoch_has_every_document_once(lengths: list[int], copies: int) -> None:
    own = [list(sampler_of(lengths, copy, copies)) for copy in range(copies)]

    seen = [document for each in own for microbatch in each for document in microbatch]

    assert sorted(seen) == list(range(len(lengths)))
    assert len({len(each) for each in own}) == 1  # copies make as many microbatches


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, WINDOW), min_size=30, max_size=150), stop=st.integers(0, 60))
def test_a_sampler_that_was_saved_goes_on(lengths: list[int], stop: int) -> None:
    straight = list(sampler_of(lengths))
    first, second = sampler_of(lengths), sampler_of(lengths, seed=99)
    before: list[list[int]] = []
    for microbatch in first:
        if len(before) == min(stop, len(straight) - 1):
            break
        before.append(microbatch)
    # What the loop was handed and did not use is lost, as with any loader that is cut off there.
    lost = straight[len(before)]

    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    after = list(second)

    assert [*before, lost, *after] == straight


def test_epochs_differ_and_come_again() -> None:
    lengths = np.random.default_rng(0).integers(1, WINDOW, 200).tolist()
    one, other = sampler_of(lengths), sampler_of(lengths)

    first, second = list(one), list(one)

    assert first != second
    assert [list(other), list(other)] == [first, second]


def test_microbatches_keep_to_their_length() -> None:
    lengths = np.random.default_rng(0).integers(1, WINDOW, 500)

    sizes = [int(lengths[microbatch].sum()) for microbatch in sampler_of(lengths.tolist())]

    assert max(sizes) <= WINDOW * 3 // 2


def test_a_document_longer_than_the_window_is_refused() -> None:
    with pytest.raises(WorkloadError, match="document 1 has 600 tokens, where microbatches take"):
        sampler_of([5, 600])


def test_a_copy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(WorkloadError, match="copy 2 of 2 does not exist"):
        sampler_of([5], copy=2)

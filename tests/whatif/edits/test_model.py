"""Edits of a model's sizes: what they change, what follows, and what they refuse."""

from __future__ import annotations

from itertools import permutations

import pytest

from foretrace.base import ScenarioError
from foretrace.whatif.edits.model import Layers, Widths
from foretrace.whatif.resize.named import Sizes
from foretrace.whatif.scenario import Scenario
from foretrace.workload import Plan

GPT = Scenario(
    sizes=Sizes(
        layers=40, hidden=4096, feed_forward=16_384, heads=32, key_value_heads=32, head_width=128
    ),
    plan=Plan(),
)
GROUPED = Scenario(
    sizes=Sizes(hidden=4096, heads=32, key_value_heads=8, head_width=160), plan=Plan()
)


def test_layers_change_layers_alone() -> None:
    after = Layers(80).applied(GPT)

    assert after.sizes.layers == 80
    assert Layers(40).applied(after) == GPT
    assert Layers(80).sentence(GPT) == "layers 40 -> 80"


def test_heads_that_fill_the_hidden_size_go_on_filling_it() -> None:
    edit = Widths(hidden=8192)

    assert edit.applied(GPT).sizes.head_width == 256
    assert edit.sentence(GPT) == "hidden 4,096 -> 8,192, head_width 128 -> 256"


def test_heads_that_do_not_fill_it_keep_their_width() -> None:
    assert Widths(hidden=8192).applied(GROUPED).sizes.head_width == 160


def test_each_head_goes_on_having_its_own_key_head() -> None:
    assert Widths(heads=64).applied(GPT).sizes.key_value_heads == 64
    assert Widths(heads=64).applied(GROUPED).sizes.key_value_heads == 8


def test_what_is_stated_does_not_follow() -> None:
    sizes = Widths(hidden=8192, head_width=128, heads=64, key_value_heads=8).applied(GPT).sizes

    assert (sizes.head_width, sizes.heads, sizes.key_value_heads) == (128, 64, 8)


@pytest.mark.parametrize(
    "edits",
    [
        (Widths(hidden=8192), Widths(heads=64), Widths(feed_forward=32_768)),
        (Widths(hidden=8192), Widths(head_width=64)),
        (Widths(heads=16), Widths(key_value_heads=4)),
        (Layers(4), Widths(hidden=2048), Widths(vocabulary=1000)),
    ],
)
def test_edits_of_different_sizes_commute(edits: tuple[Layers | Widths, ...]) -> None:
    found = []
    for order in permutations(edits):
        scenario = GPT
        for edit in order:
            scenario = edit.applied(scenario)
        found.append(scenario)

    assert all(one == found[0] for one in found)


@pytest.mark.parametrize(
    ("there", "back"),
    [
        (Widths(hidden=8192), Widths(hidden=4096)),
        (Widths(heads=64), Widths(heads=32)),
        (Widths(feed_forward=1), Widths(feed_forward=16_384)),
    ],
)
def test_an_edit_and_its_inverse_give_the_base_back(there: Widths, back: Widths) -> None:
    assert back.applied(there.applied(GPT)) == GPT


def test_heads_that_cannot_fill_a_hidden_size_are_refused_with_the_nearest_that_they_can() -> None:
    with pytest.raises(ScenarioError, match="take hidden 4,992"):
        Widths(hidden=5000).applied(GPT)


def test_key_heads_that_heads_do_not_share_evenly_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"32 heads do not share 5 key-value heads.*take 4"):
        Widths(key_value_heads=5).applied(GPT)


@pytest.mark.parametrize("count", [0, -1, True, 2.5])
def test_what_is_no_count_is_refused(count: int) -> None:
    with pytest.raises(ScenarioError, match="whole number from 1 to"):
        Widths(hidden=count)


def test_no_width_at_all_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"give one, as in Widths"):
        Widths()

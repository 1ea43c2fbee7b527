"""The one layer of every pipeline stage, told by what the stages have in common."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import Int32s
from foretrace.graph.blocks.layers import common_layer, of_usual_passes, place_of
from foretrace.graph.blocks.repetition import RepeatedUnit

NAMES = ("select", "embedding", "layer_norm", "attention", "linear", "add", "loss", "gelu")
FIRST = np.array([0, 1, 5, 2, 3, 4, 5], np.int32)  # embeds, then the layer
MIDDLE = np.array([0, 0, 2, 3, 4, 5, 0], np.int32)
LAST = np.array([0, 2, 3, 4, 5, 2, 4, 6], np.int32)  # the layer, then a head and a loss


def test_the_layer_is_what_all_stages_share() -> None:
    layer = common_layer([FIRST, MIDDLE, MIDDLE, LAST], [0, 1, 1, 2], NAMES)

    assert layer.tolist() == [2, 3, 4, 5]
    assert [(unit.first, unit.last) for unit in place_of(layer, LAST)] == [(1, 4)]


@pytest.mark.parametrize(
    ("tokens", "stages"),
    [
        ([], []),
        ([FIRST, FIRST], [0, 0]),  # one stage shares with nobody
        ([FIRST, np.array([0, 6, 7], np.int32)], [0, 1]),
        ([np.array([2, 4, 7], np.int32), np.array([2, 4, 6], np.int32)], [0, 1]),  # attends not
    ],
    ids=["no passes", "one stage", "nothing shared", "no attention"],
)
def test_no_layer_is_made_up(tokens: list[Int32s], stages: list[int]) -> None:
    assert len(common_layer(tokens, stages, NAMES)) == 0


def test_a_pass_without_the_layer_has_none() -> None:
    assert place_of(np.array([2, 3], np.int32), np.array([4], np.int32)) == ()
    assert place_of(np.zeros(0, np.int32), LAST) == ()


def test_units_of_one_odd_pass_are_none() -> None:
    twice = (RepeatedUnit(0, 1, 0), RepeatedUnit(2, 3, 0))
    found = {b"usual": (), b"stalled": twice, b"last": twice, b"a": ()}
    passes = {b"usual": [0, 1, 2], b"stalled": [3], b"last": [4], b"a": [5, 6]}

    kept = of_usual_passes(found, passes, [0, 0, 0, 0, 1, 1, 1])

    assert kept == {b"usual": (), b"stalled": (), b"last": twice, b"a": ()}

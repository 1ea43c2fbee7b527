"""Layers in sequences of tokens, written as letters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import Int32s
from foretrace.graph.blocks.repetition import repeating_units

# Capital letters that have a meaning for the search; every other letter is an operator like any.
NAMES = {"N": "aten::layer_norm", "A": "aten::attention", "S": "aten::add", "R": "aten::relu"}
TEXTS = [NAMES.get(chr(code), f"aten::{chr(code)}") for code in range(128)]


def as_tokens(text: str) -> Int32s:
    return np.array([ord(letter) for letter in text], np.int32)


def units_of(text: str, weights: dict[str, int] | None = None) -> list[str]:
    weight = np.array([(weights or {}).get(letter, 10) for letter in text], np.int64)
    return [
        text[unit.first : unit.last + 1] for unit in repeating_units(as_tokens(text), weight, TEXTS)
    ]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("e" + 40 * "NqApsNfgh" + "Nlx", 40 * ["NqApsNfgh"]),
        ("e" + 2 * "NqApsNfgh" + "Nlx", 2 * ["NqApsNfgh"]),
        # a residual sum that looks like the layers' last stands before the first
        ("ees" + 6 * "NqAps" + "Nl", 6 * ["NqAps"]),
        # a neighbour exchange begins every layer
        ("e" + 4 * "xNqAp" + "l", 4 * ["xNqAp"]),
    ],
    ids=["forty", "two", "sum before", "exchange first"],
)
def test_layers_have_the_right_ends(text: str, units: list[str]) -> None:
    assert units_of(text) == units


def test_one_operator_twice_beside_layers_is_no_layer() -> None:
    assert units_of("e" + 2 * "NqApsNfgh" + "Nlmxxw", {"x": 20}) == 2 * ["NqApsNfgh"]


def test_layers_that_differ_a_little_are_layers() -> None:
    first, middle, last = "NqAspNfgh", "NqAspdNfghd", "NqAspNfghd"

    assert units_of("e" + first + 5 * middle + last + "l") == [first, *5 * [middle], last]


def test_a_first_layer_with_another_second_half_is_a_layer() -> None:
    dense, sparse = "NqApsfgh", "NqApstmi"

    assert units_of("e" + dense + 5 * sparse + "l") == [dense, *5 * [sparse]]


def test_alternating_layers_that_begin_alike_are_single_layers() -> None:
    dense, sparse = "NqApsfgh", "NqApstmi"

    assert units_of("e" + 4 * (dense + sparse) + "l") == 4 * [dense, sparse]


def test_a_layer_with_two_attentions_is_one_layer() -> None:
    decoder = "NqApsNqApsNfgh"

    assert units_of("e" + 6 * decoder + "l") == 6 * [decoder]


def test_an_encoder_and_a_decoder_are_found_both() -> None:
    encoder, decoder = "NqApsNfgh", "NqcuvwxyzNmnoab"

    assert units_of("e" + 6 * encoder + "k" + 6 * decoder + "l") == [*6 * [encoder], *6 * [decoder]]


def test_residual_blocks_of_four_stages_are_blocks() -> None:
    plain, widened = "cbRcbRcbSR", "cbRcbRcbcbSR"
    stages = [widened + count * plain for count in (2, 3, 5, 2)]

    found = units_of("cbRm" + "".join(stages) + "pl")

    assert len(found) == 16
    assert sum(unit in {plain, widened} for unit in found) >= 15


def test_what_takes_no_time_is_no_layer() -> None:
    light = {"k": 0}

    assert units_of(200 * "k" + "e" + 3 * "NqApsNfgh" + "Nl", light) == 3 * ["NqApsNfgh"]


@pytest.mark.parametrize("text", ["", "e", "eNqApsNfghl", "abcdefghijk"])
def test_nothing_is_found_where_nothing_repeats(text: str) -> None:
    assert units_of(text) == []


@given(
    st.integers(2, 12),
    st.lists(st.sampled_from("abcdfghijk"), min_size=2, max_size=9, unique=True),
    st.sampled_from(["", "x", "xy"]),
    st.sampled_from(["", "z", "zw"]),
)
def test_units_of_different_operators_between_others_are_found_whole(
    count: int, unit: list[str], before: str, after: str
) -> None:
    layer = "N" + "".join(unit)

    assert units_of(before + count * layer + after) == count * [layer]

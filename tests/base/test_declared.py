"""Values of descriptions: numbers that are none, and words, are refused in a sentence."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest

from foretrace.base import (
    Count,
    DescriptionKey,
    Positive,
    Share,
    WorkloadError,
    parsed_toml,
    read_keys,
    read_value,
)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("kind", "written", "words"),
    [
        (Count, 2**70, "where a whole number of at least 1 is expected"),
        (Count, 0, "is 0, where a whole number of at least 1"),
        (Count, True, "is True, where a whole number"),
        (Count, 1.0, "is 1.0, where a whole number"),
        (Share, float("nan"), "is nan, where a number of at least 0 is expected"),
        (Share, float("inf"), "is inf, where a number of at least 0 is expected"),
        (Share, -1, "is -1, where a number of at least 0 is expected"),
        (Positive, 0, "is 0, where a number above 0 is expected"),
        (bool, 1, "is 1, where true or false is expected"),
        (Colour, "bleu", "where one of red, blue is expected; did you mean 'blue'"),
        (Literal["flash", "plain"], 3, "is 3, where one of flash, plain is expected"),
        (tuple[Count, ...], [1, 0], "is [1, 0], where a list, each a whole number of at least 1,"),
        (str, ["x" * 1000], "xxx..., where a text is expected"),
    ],
)
def test_a_value_that_a_key_cannot_hold_is_said_with_what_it_can(
    kind: Any, written: object, words: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        read_value(written, DescriptionKey("size", kind), "the file", error=WorkloadError)

    assert str(caught.value).startswith("'size' of the file is ")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 200


def test_unknown_and_missing_keys_are_named() -> None:
    keys = (DescriptionKey("layers", Count, is_required=True), DescriptionKey("width", Count))

    assert read_keys({"layers": 3}, keys, "the file", error=WorkloadError) == {"layers": 3}
    with pytest.raises(WorkloadError, match=r"the key .layer..*did you mean"):
        read_keys({"layer": 3}, keys, "the file", error=WorkloadError)
    with pytest.raises(WorkloadError, match="the file lacks layers"):
        read_keys({"width": 3}, keys, "the file", error=WorkloadError)


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 5000 + "]" * 5000])
def test_a_file_that_no_parser_survives_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)

    with pytest.raises(WorkloadError, match="is not a TOML file"):
        parsed_toml(path, WorkloadError)

"""Where the same forward work begins again; operators as letters, "e" embeds."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.graph.blocks.passes import pass_begins


def begins_in(text: str) -> list[int]:
    """Places at which a pass begins; a bar ends a group of forward work."""
    letters = [letter for letter in text if letter != "|"]
    groups = [index for index, piece in enumerate(text.split("|")) for _ in piece]
    token = np.array([ord(letter) for letter in letters], np.int32)

    begins = pass_begins(token, token == ord("e"), np.array(groups, np.int64), token != ord("b"))

    return np.flatnonzero(begins).tolist()


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("exyxyxylexyxyxyl", [8]),
        ("exyxyxylexyxyxylexyxyxyl", [8, 16]),
        ("aexyxyxyl|exyxyxyl", []),  # something else stands between: already two groups
        ("eaexyxyxyxyleaexyxyxyxyl", [12]),  # tokens and positions are embedded together
        ("exyxyxylbexyxyxyl", [9]),
        ("exyxyxylexyxyxzl", [8]),  # a generated token does almost the same
    ],
)
def test_a_pass_begins_where_its_work_is_done_again(text: str, begins: list[int]) -> None:
    assert begins_in(text) == begins


@pytest.mark.parametrize("text", ["", "xyxyl", "exyxyxyl", "exyxyxyluvwuvwuvw", "exyxyxyeuvwuvwl"])
def test_other_work_after_an_embedding_is_no_pass(text: str) -> None:
    assert begins_in(text) == []

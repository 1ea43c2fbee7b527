"""What would steer a terminal is seen instead."""

from __future__ import annotations

import pytest

from foretrace.base import visible


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("aten::mm, 3\u00d73 \u03b1", "aten::mm, 3\u00d73 \u03b1"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("over\rwritten\x08", r"over\rwritten\x08"),
        ("\x9b31m", r"\x9b31m"),
        ("turned \u202e round", r"turned \u202e round"),
        ("no UTF-8: \udcff", r"no UTF-8: \udcff"),
    ],
)
def test_escapes(text: str, seen: str) -> None:
    assert visible(text) == seen

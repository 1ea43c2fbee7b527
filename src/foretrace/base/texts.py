"""Texts: names as they may be shown, values as descriptions write them, and what is a number."""

from __future__ import annotations

import re

# Control characters but tab and line feed, marks that turn the direction of writing, line ends of
# Unicode, and bytes of names that are no UTF-8.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text with an escape in place of every character that steers what shows it."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


def cut_short(text: str, letters: int) -> str:
    """The text, its end left out where it is longer than so many letters: `void gemm<...`."""
    return text if len(text) <= letters else f"{text[: letters - 3]}..."


def key_text(value: object) -> str:
    """What stands under a key of a description, as such files write it: `true`, `selective`, 8."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_number(text: str) -> bool:
    """Whether a text can be read as a number; its range is for others to judge."""
    try:
        float(text)
    except ValueError:
        return False
    return True

"""Names of a trace as they may be shown: what would steer a terminal is seen instead."""

from __future__ import annotations

import re

# Control characters but tab and line feed, marks that turn the direction of writing, line ends of
# Unicode, and bytes of names that are no UTF-8.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_BOLD_AND_BACK = re.compile("(\x1b\\[[0-2]m)")  # bold, dim, neither


def visible(text: str) -> str:
    """The text with an escape in place of every character that steers what shows it."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


def visible_but_bold(text: str) -> str:
    """The same, of a text whose headings have been set in bold or dim for a terminal."""
    pieces = _BOLD_AND_BACK.split(text)
    return "".join(piece if _BOLD_AND_BACK.fullmatch(piece) else visible(piece) for piece in pieces)

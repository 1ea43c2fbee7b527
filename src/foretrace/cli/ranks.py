"""`--ranks 0,3-5` as numbers."""

from __future__ import annotations

import re

import typer

_PART = re.compile(r"(\d+)(?:-(\d+))?")


def parsed_ranks(text: str | None) -> tuple[int, ...] | None:
    """The ranks that the text lists, rising, each once; None if there is no text."""
    if text is None:
        return None
    ranks: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise typer.BadParameter(
                f"{part!r} is not a rank or a range of ranks: expected numbers as in 0,3-5"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise typer.BadParameter(f"the range {part!r} ends before it begins")
        ranks.update(range(first, last + 1))
    return tuple(sorted(ranks))

"""For mkdocs: links of the docs that lead to the source are told as text, as the site has none."""

from __future__ import annotations

import re

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?:src|experiments|examples|bench|tests)/[^)]*)\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page with such links as their text and the path in the repository."""
    return _OUTSIDE.sub(r"\1 (`\2`)", markdown)

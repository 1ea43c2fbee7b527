"""Pages of the documentation with tables that the program makes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def check_made(page: Path, build: Callable[[], str], request: pytest.FixtureRequest) -> None:
    """Between `<!-- name -->` and the next end stands what the function of that name says."""
    text = page.read_text(encoding="utf-8")
    block = re.compile(rf"(<!-- {build.__name__} -->\n).*?(<!-- end -->)", re.DOTALL)
    wanted = block.sub(lambda match: f"{match[1]}{build()}\n{match[2]}", text)
    if request.config.getoption("--update-golden"):
        page.write_text(wanted, encoding="utf-8")

    assert len(block.findall(wanted)) == 1
    assert page.read_text(encoding="utf-8") == wanted, "run pytest --update-golden"

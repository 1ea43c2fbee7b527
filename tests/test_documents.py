"""What documents show is what comes out; `--update-golden` writes it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/whatif.md")
CUT = "..."  # a page's last line of an output that goes on
__all__ = ["run"]  # the fixture


def commands(text: str) -> list[str]:
    """Every block that shows a command with what it prints."""
    return re.findall(r"^```\n(\$ foretrace .*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def told(run: Run, shown: str) -> str:
    """A block as the command fills it; cut where the page cuts it."""
    line, *rest = shown.splitlines()
    outcome = run(*shlex.split(line.removeprefix("$ foretrace ")))
    assert outcome.code == 0, outcome.err
    printed = [each.rstrip() for each in outcome.out.splitlines()]
    if rest[-1:] == [CUT]:
        printed = [*printed[: len(rest) - 1], CUT]
    return "\n".join([line, *printed, ""])


@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_the_page_shows(
    run: Run, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    monkeypatch.chdir(ROOT)
    path = ROOT / page
    text = path.read_text(encoding="utf-8")

    wanted = text
    for shown in commands(text):
        wanted = wanted.replace(shown, told(run, shown))

    assert commands(text)
    if request.config.getoption("--update-golden"):
        path.write_text(wanted, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == wanted, "run pytest --update-golden"

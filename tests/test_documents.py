"""What documents show is what comes out; `--update-golden` writes what commands print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import foretrace as ft
from foretrace.machine import load_machine
from foretrace.workload import load_model
from tests.cli.conftest import Run, run

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/whatif.md")
Names = Mapping[str, Any]
# Pages with one example in Python that stands alone, and what holds once it has run.
EXAMPLES: Mapping[str, Callable[[Names], bool]] = {
    "docs/estimate.md": lambda names: names["found"].plan.num_ranks == 8,
    "docs/machines.md": lambda names: names["machine"] == load_machine("llama3-24k"),
    "docs/memory.md": lambda names: names["found"].fits is True,
    "docs/models.md": lambda names: names["model"] == load_model("llama3.1-405b"),
    "docs/whatif.md": lambda names: _is_faster(names["faster"]),
}
CUT = "..."  # a page's last line of an output that goes on
__all__ = ["run"]  # the fixture


def _is_faster(edited: ft.Edited) -> bool:
    return edited.prediction.change_ns < 0


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


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_python_of_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / page).read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)

    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102  the example is ours

    assert EXAMPLES[page](names)

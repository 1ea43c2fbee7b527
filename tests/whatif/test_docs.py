"""What the page shows is what comes out; `--update-golden` writes it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.whatif import edit_keys, read_scenarios
from tests.cli.conftest import Run, run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "whatif.md"
__all__ = ["run"]  # the fixture


def blocks(text: str, kind: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [block for of_kind, block in found if of_kind == kind]


def test_commands_print_what_the_page_shows(
    run: Run, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    shown = PAGE.read_text(encoding="utf-8")
    wanted = shown
    commands = [block for block in blocks(shown, "") if block.startswith("$ foretrace ")]

    for block in commands:
        line = block.splitlines()[0]
        outcome = run(*shlex.split(line.removeprefix("$ foretrace ")))
        assert outcome.code == 0, outcome.err
        told = "\n".join(each.rstrip() for each in outcome.out.splitlines())
        wanted = wanted.replace(block, f"{line}\n{told}\n")

    assert commands
    if request.config.getoption("--update-golden"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted, "run pytest --update-golden"


def test_the_python_of_the_page_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (example,) = blocks(PAGE.read_text(encoding="utf-8"), "python")

    names: dict[str, object] = {}
    exec(example, names)  # noqa: S102  the example is ours

    faster = names["faster"]
    assert isinstance(faster, ft.Edited)
    assert faster.prediction.change_ns < 0
    assert "optimizer x 2 as fast" in capsys.readouterr().out


def test_the_scenario_file_of_the_page_is_one(tmp_path: Path) -> None:
    (example,) = blocks(PAGE.read_text(encoding="utf-8"), "toml")
    path = tmp_path / "scenarios.toml"
    path.write_text(example, encoding="utf-8")

    assert [one.name for one in read_scenarios(path)] == [
        "deeper",
        "wider network",
        "faster products, a slow rank",
    ]


def test_every_key_of_a_scenario_file_is_an_option_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")

    missing = [key for key in edit_keys() if f"--{key.replace('_', '-')}" not in text]

    assert missing == []


def test_every_edit_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    edits = [
        name
        for name in dir(ft)
        if hasattr(getattr(ft, name), "applied") and hasattr(getattr(ft, name), "sentence")
    ]

    assert len(edits) > 12
    assert [name for name in edits if f"`{name}`" not in text] == []

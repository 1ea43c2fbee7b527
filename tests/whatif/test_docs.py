"""What the page says is so."""

from __future__ import annotations

import re
from pathlib import Path

import foretrace as ft
from foretrace.whatif import edit_keys, read_scenarios

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "whatif.md"


def blocks(text: str, kind: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [block for of_kind, block in found if of_kind == kind]


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

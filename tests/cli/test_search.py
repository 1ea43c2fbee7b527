"""`foretrace search` answers in text, in JSON and as a page."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run

SMALL = (
    *("search", "--model", "llama3.2-1b", "--machine", "dgx-h100", "--gpus", "8"),
    *("--global-batch", "16", "--sequence", "2048", "--micro-batch", "1", "--cp", "1"),
    *("--schedule", "1f1b", "--recompute", "none"),
)


def test_the_best_plan_comes_with_its_gap(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "search.html"

    found = run(*SMALL, "--gap", "0", "--json", "--report", str(page))

    assert found.code == 0, found.err
    answer = json.loads(found.out)
    assert answer["gap"] == 0
    assert answer["stopped"] == "exhausted"
    assert answer["best"]["step_ns"] > 0
    assert answer["evaluated"]["units"] <= answer["evaluated"]["fit"]
    written = page.read_text()
    assert written.count("<svg") >= 1
    assert "<title>" in written[written.index("<svg") :]


def test_a_constraint_that_is_none_is_one_sentence(run: Run) -> None:
    found = run(*SMALL, "--where", "gpu_count > 3")

    assert found.code == 1
    assert found.err.startswith("error: the constraint 'gpu_count > 3' cannot be read")


def test_numbers_are_checked(run: Run) -> None:
    assert run(*SMALL, "--gap", "much").code == 2
    assert run(*SMALL, "--gpus", "eight").code == 2

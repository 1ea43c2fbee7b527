"""`foretrace tables` answers in text and JSON, writes TorchRec's plan, says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run

SMALL = (
    *("tables", "--model", "dlrm-criteo-kaggle", "--machine", "dgx-a100", "--gpus", "4"),
    *("--micro-batch", "2048", "--time", "1"),
)


def test_a_placement_is_written_and_estimated(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"

    found = run(*SMALL, "--ids", "zipf:1.05", "--json", "--out", str(path))

    assert found.code == 0, found.err
    answer = json.loads(found.out)
    assert len(answer["tables"]) == 26
    assert len(answer["ranks"]) == 4
    assert answer["step_ns"] <= min(one["step_ns"] for one in answer["beside"] if one["fits"])
    assert json.loads(path.read_text()) == answer["torchrec"]

    step = run(
        *("estimate", "--model", "dlrm-criteo-kaggle", "--machine", "dgx-a100", "--gpus", "4"),
        *("--micro-batch", "2048", "--global-batch", "8192", "--tables", str(path)),
        *("--ids", "zipf:1.05", "--json"),
    )
    assert json.loads(step.out)["step_ns"] == answer["step_ns"]


def test_text_tells_tables_and_ranks(run: Run) -> None:
    found = run(*SMALL)

    assert found.code == 0, found.err
    for words in ("all tables by one rule", "where tables stand", "what ranks hold and read"):
        assert words in found.out


def test_what_is_no_scheme_tier_or_recommender_is_one_sentence(run: Run) -> None:
    for more, words in (
        (("--schemes", "diagonal"), "there is no scheme 'diagonal'"),
        (("--tiers", "tape"), "there is no tier 'tape'"),
        (("--tiers", ""), "there is no tier ''"),
        (("--ids", "often"), "cannot read how often rows are looked up from 'often'"),
        (("--model", "llama3-8b"), "is no recommender: it has no tables to place"),
    ):
        found = run(*SMALL, *more)
        assert found.code == 1
        assert found.err.startswith("error: ")
        assert words in found.err

"""`foretrace substitute` and `whatif --substitute`, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run

ESTIMATE = (
    *("--model", "llama3.2-1b", "--machine", "dgx-a100"),
    *("--megatron", "--micro-batch-size 1 --global-batch-size 8 --seq-length 4096"),
)


def test_rules_are_ranked_in_80_columns(run: Run) -> None:
    outcome = run("substitute", *ESTIMATE)
    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 80
    for text in ("strassen:1", "winograd:2", "what none of them can give", "at most"):
        assert text in outcome.out

    value = json.loads(run("substitute", *ESTIMATE, "--json").out)
    assert {row["rule"] for row in value["rows"]} >= {"strassen:1", "strassen:2", "winograd:1"}
    assert all(row["num_paying"] <= row["num_shapes"] for row in value["rows"])


def test_what_cannot_be_costed_is_a_sentence(run: Run, repository: Path) -> None:
    traces = repository / "examples" / "cpu-llama-tp2-dp2" / "traces"
    outcome = run("substitute", traces)
    assert outcome.code == 1
    assert "names no chip" in outcome.err
    assert "nothing to try rules on" in run("substitute").err
    outcome = run("whatif", traces, "--substitute", "strassen:1")
    assert outcome.code == 1
    assert "recording has no device" in outcome.err
    assert "did you mean strassen:" in run("whatif", traces, "--substitute", "strassen:3").err

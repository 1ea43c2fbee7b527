from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run

PLAN = (
    "--model", "llama3-8b", "--machine", "h100-24k", "--tp", 8, "--pp", 2, "--gpus", 32,
    "--global-batch", 8, "--set", "batch.sequence=1024",
)  # fmt: skip


def test_steps_of_a_plan_print_quantiles_and_who_carries_them(run: Run) -> None:
    outcome = run("risk", "steps", *PLAN, "--samples", 64, "--scale", "--top", 3)

    assert outcome.code == 0
    assert "one cell of 16 ranks for 2" in outcome.out
    for words in ("of variance", "copies", "100,000 steps", "95 % confidence"):
        assert words in outcome.out


def test_the_same_seed_gives_the_same_steps(run: Run) -> None:
    texts = [
        run("risk", "steps", *PLAN, "--samples", 64, "--seed", seed, "--json").out
        for seed in (1, 1, 2)
    ]

    found = [json.loads(text) for text in texts]
    assert found[0] == found[1]
    assert found[0]["mean_ns"] != found[2]["mean_ns"]
    assert found[0]["sources"]["name"] == "prism-low"


def test_a_plan_without_variation_takes_its_estimate(run: Run) -> None:
    steps = json.loads(
        run("risk", "steps", *PLAN, "--variation", "none", "--samples", 8, "--json").out
    )
    estimate = json.loads(run("estimate", *PLAN, "--json").out)

    assert steps["mean_ns"] == steps["fixed_ns"]
    assert steps["mean_ns"] == estimate["step_ns"]


def test_the_page_holds_its_plots_and_opens_offline(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "steps.html"

    outcome = run("risk", "steps", *PLAN, "--samples", 64, "--report", page)

    text = page.read_text(encoding="utf-8")
    assert outcome.code == 0
    assert text.count("<svg") == 2
    assert "Steps against the number of GPUs" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_placement_lists_every_stage(run: Run) -> None:
    outcome = run("risk", "placement", *PLAN, "--samples", 8, "--slowdown", 0.2)

    assert outcome.code == 0
    assert "stage 0" in outcome.out
    assert "stage 1" in outcome.out


def test_neither_files_nor_a_plan_is_a_usage_error(run: Run) -> None:
    assert run("risk", "steps").code == 2
    assert run("risk", "steps", "some.json", "--model", "llama3-8b").code == 2


def test_an_unknown_variation_is_one_sentence(run: Run) -> None:
    outcome = run("risk", "steps", *PLAN, "--vary", "weather=1")

    assert outcome.code == 1
    assert "expected gpu, kernel, collective or step" in outcome.err.replace("\n", " ")

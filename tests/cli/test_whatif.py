from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tests.cli.conftest import Run

SCENARIOS = """
[[scenario]]
name = "deeper"
layers = 4

[[scenario]]
name = "faster products"
speed = { gemm = 2 }

[[scenario]]
name = "no such rank"
slow_rank = { 99 = 2 }
"""


@pytest.fixture
def scenarios(tmp_path: Path) -> Path:
    path = tmp_path / "what.toml"
    path.write_text(SCENARIOS, encoding="utf-8")
    return path


def test_the_change_comes_first_in_80_columns(run: Run, traces: Path) -> None:
    outcome = run("whatif", traces, "--layers", 4, "--speed", "gemm=2")

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert max(map(len, lines)) <= 80
    assert "4 ranks (tp 2 x dp 2)" in lines[1]
    changes = [line for line in lines if line.startswith("change of the step")]
    assert len(changes) == 1
    assert lines.index(changes[0]) <= 5
    for section in ("edits, each made after", "where the difference goes", "rests on"):
        assert section in outcome.out
    assert "\nlayers 2 -> 4 " in outcome.out
    assert "\ngemm x 2 as fast " in outcome.out


def test_json_has_what_the_tables_say(run: Run, traces: Path) -> None:
    value = json.loads(run("whatif", traces, "--speed", "all=2", "--json").out)

    assert value["step_ns"] + -value["change_ns"] == value["replayed_ns"]
    assert value["step_ns"] < value["replayed_ns"]
    assert value["low_ns"] <= value["step_ns"] <= value["high_ns"]
    assert sum(value["sources"].values()) == pytest.approx(1)
    assert [one["edit"] for one in value["effects"]] == ["Speed"]
    rows = value["difference"]["views"]["component"]["rows"]
    assert abs(sum(row["difference_ns"] for row in rows) - value["change_ns"]) <= 1
    assert value["before"]["plan"]["parallelism"]["tp"] == 2


def test_many_scenarios_are_one_table_best_first(
    run: Run, traces: Path, scenarios: Path, tmp_path: Path
) -> None:
    csv = tmp_path / "out.csv"

    outcome = run("whatif", traces, "--scenarios", scenarios, "--csv", csv)

    assert outcome.code == 0
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert outcome.out.index("faster products") < outcome.out.index("deeper")
    assert "refused" in outcome.out
    assert "no such rank: " in outcome.out
    assert pl.read_csv(csv)["name"].to_list() == ["faster products", "deeper", "no such rank"]


def test_edits_of_the_command_line_are_made_in_every_scenario(
    run: Run, traces: Path, scenarios: Path
) -> None:
    line = ("whatif", traces, "--scenarios", scenarios, "--json")

    alone = json.loads(run(*line).out)["scenarios"]
    together = json.loads(run(*line, "--speed", "all=2").out)["scenarios"]

    by_name = {row["name"]: row for row in alone}
    for row in together:
        if not row["refusal"]:
            assert row["step_ns"] < by_name[row["name"]]["step_ns"]
            assert row["sentences"][0] == "all work x 2 as fast"


def test_trace_and_report_are_written(run: Run, traces: Path, tmp_path: Path) -> None:
    trace, page = tmp_path / "t.pftrace", tmp_path / "r.html"

    outcome = run("whatif", traces, "--layers", 4, "--trace", trace, "--report", page)

    assert outcome.code == 0
    assert trace.stat().st_size > 0
    assert "What-if report" in page.read_text(encoding="utf-8")
    assert "t.pftrace" in outcome.err


def test_memory_is_told_where_the_model_is_stated(run: Run, traces: Path) -> None:
    value = json.loads(
        run(
            *("whatif", traces, "--microbatches", 4, "--json"),
            *("--model", "llama3.2-1b", "--machine", "dgx-a100", "--stated", "hidden=2048"),
        ).out
    )

    assert value["memory"]["after"]["peak_stage"] == 0
    assert value["before"]["machine"] == "dgx-a100"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--layers", 0), "'layers' of the command line is 0"),
        (("--speed", "gemm"), "--speed 'gemm' has no value"),
        (("--speed", "gmm=2"), "gmm"),
        (("--delay", "all=2"), "write a number with its unit"),
        (("--set", "overlap.gradient=false"), "did you mean"),
        (("--set", "network.pod.bandwidth=400Gb/s"), "--machine"),
        (("--on-machine", "nowhere"), "no machine is called 'nowhere'"),
        (("--layers", 4, "--model", "nothing"), "no model is called 'nothing'"),
        (
            ("--layers", 4, "--model", "llama3.2-1b"),
            "llama3.2-1b has 2,048: state the model that ran",
        ),
        (("--layers", 4, "--plan", "nothing"), "no plan is called 'nothing'"),
        (("--layers", 4, "--stated", "tp=4"), "4"),
        (("--layers", 4, "--stated", "hidden=x"), "'hidden' of --stated"),
        (("--layers", 3, "--pp", 2), "3 layers"),
        (("--global-batch", 3), "global batch of 3"),
        (("--scenarios", "nowhere.toml"), "no such file"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(
    run: Run, traces: Path, more: tuple[object, ...], told: str
) -> None:
    outcome = run("whatif", traces, *more)

    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert told in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_nothing_different_or_two_kinds_of_answer_end_with_two(
    run: Run, traces: Path, scenarios: Path
) -> None:
    nothing = run("whatif", traces)
    both = run("whatif", traces, "--scenarios", scenarios, "--report", "page.html")

    assert (nothing.code, both.code) == (2, 2)
    assert "nothing is different" in nothing.err
    assert "--on-machine" in run("whatif", traces, "--machine", "dgx-h100").err
    assert "about one scenario" in both.err

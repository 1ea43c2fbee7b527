"""`foretrace compare`: two runs side by side, and the gate for CI jobs."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
import typer

from foretrace.cli.compare import parsed_limit
from tests.cli.conftest import Outcome, Run
from tests.truth import Job, KernelFamily, write


@pytest.fixture(scope="module")
def slower(small_job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with gemm kernels that take 30 % longer."""
    folder = tmp_path_factory.mktemp("slower-run")
    write(small_job.after(KernelFamily("gemm", 1.3)), folder)
    return folder


def test_the_cause_comes_first(run: Run, traces: Path, slower: Path) -> None:
    outcome = run("compare", traces, slower)

    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert "\x1b" not in outcome.out
    lines = outcome.out.splitlines()
    assert lines[lines.index("why") + 1].startswith(" - gemm: +")
    assert "30 % longer" in " ".join(outcome.out.split())


def test_json_and_files_hold_every_view(
    run: Run, traces: Path, slower: Path, tmp_path: Path
) -> None:
    parquet = tmp_path / "a.parquet"

    outcome = run("compare", traces, slower, "--json", "--parquet", parquet)

    found = json.loads(outcome.out)
    frame = pl.read_parquet(parquet)
    assert set(frame["view"].unique()) == set(found["views"])
    for name, view in found["views"].items():
        if view["sums_to_step"]:
            rows = frame.filter(frame["view"] == name)
            assert int(rows["difference_ns"].sum()) == found["difference_ns"]


def test_one_run_is_held_against_its_replay(run: Run, traces: Path) -> None:
    found = json.loads(run("compare", traces, "--json").out)

    assert (found["before"]["label"], found["after"]["label"]) == ("measured", "simulated")
    assert abs(found["percent"]) < 0.5


@pytest.mark.parametrize(
    ("limit", "code"), [("3%", 1), ("90%", 0), ("1us", 1), ("5 ms", 0), ("2s", 0), ("0.5%", 1)]
)
def test_a_gate_fails_beyond_its_limit(
    run: Run, traces: Path, slower: Path, limit: str, code: int
) -> None:
    outcome = run("compare", traces, slower, "--fail-if-slower", limit, "--confidence", "60")

    assert outcome.code == code
    assert outcome.err.startswith("FAIL: " if code else "ok: ")
    assert "longer" in outcome.err


def test_a_run_that_got_faster_passes_every_gate(run: Run, traces: Path, slower: Path) -> None:
    outcome = run("compare", slower, traces, "--fail-if-slower", "0%", "--json")

    assert outcome.code == 0
    assert json.loads(outcome.out)["difference_ns"] < 0
    assert "shorter" in outcome.err


@pytest.mark.parametrize("options", [(), ("--require-significant",)])
def test_of_too_few_steps_a_gate_is_inconclusive(
    run: Run, traces: Path, slower: Path, options: tuple[str, ...]
) -> None:
    gate = ("compare", traces, slower, "--fail-if-slower", "3%", *options)

    outcome, lenient = run(*gate), run(*gate, "--confidence", "60")

    assert outcome.code == 4
    assert outcome.err.startswith("inconclusive: ")
    assert "too few steps to tell" in outcome.err
    assert lenient.code == 1
    assert "beyond the spread between steps" in lenient.err


def test_too_few_steps_pass_a_gate_that_is_not_exceeded(
    run: Run, traces: Path, slower: Path
) -> None:
    assert run("compare", traces, slower, "--fail-if-slower", "90%").code == 0


def test_views_are_shown_as_asked(run: Run, traces: Path, slower: Path) -> None:
    outcome = run("compare", traces, slower, "--by", "family", "--by", "host")

    assert "by family of kernels" in outcome.out
    assert "by class" not in outcome.out


@pytest.mark.parametrize(
    "options",
    [
        ("--fail-if-slower", "3"),
        ("--fail-if-slower", "-3%"),
        ("--fail-if-slower", "fast"),
        ("--require-significant",),
        ("--confidence", "101"),
        ("--by", "colour"),
        ("--top", "0"),
    ],
)
def test_wrong_options_end_with_two(
    run: Run, traces: Path, slower: Path, options: tuple[str, ...]
) -> None:
    outcome = run("compare", traces, slower, *options)

    assert outcome.code == 2
    assert outcome.out == ""
    assert "Traceback" not in outcome.err


def test_a_replay_is_not_held_against_itself(run: Run, traces: Path) -> None:
    assert run("compare", traces, "--replayed").code == 2


def test_a_side_that_is_missing_is_named(run: Run, traces: Path, tmp_path: Path) -> None:
    outcome: Outcome = run("compare", traces, tmp_path / "absent")

    assert outcome.code == 1
    assert "absent" in outcome.err


@pytest.mark.parametrize(
    ("text", "before_ns", "after_ns", "is_exceeded"),
    [
        ("3%", 100, 103, False),
        ("3%", 100, 104, True),
        ("5ms", 0, 5_000_000, False),
        ("5ms", 0, 5_000_001, True),
        ("1.5 us", 0, 1_501, True),
    ],
)
def test_a_limit_is_reached_but_not_exceeded(
    text: str, before_ns: int, after_ns: int, is_exceeded: bool
) -> None:
    assert parsed_limit(text).is_exceeded(before_ns, after_ns) is is_exceeded


@pytest.mark.parametrize("text", ["", "3", "%", "-3%", "3 hours", "1e3ms"])
def test_other_texts_are_no_limits(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parsed_limit(text)

"""Every command that answers a question does so as a table, as JSON, and as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.cli.conftest import Run

# command -> words that its table holds for the small run
WORDS = {
    "analyze": ("step time", "replayed", "what would help most", "critical path", "device time"),
    "breakdown": ("exposed", "idle", "ProfilerStep#", "all steps and ranks"),
    "critical-path": ("in ", "without a gap", "by class", "by rank"),
    "sensitivity": ("what would help most", "faster", "class", "rank"),
    "idle": ("idle: nothing ran", "host work", "who is responsible"),
    "stragglers": ("who is waited for", "delays ms", "expected"),
    "operators": ("device time by class", "gemm", "recognised"),
    "memory": ("no memory events", "--snapshot"),
}
REPLAYED = ("breakdown", "critical-path", "idle", "stragglers", "operators")
STEPPED = ("analyze", "breakdown", "critical-path", "sensitivity", "idle", "operators", "memory")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all of these: what is read is not what is tested here."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _warm(run: Run, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001  `run` sets its own first
    monkeypatch.setenv("FORETRACE_CACHE", str(cache))


def answered_json(run: Run, *arguments: object) -> Any:
    outcome = run(*arguments, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


@pytest.mark.parametrize("command", WORDS)
def test_table_fits_eighty_columns_without_colours(run: Run, traces: Path, command: str) -> None:
    outcome = run(command, traces)

    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert "\x1b" not in outcome.out
    for words in WORDS[command]:
        assert words in outcome.out


@pytest.mark.parametrize("command", WORDS)
def test_json_csv_and_parquet_hold_the_same(
    run: Run, traces: Path, tmp_path: Path, command: str
) -> None:
    csv, parquet = tmp_path / "out" / "a.csv", tmp_path / "out" / "a.parquet"

    outcome = run(command, traces, "--json", "--csv", csv, "--parquet", parquet)

    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)
    assert f"wrote {csv}" in outcome.err
    frame = pl.read_parquet(parquet)
    if command == "memory":  # nothing was recorded
        assert frame.is_empty()
    else:
        assert frame.height > 0
        assert pl.read_csv(csv, infer_schema=False).shape == frame.shape
    assert sorted(path.name for path in csv.parent.iterdir()) == ["a.csv", "a.parquet"]


@pytest.mark.parametrize("command", STEPPED)
def test_a_step_is_chosen_by_name_or_number(run: Run, traces: Path, command: str) -> None:
    number = 5
    by_number = answered_json(run, command, traces, "--step", number)
    by_name = answered_json(run, command, traces, "--step", f"ProfilerStep#{number}")

    assert by_number == by_name


@pytest.mark.parametrize("command", STEPPED)
def test_an_unknown_step_lists_the_known_ones(run: Run, traces: Path, command: str) -> None:
    outcome = run(command, traces, "--step", "99")

    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    for words in ("ProfilerStep#99", "ProfilerStep#4"):
        assert words in outcome.err


@pytest.mark.parametrize("command", REPLAYED)
def test_measured_and_replayed_are_told_apart(run: Run, traces: Path, command: str) -> None:
    measured, replayed = (run(command, traces, f"--{side}") for side in ("measured", "replayed"))

    assert measured.out.splitlines()[0].endswith("measured")
    assert replayed.out.splitlines()[0].endswith("replayed")


@pytest.mark.parametrize("command", ["breakdown", "critical-path", "sensitivity", "operators"])
def test_top_limits_rows_but_not_files(
    run: Run, traces: Path, tmp_path: Path, command: str
) -> None:
    csv = tmp_path / "a.csv"

    few = run(command, traces, "--top", "1", "--csv", csv)
    rows = csv.read_text(encoding="utf-8")
    many = run(command, traces, "--top", "9", "--csv", csv)

    assert len(few.out) < len(many.out)
    assert csv.read_text(encoding="utf-8") == rows


@pytest.mark.parametrize("option", ["--csv", "--parquet"])
def test_an_output_that_cannot_be_written_is_named(
    run: Run, traces: Path, tmp_path: Path, option: str
) -> None:
    (tmp_path / "file").touch()

    outcome = run("breakdown", traces, option, tmp_path / "file" / "out")

    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert "file" in outcome.err


def test_the_path_sums_to_the_step(run: Run, traces: Path) -> None:
    found = answered_json(run, "critical-path", traces)

    assert sum(piece["duration_ns"] for piece in found["pieces"]) == found["step_ns"]


def test_the_path_of_one_rank_is_of_its_own_step(run: Run, traces: Path) -> None:
    found = answered_json(run, "critical-path", traces, "--rank", "2")
    refused = run("critical-path", traces, "--rank", "9")

    assert found["rank"] == 2
    assert refused.code == 1
    assert "9" in refused.err


def test_a_change_of_ones_own_is_simulated(run: Run, traces: Path) -> None:
    changes = ("--change", "gemm=0.5", "--change", "allreduce=0")

    found = answered_json(run, "sensitivity", traces, *changes)
    table = run("sensitivity", traces, *changes)

    alone, other, together = (one["effect_ns"] for one in found["rows"])
    assert together < min(alone, other) < 0
    assert "gemm=0.5" in table.out
    assert "gemm=0.5 allreduce=0" in " ".join(table.out.split())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("class=gemm", "does not end with a factor"),
        ("clss:gemm=0.5", "did you mean 'class'?"),
        ("attntion=0.5", "'attention'"),
    ],
)
def test_a_change_that_cannot_be_meant_is_explained(
    run: Run, traces: Path, change: str, words: str
) -> None:
    outcome = run("sensitivity", traces, "--change", change)

    assert outcome.code == 1
    assert words in outcome.err


@pytest.mark.parametrize("by", ["class", "family", "operator"])
def test_operators_are_added_up_as_asked(run: Run, traces: Path, by: str) -> None:
    outcome = run("operators", traces, "--by", by)

    assert outcome.code == 0, outcome.err
    assert f"device time by {by}" in outcome.out


def test_attention_without_shapes_says_so(run: Run, traces: Path) -> None:
    outcome = run("operators", traces, "--attention")

    assert outcome.code == 0, outcome.err
    assert "attention" in outcome.out


def test_memory_asks_for_traces_or_a_snapshot(run: Run, traces: Path) -> None:
    neither, both = run("memory"), run("memory", traces, "--snapshot", "x.pickle")

    assert neither.code == both.code == 2
    assert "either PATH or --snapshot" in neither.err


def test_a_file_that_is_no_snapshot_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "text.pickle").write_text("no pickle", encoding="utf-8")

    outcome = run("memory", "--snapshot", tmp_path / "text.pickle")

    assert outcome.code == 1
    assert "text.pickle" in outcome.err


def test_inspect_and_replay_write_files_too(run: Run, traces: Path, tmp_path: Path) -> None:
    for command, rows in (("inspect", 4), ("replay", 8)):
        csv, parquet = tmp_path / f"{command}.csv", tmp_path / f"{command}.parquet"

        outcome = run(command, traces, "--csv", csv, "--parquet", parquet)

        assert outcome.code == 0, outcome.err
        assert pl.read_csv(csv, infer_schema=False).height == rows
        assert pl.read_parquet(parquet).height == rows


def test_the_page_is_written_where_asked(run: Run, traces: Path, tmp_path: Path) -> None:
    page = tmp_path / "out" / "page.html"

    outcome = run("report", traces, "-o", page, "--title", "a <title>")

    assert outcome.code == 0, outcome.err
    assert str(page) in outcome.err
    text = page.read_text(encoding="utf-8")
    assert "a &lt;title&gt;" in text
    assert "a <title>" not in text


@pytest.mark.parametrize("command", ["analyze", "critical-path", "sensitivity", "compare"])
def test_a_file_that_corrects_blocks_is_read(
    run: Run, traces: Path, tmp_path: Path, command: str
) -> None:
    (tmp_path / "wrong.toml").write_text("colour = 3", encoding="utf-8")

    wrong = run(command, traces, "--blocks-file", tmp_path / "wrong.toml")
    absent = run(command, traces, "--blocks-file", tmp_path / "absent.toml")

    assert wrong.code == absent.code == 1
    assert "colour" in wrong.err
    assert "absent.toml" in absent.err

from __future__ import annotations

import json
from pathlib import Path

import foretrace as ft
from tests.cli.conftest import Run


def test_anonymise_writes_files_that_load_and_says_what_is_left(
    run: Run, traces: Path, tmp_path: Path
) -> None:
    outcome = run("anonymise", traces, "-o", tmp_path / "out", "--names", tmp_path / "names.json")

    assert outcome.code == 0, outcome.err
    assert "what could still identify the origin" in outcome.out
    assert "0 found" in outcome.out
    assert json.loads((tmp_path / "names.json").read_text(encoding="utf-8")) != {}
    before, after = (ft.simulate(ft.load(path, cache=False)) for path in (traces, tmp_path / "out"))
    assert after.end_ns.tolist() == before.end_ns.tolist()


def test_anonymise_as_json_does_not_tell_the_names(run: Run, traces: Path, tmp_path: Path) -> None:
    outcome = run("anonymise", traces, "-o", tmp_path, "--json", "--drop", "aten::*")

    told = json.loads(outcome.out)
    assert told["num_replaced"] > 0
    assert told["num_found_again"] == 0
    assert "aten::" not in outcome.out


def test_a_damaged_file_of_names_is_refused(run: Run, traces: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.json"
    names.write_text("[1]", encoding="utf-8")

    outcome = run("anonymise", traces, "-o", tmp_path / "out", "--names", names)

    assert outcome.code == 1
    assert "expected what --names wrote before" in outcome.err


def test_synthesise_writes_a_job_that_loads_and_reports_distances(
    run: Run, traces: Path, tmp_path: Path
) -> None:
    outcome = run(
        "synthesise", traces, "-o", tmp_path / "job", "--nodes", 300, "--ranks", 3, "--seed", 2
    )

    assert outcome.code == 0, outcome.err
    assert "critical path per node" in outcome.out
    assert "operators" in outcome.out
    job = ft.load([tmp_path / f"job.{rank}.et" for rank in range(3)])
    assert job.ranks == (0, 1, 2)
    assert ft.simulate(job).end_ns.max() > 0


def test_synthesise_as_json_holds_every_distance(run: Run, traces: Path, tmp_path: Path) -> None:
    outcome = run(
        "synthesise", traces, "-o", tmp_path / "job", "--nodes", 200, "--ranks", 1, "--json"
    )

    told = json.loads(outcome.out)
    measures = [one["measure"] for one in told["closeness"]["distances"]]
    assert measures == ["operators", "durations", "sizes", "waits", "critical path"]


def test_draw_writes_a_picture_around_a_node(run: Run, traces: Path, tmp_path: Path) -> None:
    outcome = run("draw", traces, "-o", tmp_path / "a.svg", "--around", "10", "--depth", 3)

    assert outcome.code == 0, outcome.err
    assert "nodes" in outcome.err
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<svg")


def test_draw_refuses_what_nobody_can_read(run: Run, traces: Path, tmp_path: Path) -> None:
    outcome = run("draw", traces, "-o", tmp_path / "a.svg")

    assert outcome.code == 1
    assert "too much to draw" in outcome.err
    assert not (tmp_path / "a.svg").exists()

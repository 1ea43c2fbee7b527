from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.conftest import KeepsSchema
from tests.truth import Job

COMPONENTS = {"exposed_compute", "overlapped", "exposed_communication", "idle"}


def replayed_json(run: Run, *arguments: object) -> dict[str, Any]:
    outcome = run("replay", *arguments, "--json")
    assert outcome.code == 0, outcome.err
    value: dict[str, Any] = json.loads(outcome.out)
    return value


def test_table_fits_eighty_columns_and_names_every_part(run: Run, traces: Path) -> None:
    outcome = run("replay", traces)

    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 80
    for words in (
        "step time",
        "own step",
        "exposed compute",
        "without device",
        "this replay",
        "constant",
    ):
        assert words in outcome.out
    assert "\x1b" not in outcome.out


def test_json_has_the_documented_structure(run: Run, traces: Path) -> None:
    found = replayed_json(run, traces)

    assert len(found["steps"]) == 2
    for step in found["steps"]:
        assert re.fullmatch(r"ProfilerStep#\d+", step["name"])
        assert [rank["rank"] for rank in step["ranks"]] == [0, 1, 2, 3]
        for rank in step["ranks"]:
            parts = rank["components"]
            assert parts.keys() == COMPONENTS
            for side in ("measured_ns", "replayed_ns"):
                assert sum(part[side] for part in parts.values()) == rank[side]
            assert rank["kernel_start_error_ns"].keys() >= {"median", "p95"}
            assert rank["host_measured_ns"] <= rank["measured_ns"]
    assert found["null_models"].keys() == {"device", "rendezvous", "inter-stream"}


def test_measured_steps_are_the_true_ones(run: Run, traces: Path, small_job: Job) -> None:
    found = replayed_json(run, traces)

    for index, step in enumerate(found["steps"]):
        for rank in step["ranks"]:
            true_ns = int(small_job.step_ns[rank["rank"], index])
            assert rank["measured_ns"] == pytest.approx(true_ns, rel=1e-4)


def test_one_step_may_be_asked_for(run: Run, traces: Path) -> None:
    whole = replayed_json(run, traces)
    name = whole["steps"][1]["name"]

    by_name = replayed_json(run, traces, "--step", name)
    by_number = replayed_json(run, traces, "--step", name.removeprefix("ProfilerStep#"))

    assert [step["name"] for step in by_name["steps"]] == [name]
    assert by_name["steps"][0] == whole["steps"][1]
    assert by_number == by_name


def test_some_ranks_may_be_asked_for(run: Run, traces: Path) -> None:
    found = replayed_json(run, traces, "--ranks", "0,2-3")

    assert [rank["rank"] for rank in found["steps"][0]["ranks"]] == [0, 2, 3]


def test_ablation_changes_the_replay_and_is_said(run: Run, traces: Path) -> None:
    whole = replayed_json(run, traces)

    ablated = replayed_json(run, traces, "--without", "rendezvous", "--without", "inter-stream")
    table = run("replay", traces, "--without", "rendezvous", "--without", "inter-stream")

    assert ablated["steps"] != whole["steps"]
    assert ablated["null_models"] == whole["null_models"]
    assert "replayed without: rendezvous, inter-stream" in table.out


def test_cache_does_not_change_the_answer(run: Run, traces: Path, tmp_path: Path) -> None:
    cold = replayed_json(run, traces)
    filled = list((tmp_path / "cache").rglob("*"))
    warm = replayed_json(run, traces)
    anew = replayed_json(run, traces, "--no-cache", "--workers", "1")

    assert filled
    assert warm == cold
    assert anew == cold


def test_no_cache_keeps_nothing(run: Run, traces: Path, tmp_path: Path) -> None:
    replayed_json(run, traces, "--no-cache")

    assert not (tmp_path / "cache").exists()


def test_outputs_are_written_and_named(run: Run, traces: Path, tmp_path: Path) -> None:
    trace, report = tmp_path / "out" / "side.json.gz", tmp_path / "out" / "page.html"

    outcome = run("replay", traces, "--trace", trace, "--report", report, "--json")

    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["steps"]
    assert str(trace) in outcome.err
    assert str(report) in outcome.err
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {
        f"{what} {side}"
        for what in (*(f"rank {rank}" for rank in range(4)), "critical path")
        for side in ("measured", "replayed")
    }
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_files_and_globs_are_as_good_as_their_folder(run: Run, traces: Path) -> None:
    by_folder = replayed_json(run, traces)

    by_files = replayed_json(run, *sorted(traces.iterdir(), reverse=True))
    by_glob = replayed_json(run, traces / "rank*.json.gz")

    assert by_files == by_folder
    assert by_glob == by_folder


def test_a_replay_that_is_not_believed_says_so_first_and_fails_where_asked(
    run: Run, traces: Path
) -> None:
    good = run("replay", traces, "--strict")
    bad = run("replay", traces, "--strict", "--without", "device")

    assert good.code == 0, good.err
    assert "this replay can be believed" in good.out
    assert bad.code == 3
    assert bad.out.index("do not believe this replay") < bad.out.index("step time")
    assert run("replay", traces, "--without", "device").code == 0
    said = replayed_json(run, traces)["verdict"]
    assert said["trust"] == "believed"


def test_links_that_transfers_share_change_nothing_where_they_meet_as_recorded(
    run: Run, traces: Path, keeps_schema: KeepsSchema
) -> None:
    outcome = run(
        *("replay", traces, "--machine", "dgx-a100", "--network", "shared", "--json"),
    )

    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    keeps_schema("replay", found)
    assert found["links"]["step_time_ns"] == found["replayed_step_time_ns"]
    assert found["links"]["step_time_ns"] == found["links"]["use"]["private_ns"]
    assert found["links"]["use"]["rows"][0]["busy_share"] > 0
    assert "links" not in replayed_json(run, traces)


def test_links_are_shared_on_a_machine(run: Run, traces: Path) -> None:
    unnamed = run("replay", traces, "--network", "shared")
    private = run("replay", traces, "--machine", "dgx-a100")

    assert unnamed.code == 1
    assert "which links transfers share is the machine's to say" in unnamed.err
    assert private.code == 2
    assert "add --network shared" in private.err

"""`foretrace serve` refuses what it cannot answer, and finds engines that hold all requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

LAW = "poisson:rate=5,prompt=1500,output=30,requests=40"


def settings(path: Path, **stated: object) -> str:
    found = path / "meta.json"
    found.write_text(json.dumps(stated), encoding="utf-8")
    return str(found)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--gpu", "h100-sxm,l4"), "--gpu names several (h100-sxm,l4)"),
        (("--gpu", "h100-sxm,l4", "--rates", "1,2"), "only a search for the fewest chooses"),
        (("--gpu", "h100-sxm", "--rate", "0"), "40 requests cannot come at a rate of 0"),
        (("--gpu", "h100-sxm", "--rates", "0,1"), "40 requests cannot come at a rate of 0"),
        (("--gpu", "h100-sxm", "--slo", "ttft=1"), "cannot read the promise 'ttft=1'"),
        (("--gpu", "h100-sxm", "--fewest"), "state it with --slo"),
        (
            ("--gpu", "h100-sxm", "--slo", "ttft=0.1ms", "--rate", "2"),
            "no deployment on up to 64 GPUs keeps ttft 0.1 ms",
        ),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(
    run: Run, tmp_path: Path, more: tuple[str, ...], words: str
) -> None:
    engine = settings(tmp_path, model="llama3.1-8b")

    found = run("serve", "--engine", engine, "--requests", LAW, *more)

    assert found.code == 1
    assert words in " ".join(found.err.split())


def test_limits_that_are_left_out_are_those_of_each_gpu_of_a_search(
    run: Run, tmp_path: Path
) -> None:
    engine = settings(tmp_path, model="llama3.1-8b")

    found = run(
        *("serve", "--engine", engine, "--requests", LAW, "--slo", "ttft=2s,tpot=100ms"),
        *("--rate", "4", "--gpu", "rtx-4090,h100-sxm", "--json"),
    )

    tried = json.loads(found.out)["tried"]
    limits = {one["gpu"]: (one["max_num_seqs"], one["max_num_batched_tokens"]) for one in tried}
    assert limits.items() <= {"h100-sxm": (1024, 8192), "rtx-4090": (256, 2048)}.items()
    assert tried


def test_without_settings_the_fewest_gpus_that_hold_the_model_serve(run: Run) -> None:
    found = run(
        *("serve", "--model", "llama3-70b", "--gpu", "h100-sxm", "--json"),
        *("--requests", "poisson:rate=9,prompt=2000,output=100,requests=60"),
    )

    told = json.loads(found.out)
    assert told["num_gpus"] == 2  # 141 GB of weights, 80 GiB each
    notes = " ".join(told["notes"])
    assert "no settings of an engine are stated" in notes
    assert "more requests come (9" in notes


def test_a_model_no_host_holds_is_a_sentence(run: Run) -> None:
    found = run("serve", "--model", "deepseek-v3", "--gpu", "a100-sxm-80gb", "--requests", LAW)

    assert found.code == 1
    assert "deepseek-v3 leaves no room for a sequence" in " ".join(found.err.split())


def test_a_page_folds_the_moments_that_its_curve_shows(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "served.html"

    run("serve", "--model", "llama3-8b", "--gpu", "h100-sxm", "--requests", LAW, "--report", page)

    told = page.read_text(encoding="utf-8")
    assert told.count("Running and waiting requests, as a table</summary>") == 1
    assert told.count("<h2>Running and waiting requests</h2><figure>") == 1

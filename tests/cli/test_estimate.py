from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tests.cli.conftest import Run
from tests.conftest import Golden

STATED = (
    *("estimate", "--model", "llama3.2-1b", "--machine", "dgx-h100"),
    *("--tp", 2, "--pp", 2, "--dp", 2, "--global-batch", 8, "--micro-batch", 1),
    *("--sequence", 256, "--sharding", "zero1", "--recompute", "none"),
    *("--schedule", "interleaved", "--chunks", 2, "--set", "sequence_parallel=true"),
)
OPEN = (
    *("estimate", "--model", "llama3.2-1b", "--machine", "dgx-h100", "--gpus", 8),
    *("--tp", 2, "--global-batch", 8, "--micro-batch", 1, "--sequence", 256),
)


def test_the_answer_is_the_reviewed_one(run: Run, golden: Golden) -> None:
    outcome = run(*STATED, "--price", 2)

    assert outcome.code == 0
    golden.check("estimate", [line.rstrip() for line in outcome.out.splitlines()])


@pytest.mark.parametrize("arguments", [STATED, OPEN])
def test_it_stays_in_80_columns_and_answers_first(run: Run, arguments: tuple[object, ...]) -> None:
    outcome = run(*arguments)

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("llama3.2-1b on 8 x h100-sxm of dgx-h100")
    assert "middle 80 %" in outcome.out
    for section in ("where the time goes", "memory", "durations come from", "may move the step"):
        assert section in outcome.out


def test_json_has_what_the_tables_say(run: Run) -> None:
    value = json.loads(run(*STATED, "--json", "--convention", "full", "--price", 3).out)

    assert value["status"] == "predicted"
    assert value["convention"] == "full"
    assert value["num_ranks"] == 8
    assert value["plan"]["pipeline"]["schedule"] == "interleaved"
    assert value["low_ns"] < value["step_ns"] < value["high_ns"]
    assert value["memory"]["fits"] is True
    assert value["price_per_million_tokens"] > 0
    assert sum(value["sources"].values()) == pytest.approx(1)
    for row in value["ranks"]:
        parts = row["parts"]
        transfers = parts.pop("transfers")
        assert sum(parts.values()) + sum(transfers.values()) == value["step_ns"]


def test_what_is_left_open_is_marked_as_assumed(run: Run) -> None:
    outcome = run(*OPEN)
    value = json.loads(run(*OPEN, "--json").out)

    assert "step, assumed" in outcome.out
    assert "memory.recompute = none, also tried selective, full" in outcome.out
    assert value["status"] == "assumed"
    assert len(value["assumed"]["plans"]) == 12
    assert value["assumed"]["plans"][0]["step_ns"] == value["step_ns"]


def test_tables_are_written(run: Run, tmp_path: Path) -> None:
    outcome = run(*STATED, "--csv", tmp_path / "a.csv", "--parquet", tmp_path / "a.parquet")

    assert outcome.code == 0
    frame = pl.read_parquet(tmp_path / "a.parquet")
    assert frame["stage"].to_list() == [0, 1]
    assert pl.read_csv(tmp_path / "a.csv").columns == frame.columns


def test_every_rank_can_be_simulated(run: Run) -> None:
    folded = json.loads(run(*STATED, "--json").out)
    unfolded = json.loads(run(*STATED, "--json", "--unfolded").out)

    assert unfolded["step_ns"] == folded["step_ns"]
    assert len(unfolded["ranks"]) == 8
    assert (folded["is_folded"], unfolded["is_folded"]) == (True, False)


def test_trace_and_report_are_written(run: Run, tmp_path: Path) -> None:
    outcome = run(*STATED, "--trace", tmp_path / "t.pftrace", "--report", tmp_path / "r.html")

    assert outcome.code == 0
    assert (tmp_path / "t.pftrace").stat().st_size > 0
    assert "Training step estimate" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "t.pftrace" in outcome.err


def test_a_plan_of_the_users_folder_is_found_and_options_beat_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text(
        "[parallelism]\ntp = 4\n[batch]\nglobal_batch = 8\nsequence = 128\n"
    )
    monkeypatch.setenv("FORETRACE_PLANS", str(tmp_path))
    line = ("estimate", "--model", "llama3.2-1b", "--machine", "dgx-h100", "--plan", "own")

    value = json.loads(run(*line, "--tp", 2, "--json").out)

    assert value["plan"]["parallelism"]["tp"] == 2
    assert value["plan"]["batch"]["sequence"] == 128


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--tp", 3), "tp 3 does not divide 32 heads"),
        (("--tp", 0), "at least 1"),
        (("--gpus", 64, "--machine", "l40s-server"), "the plan needs 64 chips"),
        (("--dp", 8, "--machine", "l40s-server"), "the plan needs 32 chips"),
        (("--global-batch", 7), "do not divide a global batch of 7"),
        (("--schedule", "nothing"), "no schedule is called 'nothing'"),
        (("--sharding", "zero5"), "did you mean 'zero3'?"),
        (("--recompute", "some"), "one of none, selective, full"),
        (("--precision", "fp7"), "'products'"),
        (("--plan", "nothing"), "no plan is called 'nothing'"),
        (("--model", "nothing"), "no model is called 'nothing'"),
        (("--model", "llama4-behemoth"), "only totals are known"),
        (("--machine", "nothing"), "no machine is called 'nothing'"),
        (("--machine", "dgx-h10"), "did you mean dgx-h100"),  # a host, alone a machine too
        (("--machine", "superpod-h10"), "did you mean superpod-h100?"),
        (("--set", "tpp=2"), "did you mean 'tp'?"),
        (("--set", "tp"), "write a key and a value"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(run: Run, more: tuple[object, ...], told: str) -> None:
    outcome = run(*STATED, *more)

    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert told in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize("more", [("--price", -1), ("--gpus", 0), ("--convention", "nothing")])
def test_wrong_options_end_with_two(run: Run, more: tuple[object, ...]) -> None:
    assert run(*STATED, *more).code == 2


def test_the_batch_has_to_be_stated(run: Run) -> None:
    outcome = run("estimate", "--model", "llama3.2-1b", "--machine", "dgx-h100")

    assert outcome.code == 1
    assert "state global_batch" in outcome.err


MODULE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4))
    def forward(self, data):
        for layer in self.layers:
            data = layer(data)
        return data.sum()

def make(micro_batch=2):
    return Net(), torch.zeros(micro_batch, 8)
"""


def test_a_module_of_the_user_s_is_estimated_like_a_model(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    path = tmp_path / "net_for_estimate.py"
    path.write_text(MODULE, encoding="utf-8")

    outcome = run(
        *("estimate", "--module", f"{path}:make", "--machine", "dgx-h100", "--gpus", 8),
        *("--pp", 2, "--micro-batch", 4, "--global-batch", 64, "--json"),
    )

    value = json.loads(outcome.out)
    assert value["model"] == "Net"
    assert value["num_ranks"] == 8
    assert value["plan"]["precision"]["products"] == "fp32"
    assert value["plan"]["batch"]["micro_batch"] == 4
    assert value["samples_per_step"] == 64


@pytest.mark.parametrize("named", [(), ("--model", "llama3-8b", "--module", "a:b")])
def test_either_a_model_or_a_module_is_named(run: Run, named: tuple[str, ...]) -> None:
    outcome = run("estimate", *named, "--machine", "dgx-h100", "--global-batch", 8)

    assert outcome.code == 2
    assert "name a --model, or a --module, and not both" in outcome.err


def test_a_module_that_is_not_there_is_an_error_in_a_sentence(run: Run) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")

    outcome = run("estimate", "--module", "no_such:make", "--machine", "dgx-h100")

    assert outcome.code == 1
    assert "no_such:make cannot be loaded" in outcome.err


def test_a_plan_that_does_not_fit_ends_with_a_code_of_its_own(run: Run) -> None:
    large = (
        *("estimate", "--model", "llama3-70b", "--machine", "dgx-h100", "--gpus", 8, "--tp", 8),
        *("--global-batch", 1, "--micro-batch", 1, "--sequence", 1024, "--recompute", "none"),
    )
    outcome = run(*large, "--fail-if-does-not-fit")

    assert outcome.code == 5
    assert "nearest plans that fit" in outcome.out
    assert run(*large).code == 0
    assert run(*STATED, "--fail-if-does-not-fit").code == 0


def test_numbers_that_no_job_has_are_refused(run: Run) -> None:
    outcome = run(*STATED, "--price", "1e308")

    assert outcome.code == 2
    assert "1e+308 is beyond any job: at most 1e+30" in " ".join(outcome.err.split())

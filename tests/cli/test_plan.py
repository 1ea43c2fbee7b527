"""`foretrace plan`, and plans from other software's flags in other commands."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run

FLAGS = (
    "WORLD_SIZE=8\nARGS=(--num-layers 4 --hidden-size 256 --num-attention-heads 4 "
    "--vocab-size 1024 --seq-length 512 --max-position-embeddings 512 "
    "--micro-batch-size 1 --global-batch-size 16 "
    "--tensor-model-parallel-size 2 --bf16 --use-distributed-optimizer --unheard-of 1)"
)


def test_an_estimate_of_megatrons_flags(run: Run) -> None:
    out = run("estimate", "--megatron", FLAGS, "--machine", "dgx-h100", "--json").out
    found = json.loads(out)

    assert found["num_ranks"] == 8
    assert found["plan"]["parallelism"]["tp"] == 2
    assert found["plan"]["batch"]["global_batch"] == 16
    assert any("not understood: unheard-of" in note for note in found["notes"])


def test_options_beat_the_flags(run: Run) -> None:
    out = run(
        "estimate", "--config", FLAGS, "--machine", "dgx-h100", "--gpus", "4", "--tp", "4", "--json"
    ).out

    assert json.loads(out)["plan"]["parallelism"]["tp"] == 4


def test_a_plan_is_written_and_read_back(run: Run, tmp_path: Path) -> None:
    own = ("--model", "llama3-8b", "--gpus", "16", "--global-batch", "64", "--tp", "2", "--pp", "2")
    outcome = run("plan", "--as", "megatron", *own)
    out, err = outcome.out, outcome.err
    path = tmp_path / "args.sh"
    path.write_text(out)
    back = run("plan", "--config", str(path), "--json").out

    assert "--tensor-model-parallel-size 2" in out
    assert "without counterpart" not in err
    [plan] = json.loads(back)["plans"]
    assert plan["parallelism"]["tp"] == 2
    assert plan["parallelism"]["dp"] == 4


def test_what_a_format_cannot_say_goes_to_stderr(run: Run) -> None:
    own = ("--model", "llama3-8b", "--gpus", "16", "--global-batch", "64", "--pp", "2")
    err = run("plan", "--as", "deepspeed", *own).err

    assert "without counterpart: parallelism.pp = 2" in err


def test_a_written_plan_goes_to_a_file(run: Run, tmp_path: Path) -> None:
    own = ("--model", "llama3-8b", "--gpus", "16", "--global-batch", "64")
    path = tmp_path / "made.toml"
    out = run("plan", "--as", "torchtitan", "--out", str(path), *own).out

    assert "data_parallel_shard_degree = 16" in path.read_text()
    assert "the plan as torchtitan's configuration" in out


def test_steps_of_a_configured_plan(run: Run) -> None:
    own = ("--config", FLAGS, "--machine", "dgx-h100", "--samples", "4", "--json")
    err = run("risk", "steps", *own).err

    assert "note: of Megatron-LM's arguments these were not understood: unheard-of" in err


def test_an_edit_of_a_configured_plan(run: Run) -> None:
    own = ("--config", FLAGS, "--machine", "dgx-h100", "--layers", "8", "--json")
    outcome = run("whatif", *own)

    assert outcome.code == 0
    assert "note: of Megatron-LM's arguments these were not understood" in outcome.err
    assert json.loads(outcome.out)


def test_what_layers_compute_again_is_chosen(run: Run) -> None:
    own = ("--model", "llama3-8b", "--gpus", "8", "--global-batch", "64", "--micro-batch", "4")
    outcome = run("plan", *own, "--choose-recompute", "--machine", "dgx-h100", "--json")
    [plan] = json.loads(outcome.out)["plans"]

    assert len(plan["memory"]["layers"]) == 32
    assert run("plan", *own, "--choose-recompute").code == 2


def test_an_order_is_found_and_written_for_pytorch(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "order.csv"
    own = ("--model", "llama3.2-1b", "--gpus", "4", "--global-batch", "8", "--sequence", "1024")
    more = ("--pp", "4", "--machine", "dgx-h100", "--find-schedule", str(out), "--json")

    outcome = run("plan", *own, *more)

    assert outcome.code == 0
    told = json.loads(outcome.out)
    assert {"1f1b", "found"} <= {one["name"] for one in told["orders"]}
    assert len(out.read_text().splitlines()) == 4
    assert run("plan", *own, "--pp", "4", "--find-schedule", str(out)).code == 2

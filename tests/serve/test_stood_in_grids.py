"""States and indexers in serving: what a sequence keeps, and what a step of theirs takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import foretrace as ft
from foretrace.base import WorkloadError
from foretrace.machine import load_chip
from foretrace.serve import Engine, deployment, engine_run
from foretrace.serve.deployment import sequence_blocks
from foretrace.serve.formats import ServedFormats
from foretrace.serve.of_kernels import profiles_of_kernels
from foretrace.serve.stood_in_grids import stood_in_grids
from foretrace.workload import (
    Transformer,
    cache_bytes,
    cache_bytes_per_token,
    from_hf_config,
    load_model,
    state_bytes,
)
from tests.serve.made import constant_step, requests_of
from tests.workload.models.configurations import COUNTED

H200 = load_chip("h200-sxm")


def model_of(name: str, **other: object) -> Transformer:
    return from_hf_config(COUNTED[name][0] | other)


def test_a_sequence_keeps_its_states_whatever_its_length() -> None:
    model = model_of("qwen3-next-80b-a3b")

    # 36 layers: 32 heads of 128 x 128, and 3 tokens of 8,192 numbers that are convolved.
    assert state_bytes(model) == 36 * 2 * (32 * 128 * 128 + 3 * 8192)
    assert cache_bytes_per_token(model) == 12 * 2 * 2 * 2 * 256
    for tokens in (1, 10_000):
        kept = tokens * cache_bytes_per_token(model) + state_bytes(model)
        assert cache_bytes(model, tokens) == kept


def test_states_have_the_format_that_the_configuration_says() -> None:
    model = model_of("qwen3.5-27b")

    assert model.states is not None
    assert model.states.kept == "fp32"
    assert state_bytes(model) == 48 * (4 * 48 * 128 * 128 + 2 * 3 * 10_240)


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_states_take_blocks_of_the_cache(tensor: int) -> None:
    model = model_of("qwen3-next-80b-a3b")
    engine = Engine(tensor_parallel_size=tensor)

    blocks = sequence_blocks(model, engine)

    # Two heads of keys are divided over two GPUs, and copied beyond; heads of states always.
    block = 16 * cache_bytes_per_token(model) / min(tensor, 2)
    kept = state_bytes(model) / tensor
    assert (blocks - 1) * block < kept <= blocks * block


def test_states_leave_room_for_fewer_sequences_and_none_is_lost() -> None:
    requests = requests_of([0] * 40, [30] * 40, [20] * 40)
    bare = Engine(max_num_seqs=40)
    full = replace(bare, sequence_blocks=10)

    runs = [engine_run(requests, one, constant_step(10), blocks=100) for one in (bare, full)]

    most = [int(one.steps[0].num_running.max()) for one in runs]
    assert most[0] >= 24
    assert most[1] <= 99 // 12
    for run in runs:
        assert int(run.steps[0].used_blocks.max()) <= 99
        assert (run.last_ns > 0).all()


def test_new_tokens_read_and_write_states_whatever_came_before() -> None:
    model = model_of("qwen3.5-27b")

    decode, prefill = stood_in_grids(H200, model, 1, formats=ServedFormats())

    assert (decode == decode[:, :1]).all()
    assert (prefill == prefill[:, :1]).all()
    # 256 sequences: twice the states of all layers, by the memory's bandwidth.
    least = 256 * 2 * state_bytes(model) / H200.memory_bytes_per_ns / model.num_layers
    assert least < decode[8, 0] < 1.4 * least
    # Twice the tokens of a long prompt are twice the chunks.
    assert prefill[-1, 0] / prefill[-2, 0] == pytest.approx(2, rel=0.15)


def test_layers_without_attention_have_no_part_in_it() -> None:
    model = model_of("qwen3.5-27b")
    dense = replace(model, states=None, attention=replace(model.attention, layers=None))

    some, all_layers = (
        profiles_of_kernels(one, H200, tensor=1).dense["qkv_proj"][1] for one in (model, dense)
    )

    assert np.allclose(some, all_layers / 4)


def test_attention_to_picked_tokens_grows_with_the_indexers_scores_alone() -> None:
    picking, seeing = model_of("deepseek-v3.2-exp"), load_model("deepseek-v3")
    assert isinstance(seeing, Transformer)

    few, many = (profiles_of_kernels(one, H200, tensor=8).decode for one in (picking, seeing))

    keys = few.axes[1].tolist()
    at, last = keys.index(4096.0), keys.index(65536.0)
    grown = [(one.values[6, last] - one.values[6, at]) for one in (few, many)]
    assert 0 < grown[0] < grown[1]


def test_half_to_twice_of_what_stands_in_is_in_the_interval() -> None:
    model = model_of("qwen3.5-27b")
    found = deployment(model, Engine(max_num_seqs=64), gpu="H200")

    fast, slow = found.times.ends()

    assert found.times.assumed is not None
    least, most = (one.decode.values / found.times.decode.values for one in (fast, slow))
    assert (least < 1).all()
    assert (most > 1).all()
    share = found.times.assumed[0] / found.times.decode.values
    assert np.allclose(least, 1 - 0.5 * share)
    assert np.allclose(most, 1 + share)
    assert any("no kernel of states was measured" in note for note in found.notes)
    assert any("146.8 MiB over all layers" in note for note in found.notes)


@pytest.mark.parametrize("name", ["kimi-linear-48b-a3b", "minimax-text-01", "deepseek-v3.2-exp"])
def test_families_are_served(name: str) -> None:
    settings = {"tensor_parallel_size": 8, "enable_expert_parallel": True}
    settings |= {"data_parallel_size": 2} if name == "deepseek-v3.2-exp" else {}
    requests = "constant:rate=1,prompt=1024,output=16,requests=4"
    where = "gb200-nvl72" if name == "deepseek-v3.2-exp" else "dgx-b200"

    found = ft.serve(model_of(name), engine=settings, machine=where, requests=requests)

    assert found.tpot_ms.low < found.tpot_ms.mean < found.tpot_ms.high


def test_a_model_of_states_alone_keeps_as_many_sequences_as_memory_has_room_for() -> None:
    model = load_model("mamba2-2.7b")
    assert isinstance(model, Transformer)
    small = Engine(kv_cache_memory_bytes=10 * int(state_bytes(model)))
    requests = requests_of([0] * 40, [900] * 40, [20] * 40)

    found = deployment(model, small, gpu="H100")
    run = engine_run(requests, found.engine, found.times, blocks=found.num_blocks)

    # One block of ten is vLLM's own; whatever its length a sequence takes one.
    assert int(run.steps[0].num_running.max()) == int(run.steps[0].used_blocks.max()) == 9
    assert (run.last_ns > 0).all()
    assert not run.preempted.any()
    assert any("states of 9 sequences" in note for note in found.notes)


def test_layers_of_one_branch_have_one_norm_and_one_sum() -> None:
    model = load_model("mamba2-2.7b")
    assert isinstance(model, Transformer)
    layers = profiles_of_kernels(model, H200, tensor=1)

    found = deployment(model, Engine(max_num_seqs=64), gpu="H200")

    assert "rotary_emb" not in layers.dense
    assert np.allclose(layers.decode.values, layers.decode.values[:, :1])
    each = {name: ns[0] for name, (_, ns) in layers.dense.items()}
    ends = each.pop("embedding") + each.pop("final_layernorm")
    assert found.times.token_ns[1] == pytest.approx(ends + 64 * sum(each.values()))


def test_pools_hand_states_over_and_prompts_are_not_worked_on_again() -> None:
    model = load_model("mamba2-2.7b")
    requests = "constant:rate=1,prompt=1500,output=4,requests=8"

    together, apart = (
        ft.serve(model, engine={}, gpu="h200", requests=requests, pools=pools)
        for pools in (None, "1:1")
    )

    assert apart.latency_ms.mean < 1.1 * together.latency_ms.mean
    (room,) = (note for note in together.notes if "leaves room" in note)
    assert f"{room.split()[-2]} sequences, " in str(together)


@pytest.mark.parametrize(
    ("tensor", "profiles", "sentence"),
    [
        (8, Path("x"), "states.heads = 48.*leave --profiles out"),
        (32, None, "48 heads with states in 16 groups"),
    ],
)
def test_what_states_cannot_be_served_with_is_named(
    tensor: int, profiles: Path | None, sentence: str
) -> None:
    with pytest.raises(WorkloadError, match=sentence):
        deployment(
            model_of("qwen3.5-27b"),
            Engine(tensor_parallel_size=tensor),
            gpu="H200",
            profiles=profiles,
        )

"""Deployments that were measured, predicted from their layers; and memory."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import foretrace as ft
from foretrace.base import Float64s, MachineError, WorkloadError
from foretrace.machine import load_chip
from foretrace.serve import (
    Engine,
    ProfileGrid,
    chip_of,
    deployment,
    read_engine,
    read_profiles,
    requests_named,
)
from foretrace.serve.of_kernels import profiles_of_kernels
from foretrace.serve.of_profiles import times_of_profiles
from foretrace.workload import (
    NormPlace,
    Transformer,
    load_model,
    model_called,
    serving_memory,
)

DATA = Path(os.environ.get("FORETRACE_DATA", "../shared/data")) / "serving"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="public deployments are not here")


def measured(folder: Path) -> dict[str, Float64s]:
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    keys = ("queued_ts", "first_token_ts", "last_token_ts", "arrival_time", "output_toks")
    queued, first, last, arrival, output = (np.array([row[key] for row in rows]) for key in keys)
    came = arrival + (queued - arrival).min()
    return {
        "ttft_ms": (first - came) * 1e3,
        "tpot_ms": (last - first) / (output - 1) * 1e3,
        "latency_ms": (last - came) * 1e3,
    }


def test_a_short_name_is_a_whole_one() -> None:
    found = chip_of(["l4"])

    assert found is not None
    assert found.name == "l4"
    assert chip_of(["l"]) is None


def test_a_deployment_under_rules_of_substitution() -> None:
    law = "poisson:rate=4,prompt=4096,output=64,requests=64"
    engine = {"model": "llama3-8b", "max_num_batched_tokens": 8192}
    plain, same, found = (
        ft.serve(engine=engine, requests=law, gpu="h100-sxm", substitutes=rules)
        for rules in ((), ("strassen:1",), ("fp8",))
    )
    assert same.ttft_ms.mean == plain.ttft_ms.mean
    assert found.ttft_ms.mean < 0.9 * plain.ttft_ms.mean
    assert any("fp8" in note for note in found.notes)
    cached = [note for one in (plain, found) for note in one.notes if "the cache" in note]
    assert cached[0] != cached[1], "packed operands take room from the cache"
    with pytest.raises(WorkloadError, match="name the GPU with --gpu"):
        ft.serve(engine=engine, requests=law, trace="marks.json", substitutes=["fp8"])
    with pytest.raises(MachineError, match="did you mean strassen"):
        ft.serve(engine=engine, requests=law, gpu="h100-sxm", substitutes=["strasen:1"])


@needs_data
@pytest.mark.parametrize("name", ["rtx4090-llama-3.1-8b", "rtxpro6000-llama-3.1-8b"])
def test_deployments_from_layer_profiles(name: str) -> None:
    folder = DATA / name
    truth = measured(folder)

    found = ft.serve(
        "meta-llama/Llama-3.1-8B",
        engine=folder / "meta.json",
        requests=folder / "requests.jsonl",
        profiles=DATA / "profiles",
    )

    assert found.tpot_ms.median == pytest.approx(np.median(truth["tpot_ms"]), rel=0.015)
    assert found.latency_ms.mean == pytest.approx(truth["latency_ms"].mean(), rel=0.02)
    assert found.ttft_ms.mean == pytest.approx(truth["ttft_ms"].mean(), rel=0.05)
    for key, values in truth.items():
        spread = found.as_json()[key]
        assert spread["low"] < values.mean() < spread["high"]
    assert len(found.as_json()["requests"]) == len(truth["ttft_ms"])


@needs_data
@pytest.mark.parametrize("name", ["rtx4090-llama-3.1-8b", "rtxpro6000-llama-3.1-8b"])
def test_deployments_without_profiles(name: str) -> None:
    folder = DATA / name
    truth = measured(folder)

    found = ft.serve(engine=folder / "meta.json", requests=folder / "requests.jsonl")

    assert "data sheet" in found.source
    for key in ("tpot_ms", "ttft_ms", "latency_ms"):
        spread = found.as_json()[key]
        assert spread["low"] < truth[key].mean() < spread["high"]
    assert found.tpot_ms.median == pytest.approx(np.median(truth["tpot_ms"]), rel=0.06)
    assert found.latency_ms.mean == pytest.approx(truth["latency_ms"].mean(), rel=0.07)


def mixed_steps() -> tuple[ProfileGrid, ProfileGrid]:
    """Prefills beside decodes of a model on one card: measured, and as kernel models say."""
    model = load_model("qwen3-32b")
    assert isinstance(model, Transformer)
    measured = read_profiles(
        DATA / "profiles", models=["qwen3-32b"], gpus=["rtxpro6000"], tensor=1, has_experts=False
    )
    return measured.mixed, profiles_of_kernels(model, load_chip("rtx-pro-6000")).mixed


@needs_data
def test_a_prefill_beside_decodes_takes_what_flash_attention_2_takes() -> None:
    measured, found = mixed_steps()

    off = [
        found.values[tuple(_at(found, *size))] / measured.values[tuple(_at(measured, *size))]
        for size in product((64, 256, 1024), (512, 2048), (16, 64, 128), (512, 1024, 2048))
    ]

    assert np.abs(np.log(off)).mean() < 0.2  # 1.0 where decodes took what they take alone


@needs_data
@pytest.mark.parametrize("sequences", [64, 128])
def test_heads_of_a_group_read_again_what_the_cache_does_not_hold(sequences: int) -> None:
    measured, found = mixed_steps()

    shorter, longer = (
        [grid.values[tuple(_at(grid, 16, 512, sequences, keys))] for grid in (measured, found)]
        for keys in (1024, 4096)
    )

    # Four times the keys of 128 sequences take 6.3 times as long, of 64 no more than four.
    assert longer[1] / shorter[1] == pytest.approx(longer[0] / shorter[0], rel=0.2)


@needs_data
@pytest.mark.parametrize(
    ("model", "tensor"), [("qwen3-32b", 1), ("qwen3-32b", 2), ("llama3.1-8b", 1)]
)
def test_products_of_a_card_take_what_they_took(model: str, tensor: int) -> None:
    known = load_model(model)
    assert isinstance(known, Transformer)
    found = profiles_of_kernels(known, load_chip("rtx-pro-6000"), tensor=tensor).dense
    measured = read_profiles(
        DATA / "profiles", models=[model], gpus=["rtxpro6000"], tensor=tensor, has_experts=False
    ).dense
    names = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")

    off = [np.interp(2048, *found[name]) / np.interp(2048, *measured[name]) for name in names]

    assert np.abs(np.log(off)).mean() < 0.13  # 0.2 with the constants of data centres' Blackwell


def test_keys_of_a_layer_come_from_memory() -> None:
    """Weights of all layers lie between two reads of what is kept, so no cache holds it."""
    model, chip = load_model("llama3.1-8b"), load_chip("rtx-pro-6000")
    assert isinstance(model, Transformer)
    assert chip.l2_bytes is not None
    decode = profiles_of_kernels(model, chip).decode
    kept = 16 * 1024 * 2 * 8 * 128 * 2  # of 16 sequences of 1,024 tokens: half of the cache

    taken = decode.values[tuple(_at(decode, 16, 1024))]

    assert kept < chip.l2_bytes
    assert taken > kept / chip.memory_bytes_per_ns


def _at(grid: ProfileGrid, *sizes: float) -> list[int]:
    return [list(axis).index(size) for axis, size in zip(grid.axes, sizes, strict=True)]


@needs_data
@pytest.mark.parametrize(
    ("model", "change"),
    [
        ("Qwen/Qwen3-32B", {"tensor_parallel_size": 2}),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", {"tensor_parallel_size": 2}),
        (
            "Qwen/Qwen3-30B-A3B-Instruct-2507",
            {"tensor_parallel_size": 2, "enable_expert_parallel": True},
        ),
        (
            "Qwen/Qwen3-30B-A3B-Instruct-2507",
            {"data_parallel_size": 2, "enable_expert_parallel": True},
        ),
    ],
)
def test_models_over_two_gpus_are_served(model: str, change: dict[str, object]) -> None:
    found = ft.serve(
        engine={"model": model, "max_num_seqs": 128, **change},
        requests="poisson:rate=10,prompt=800,output=300,requests=100",
        profiles=DATA / "profiles",
    )

    assert found.num_gpus == 2
    assert 5 < found.tpot_ms.median < 100
    assert found.tpot_ms.low < found.tpot_ms.mean < found.tpot_ms.high


@pytest.mark.parametrize("model", ["qwen3-32b", "qwen3-30b-a3b"])
def test_two_gpus_without_profiles(model: str) -> None:
    found = ft.serve(
        model,
        engine={"tensor_parallel_size": 2, "enable_expert_parallel": True, "max_num_seqs": 128},
        requests="poisson:rate=5,prompt=500,output=100,requests=50",
        machine="rtx-pro-server",
    )

    assert 2 < found.tpot_ms.median < 80


def test_copies_that_share_experts_stand_in_one_machine() -> None:
    model = load_model("qwen3-30b-a3b")
    assert isinstance(model, Transformer)
    engine = Engine(tensor_parallel_size=2, data_parallel_size=2, enable_expert_parallel=True)

    with pytest.raises(WorkloadError, match="4 GPUs serve one model, and pc-rtx-4090 has 2"):
        deployment(model, engine, gpu="RTX 4090")


@needs_data
def test_the_cache_that_memory_leaves_is_what_was_resolved() -> None:
    engine = read_engine(DATA / "rtx4090-llama-3.1-8b" / "meta.json")
    model = model_called(engine.model)
    assert isinstance(model, Transformer)
    assert engine.device_bytes is not None

    memory = serving_memory(model, capacity=engine.device_bytes)

    assert memory.cache / memory.bytes_per_token == pytest.approx(41_408, rel=0.01)


def test_memory_that_holds_no_sequence_is_a_sentence() -> None:
    model = load_model("llama3-70b")
    assert isinstance(model, Transformer)

    with pytest.raises(WorkloadError, match="--profiles"):
        deployment(model, Engine())
    with pytest.raises(WorkloadError, match="leaves no room for a sequence"):
        deployment(model, Engine(), gpu="RTX 4090")
    memory = serving_memory(model, capacity=24 << 30)
    assert memory.cache == 0


def test_models_that_make_no_tokens_are_refused() -> None:
    model = load_model("vit-h-14")
    assert isinstance(model, Transformer)

    with pytest.raises(WorkloadError, match="sees pictures and makes no tokens"):
        deployment(model, Engine(), gpu="H100")


def test_latents_are_served_from_kernel_models() -> None:
    model = load_model("deepseek-v3")
    assert isinstance(model, Transformer)
    chip = load_chip("b200-sxm")
    settings = {"tensor_parallel_size": 8, "enable_expert_parallel": True}
    requests = "constant:rate=1,prompt=1024,output=16,requests=4"

    found = ft.serve(model, engine=settings, gpu="b200", requests=requests)
    layers = profiles_of_kernels(model, chip, tensor=8)

    assert found.num_gpus == 8
    assert found.cache_tokens is not None
    assert found.cache_tokens > 16384
    # What is kept of 64 sequences of 16,384 tokens is read once for all heads of a GPU.
    counts, keys = (list(axis) for axis in layers.decode.axes)
    taken = layers.decode.values[counts.index(64), keys.index(16384)]
    read = 64 * 16384 * 576 * 2 / chip.memory_bytes_per_ns
    assert 1 < taken / read < 3
    few = layers.decode.values[counts.index(64), keys.index(1024)]
    assert taken > 4 * few / 2
    # The first three of 61 layers have a feed-forward part, the others a shared expert.
    assert {"gate_up_proj", "shared_gate_up_proj", "qkv_a_proj", "q_b_proj"} <= set(layers.dense)
    prompts = layers.prefill.values
    assert (np.diff(prompts, axis=1) >= 0).all()  # what came before is taken out of latents too


def test_layers_with_windows_see_no_more_than_those() -> None:
    model = load_model("gemma-3-27b")
    assert isinstance(model, Transformer)
    assert model.reach is not None
    chip = load_chip("h100-sxm")

    with_windows = profiles_of_kernels(model, chip)
    without = profiles_of_kernels(replace(model, reach=None), chip)

    window, (_, keys) = model.reach.num_tokens, with_windows.decode.axes
    within, beyond = keys <= window, keys > 4 * window
    assert with_windows.decode.values[:, within] == pytest.approx(without.decode.values[:, within])
    saved = with_windows.decode.values[6:, beyond] / without.decode.values[6:, beyond]
    assert (saved < 0.6).all()  # 5 of 6 layers
    chunks = with_windows.prefill.axes[0] <= window
    alone = with_windows.prefill.values[chunks, 0]
    assert alone == pytest.approx(without.prefill.values[chunks, 0])
    assert (with_windows.prefill.values <= without.prefill.values * 1.1).all()


def test_norms_on_both_sides_are_called_twice_as_often() -> None:
    model = load_model("gemma-3-27b")
    assert isinstance(model, Transformer)
    both = times_of_profiles(profiles_of_kernels(model, load_chip("h100-sxm")), model, Engine())
    plain = replace(model, norm_place=NormPlace.BEFORE)
    before = times_of_profiles(profiles_of_kernels(plain, load_chip("h100-sxm")), plain, Engine())
    tokens, ns = profiles_of_kernels(model, load_chip("h100-sxm")).dense["layernorm"]

    difference = both.token_ns[256] - before.token_ns[256]

    assert difference == pytest.approx(2 * 62 * float(ns[list(tokens).index(256)]))


def test_gpus_are_found_by_what_others_call_them() -> None:
    for name in ("RTX4090", "NVIDIA GeForce RTX 4090", "rtx4090-llama-3.1-8b"):
        chip = chip_of([name])
        assert chip is not None
        assert chip.name == "rtx-4090"
    assert chip_of(["rtxpro6000-qwen"]) == load_chip("rtx-pro-6000")
    assert chip_of(["results"]) is None
    assert chip_of(["L40S"]) == load_chip("l40s")
    assert chip_of(["L40"]) is None  # not described, and no L4
    for name in ("h200", "b200", "H100", "NVIDIA H200"):
        chip = chip_of([name])
        assert chip is not None
        assert chip.name == f"{name.lower().split()[-1]}-sxm"


@pytest.mark.parametrize(
    ("identifier", "name"),
    [
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4-scout"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "qwen3-235b-a22b"),
    ],
)
def test_a_tuned_model_has_the_shape_of_the_one_it_was_made_of(identifier: str, name: str) -> None:
    assert model_called(identifier).name == name


def test_a_hubs_identifier_is_a_preset() -> None:
    assert model_called("Qwen/Qwen3-30B-A3B-Instruct-2507").name == "qwen3-30b-a3b"
    for plain in ("Qwen3-30B-A3B", "qwen3-30b-a3b", "Qwen3-30B-A3B-Instruct-2507"):
        assert model_called(plain).name == "qwen3-30b-a3b"
    quantised = model_called("Qwen3-32B-AWQ")
    assert isinstance(quantised, Transformer)
    assert quantised.quantisation is not None
    with pytest.raises(WorkloadError, match="did you mean qwen3-30b-a3b"):
        model_called("Qwen3-30B-A4B")
    assert model_called("meta-llama/Llama-3.1-8B").name == "llama3.1-8b"
    with pytest.raises(WorkloadError, match="acme/unheard-of"):
        model_called("acme/unheard-of")
    assert len(requests_named("constant:rate=1,prompt=1,output=1,requests=3")) == 3

"""Layer profiles: exact where measured, on the line between."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from foretrace.base import WorkloadError
from foretrace.cost import rule_named
from foretrace.machine import load_chip, load_machine
from foretrace.serve import (
    Engine,
    LayerProfiles,
    StepBatch,
    activated_experts,
    read_profiles,
    times_of_profiles,
)
from foretrace.serve.of_kernels import profiles_of_kernels, under_rules
from foretrace.workload import Transformer, load_model
from tests.models import transformer

TOKENS = (1, 8, 64, 512, 2048)
KEYS = (0, 16, 512, 4096)
SEQUENCES = (1, 16, 128)
PER_LAYER = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "act_fn", "rotary_emb", "layernorm")


def attention_us(tokens: int, before: int, sequences: int, keys: int) -> float:
    pairs = tokens * (before + tokens / 2)
    return 3 + 1e-3 * tokens + 1e-5 * pairs + 1e-4 * sequences * keys


def write_profiles(
    folder: Path, *, gpu: str = "acme1", tensor: int = 1, name: str = "m-8b"
) -> None:
    begin = f"{gpu}-{name}-bf16-tp{tensor}"
    dense = [
        {"layer": layer, "tokens": tokens, "time_us": 5 + 0.01 * tokens}
        for layer in (*PER_LAYER, "embedding", "final_layernorm")
        for tokens in TOKENS
    ]
    pl.DataFrame(dense).write_parquet(folder / f"{begin}-dense.parquet")
    last = [
        {"layer": layer, "sequences": count, "time_us": 30 + 0.5 * count}
        for layer in ("lm_head", "sampler")
        for count in SEQUENCES
    ]
    pl.DataFrame(last).write_parquet(folder / f"{begin}-per_sequence.parquet")
    rows = [
        *((tokens, before, 0, 0) for tokens, before in product(TOKENS[1:], KEYS)),
        *((0, 0, count, keys) for count, keys in product(SEQUENCES, KEYS[1:])),
        *product(TOKENS[1:], KEYS, SEQUENCES, KEYS[1:]),
    ]
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    table = [
        dict(zip((*names, "time_us"), (*row, attention_us(*row)), strict=True)) for row in rows
    ]
    pl.DataFrame(table).write_parquet(folder / f"{begin}-attention.parquet")


def read(folder: Path, **change: object) -> LayerProfiles:
    wanted = {"models": ["acme/M-8B"], "gpus": [], "tensor": 1, "has_experts": False, **change}
    return read_profiles(folder, **wanted)  # type: ignore[arg-type]


@pytest.fixture
def model() -> Transformer:
    return transformer("llama3.1-8b")


def test_a_step_is_exact_where_layers_were_measured(tmp_path: Path, model: Transformer) -> None:
    write_profiles(tmp_path)
    times = times_of_profiles(read(tmp_path), model, Engine())

    tokens, before, count, keys = 512, 4096, 16, 512
    measured_us = 32 * attention_us(tokens, before, count, keys)
    pairs_of_step = StepBatch(prefills=((tokens - count, before),), decodes=(keys,) * count)
    decodes = StepBatch(decodes=(keys,) * count)
    layers_us = (32 * 8 + 2) * (5 + 0.01 * 16) + 2 * (30 + 0.5 * 16)

    assert times.step_ns(decodes) == round(1e3 * (layers_us + 32 * attention_us(0, 0, count, keys)))
    assert times.step_ns(pairs_of_step) > 1e3 * measured_us


def test_steps_never_take_less_for_more_work(tmp_path: Path, model: Transformer) -> None:
    write_profiles(tmp_path)
    times = times_of_profiles(read(tmp_path), model, Engine())

    for batches in (
        [StepBatch(decodes=(600,) * count) for count in range(1, 200, 7)],
        [StepBatch(decodes=(keys,) * 20) for keys in range(1, 9000, 333)],
        [StepBatch(prefills=((tokens, 100),)) for tokens in range(1, 2000, 77)],
        [StepBatch(prefills=((300, before),), decodes=(9,)) for before in range(0, 9000, 333)],
    ):
        spent = [times.step_ns(batch) for batch in batches]
        assert all(first <= second for first, second in pairwise(spent))


def test_points_between_two_grids_lie_between_them(tmp_path: Path) -> None:
    write_profiles(tmp_path)
    path = tmp_path / "acme1-m-8b-bf16-tp1-attention.parquet"
    whole = pl.read_parquet(path)
    kept = whole.filter(
        ~(
            (pl.col("prefill_chunk") == 64)
            & (pl.col("kv_prefill") == 512)
            & (pl.col("n_decode") > 0)
        )
    )
    kept.write_parquet(path)

    found = read(tmp_path).mixed

    assert not np.isnan(found.values).any()
    at = tuple(
        int(np.searchsorted(axis, value))
        for axis, value in zip(found.axes, (64, 512, 16, 512), strict=True)
    )
    below, above = (1e3 * attention_us(tokens, 512, 16, 512) for tokens in (8, 512))
    assert below < found.values[at] < above


def test_two_gpus_share_a_model_over_the_machines_links(tmp_path: Path, model: Transformer) -> None:
    for tensor in (1, 2):
        write_profiles(tmp_path, tensor=tensor)
    engine = Engine(tensor_parallel_size=2)
    batch = StepBatch(decodes=(100,) * 64)

    alone = times_of_profiles(read(tmp_path), model, Engine()).step_ns(batch)
    both = times_of_profiles(
        read(tmp_path, tensor=2), model, engine, machine=load_machine("rtx-pro-server")
    ).step_ns(batch)

    assert 65 * 8_000 < both - alone < 65 * 200_000
    with pytest.raises(WorkloadError, match="name a machine with --machine"):
        times_of_profiles(read(tmp_path, tensor=2), model, engine)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"models": ["other"]}, "no profile of other"),
        ({"tensor": 4}, "at tp4"),
        ({"has_experts": True}, "no moe profile"),
        ({}, "nothing says which GPU serves"),
    ],
)
def test_profiles_that_are_not_there(change: dict[str, object], words: str, tmp_path: Path) -> None:
    for gpu in ("acme1", "acme2"):
        write_profiles(tmp_path, gpu=gpu)
    gpus = {"gpus": ["ACME 1"]} if change else {}

    with pytest.raises(WorkloadError, match=words):
        read(tmp_path, **gpus, **change)


def test_a_folder_without_profiles(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="no layer profiles in"):
        read(tmp_path)


def test_experts_are_activated_as_trained_gates_do() -> None:
    model = transformer("qwen3-30b-a3b")
    tokens = 2 ** np.arange(12)

    found = activated_experts(model, tokens)

    even = 128 * (1 - (1 - 8 / 128) ** tokens)
    assert found[0] == pytest.approx(8)
    assert found[-1] == pytest.approx(128, rel=0.01)
    assert (1 - found / even).max() == pytest.approx(0.13, abs=0.005)


def test_rules_of_substitution_shorten_the_products_where_they_pay() -> None:
    model, chip = load_model("llama3-8b"), load_chip("h100-sxm")
    assert isinstance(model, Transformer)
    plain = profiles_of_kernels(model, chip)
    same = under_rules(plain, model, chip, (rule_named("strassen:1"),))
    found = under_rules(plain, model, chip, (rule_named("fp8"),))
    for name, (tokens, taken_ns) in plain.dense.items():
        assert np.array_equal(same.dense[name][1], taken_ns)
        assert (found.dense[name][1] <= taken_ns).all()
        # Only long products gain: few tokens wait for weights, which are packed at each call.
        gains = found.dense[name][1] < taken_ns
        assert gains[-1] == name.endswith("proj")
        assert not gains[tokens < 64].any()

"""Weights and what is kept of tokens in fewer bits, as engines serve them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foretrace as ft
from foretrace.base import WorkloadError
from foretrace.machine import load_chip
from foretrace.serve import Serving
from foretrace.serve.attention_grids import unpacked_ns

DATA = Path(os.environ.get("FORETRACE_DATA", "../shared/data")) / "serving"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="public deployments are not here")
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}


def alone(model: str = "llama3.1-8b", gpu: str = "h100-sxm", **engine: Any) -> Serving:
    return ft.serve(
        model,
        engine={"max_num_seqs": 16, "max_num_batched_tokens": 2048, **engine},
        requests="constant:rate=0.1,prompt=1024,output=64,requests=2",
        gpu=gpu,
    )


def test_fewer_bits_are_read_faster_and_leave_room() -> None:
    plain, eight, four = (alone(), alone(quantization="fp8"), alone(quantization="awq"))

    # 6.98 billion of 8.03 billion parameters lie in linear layers of 32 alike ones.
    spared = 2 * 6.98e9 - (1 * 6.98e9)
    assert eight.cache_tokens is not None
    assert plain.cache_tokens is not None
    assert eight.cache_tokens - plain.cache_tokens == pytest.approx(spared / 131_072, rel=0.01)
    assert four.tpot_ms.median < eight.tpot_ms.median < plain.tpot_ms.median
    assert plain.tpot_ms.median / eight.tpot_ms.median < 2, "the head stays in 16 bit"
    assert eight.ttft_ms.mean < plain.ttft_ms.mean, "8-bit products take half as long"
    assert four.ttft_ms.mean == pytest.approx(plain.ttft_ms.mean, rel=0.1), "unpacked ones do not"
    assert any("weights of linear layers: int4, unpacked" in note for note in four.notes)


def test_chips_without_such_products_unpack() -> None:
    own, unpacked = (alone(gpu=gpu, quantization="fp8") for gpu in ("h100-sxm", "a100-sxm-80gb"))

    assert any("products in fp8" in note for note in own.notes)
    assert any("unpacked" in note for note in unpacked.notes)


def test_a_checkpoint_says_more_than_a_word() -> None:
    word = alone(quantization="awq")
    stated = alone(quantization="gptq", quantization_config=AWQ)
    overridden = alone(hf_overrides={"quantization_config": AWQ})

    assert word.tpot_ms == stated.tpot_ms == overridden.tpot_ms


def test_a_narrow_cache_holds_twice_and_is_read_faster() -> None:
    engine = {"max_num_seqs": 128, "max_num_batched_tokens": 8192}
    law = "constant:rate=1000,prompt=8192,output=256,requests=48"
    plain, narrow = (
        ft.serve("llama3.1-8b", engine={**engine, **more}, requests=law, gpu="h100-sxm")
        for more in ({}, {"kv_cache_dtype": "fp8_e4m3"})
    )

    assert plain.cache_tokens is not None
    assert narrow.cache_tokens == pytest.approx(2 * plain.cache_tokens, rel=1e-4)
    assert narrow.itl_ms.median < 0.85 * plain.itl_ms.median
    auto = {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    assert alone(quantization_config=auto).cache_tokens == pytest.approx(
        2 * (alone(quantization="fp8").cache_tokens or 0), rel=1e-4
    )


def test_latents_and_experts_in_eight_bits() -> None:
    found = ft.serve(
        "deepseek-v3",
        engine={"tensor_parallel_size": 8, "max_num_seqs": 16, "max_num_batched_tokens": 2048},
        requests="constant:rate=0.1,prompt=1024,output=64,requests=2",
        gpu="h200-sxm",
    )

    # 671 GB over eight GPUs of 141 GB: in 16 bit it fits none of them.
    assert found.cache_tokens is not None
    assert 5 < found.tpot_ms.median < 25


@needs_data
def test_measured_layers_are_scaled_by_what_models_say() -> None:
    common: dict[str, Any] = {
        "requests": "poisson:rate=2,prompt=800,output=100,requests=40",
        "profiles": DATA / "profiles",
        "gpu": "RTX PRO 6000",
    }
    model = "Qwen/Qwen3-30B-A3B-Instruct-2507"
    plain, eight, cache = (
        ft.serve(engine={"model": model, "max_num_seqs": 64, **more}, **common)
        for more in ({}, {"quantization": "fp8"}, {"kv_cache_dtype": "fp8"})
    )

    assert 0.4 < eight.tpot_ms.median / plain.tpot_ms.median < 0.95
    assert cache.tpot_ms.median != plain.tpot_ms.median
    assert eight.cache_tokens is not None
    assert plain.cache_tokens is not None
    assert eight.cache_tokens > plain.cache_tokens


def test_what_nothing_costs_is_a_sentence() -> None:
    with pytest.raises(WorkloadError, match="kept by 'bitsandbytes', which is not costed"):
        alone(quantization_config={"quant_method": "bitsandbytes"})
    with pytest.raises(WorkloadError, match=r"quantization_config of .*: expected a mapping"):
        alone(quantization_config=["fp8"])
    with pytest.raises(WorkloadError, match="kv_cache_dtype of the engine's settings is 'fp9'"):
        alone(kv_cache_dtype="fp9")
    with pytest.raises(WorkloadError, match="rules of substitution are about products in 16 bit"):
        ft.serve(
            "llama3.1-8b",
            engine={"quantization": "fp8"},
            requests="constant:rate=1,prompt=8,output=8,requests=1",
            gpu="h100-sxm",
            substitutes=["strassen:1"],
        )


@pytest.mark.parametrize(
    ("chip", "rows", "published"),
    [("a100-sxm-80gb", 32, 110.8), ("a100-sxm-80gb", 4096, 141.1), ("t4", 4096, 58.6)],
)
def test_marlin_unpacks_every_weight_again_for_64_rows(
    chip: str, rows: int, published: float
) -> None:
    weights = 8192 * 8192

    taken_ns = unpacked_ns(load_chip(chip), np.array([rows]), weights)[0]

    assert 2 * weights * rows / taken_ns / 1e3 == pytest.approx(published, rel=0.02)
    assert unpacked_ns(load_chip("h100-sxm"), np.array([rows]), weights) == 0

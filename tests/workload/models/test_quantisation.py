"""How checkpoints keep weights, as their `config.json` says it."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.base import WorkloadError
from foretrace.workload import (
    ATTENTION,
    EXPERTS,
    FEED_FORWARD,
    SHARED_EXPERTS,
    Quantisation,
    Transformer,
    model_called,
    quantisation_named,
    quantisation_of,
    serving_memory,
)
from tests.models import transformer

GIB = 2**30
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
FP4 = {"num_bits": 4, "type": "float", "group_size": 16}


def read(stated: dict[str, Any], model: str = "llama3.1-8b") -> Quantisation:
    return quantisation_of(stated, transformer(model), "config.json")


def groups(weights: object, taken: object = None, **more: object) -> dict[str, Any]:
    group = {"weights": weights, "input_activations": taken, "targets": ["Linear"]}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


@pytest.mark.parametrize(
    ("stated", "weights", "operands", "each"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4", "bf16",
         0.5 + 2.5 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}, "int8", "bf16", 1.0),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8", "fp8", 1.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", "fp8", 1 + 4 / 128**2),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", "nvfp4", 0.5 + 1 / 16),
        ({"quantization": {"quant_algo": "FP8"}}, "fp8", "fp8", 1.0),
        (groups(INT4), "int4", "bf16", 0.5 + 2 / 128),
        (groups(FP8, FP8), "fp8", "fp8", 1.0),
        (groups({**FP8, "strategy": "block"}, FP8), "fp8", "fp8", 1 + 4 / 128**2),
        (groups(FP4, FP4), "nvfp4", "nvfp4", 0.5 + 1 / 16),
        (groups({"num_bits": 8}, {"num_bits": 8}), "int8", "int8", 1.0),
    ],
)  # fmt: skip
def test_formats_and_scales(
    stated: dict[str, Any], weights: str, operands: str, each: float
) -> None:
    found = read(stated)

    assert (found.weights, found.operands) == (weights, operands)
    assert found.bytes_per_weight == pytest.approx(each)
    assert found.share(ATTENTION) == found.share(FEED_FORWARD) == 1


def test_layers_that_are_left_out() -> None:
    fp8 = {"quant_method": "fp8"}

    whole = read({**fp8, "ignored_layers": ["lm_head", "model.layers.1.mlp"]})
    attention = read({**fp8, "modules_to_not_convert": ["re:.*self_attn.*"]})
    half = read({**fp8, "ignore": ["model.layers.*.self_attn.q_proj", "model.layers.1?.mlp*"]})

    assert whole.share(FEED_FORWARD) == pytest.approx(31 / 32), "layer 1, and not layer 10"
    assert attention.share(ATTENTION) == 0
    assert attention.share(FEED_FORWARD) == 1
    assert half.share(ATTENTION) == pytest.approx(3 / 4)
    assert half.share(FEED_FORWARD) == pytest.approx(22 / 32)


def test_targets_are_all_there_is() -> None:
    group = {"weights": INT4, "targets": ["re:.*mlp.experts.*"]}
    found = read(
        {"quant_method": "compressed-tensors", "config_groups": {"a": group}}, "deepseek-v3"
    )

    assert found.share(EXPERTS) == 1
    assert found.share(ATTENTION) == found.share(SHARED_EXPERTS) == 0


@pytest.mark.parametrize(
    ("more", "cache"),
    [
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"kv_cache_scheme": None}, ""),
    ],
)
def test_what_is_kept_of_tokens(more: dict[str, Any], cache: str) -> None:
    assert read(groups(FP8, FP8, **more)).cache == cache


# OpenAI, "gpt-oss-120b and gpt-oss-20b Model Card", arXiv:2508.10925, table 1: checkpoint sizes.
@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)])
def test_checkpoints_are_as_large_as_published(name: str, gib: float) -> None:
    memory = serving_memory(transformer(name), capacity=100 * GIB)

    assert memory.weights / GIB == pytest.approx(gib, rel=0.005)


def test_a_word_says_what_it_says() -> None:
    assert quantisation_named("awq_marlin", "settings").weights == "int4"
    assert quantisation_named("mxfp4", "settings").share(ATTENTION) == 0
    with pytest.raises(WorkloadError, match="does not say in how many bits"):
        quantisation_named("gptq", "settings")
    with pytest.raises(WorkloadError, match="did you mean 'fp8'"):
        quantisation_named("fp88", "settings")


def test_names_of_checkpoints() -> None:
    found = model_called("Qwen/Qwen3-32B-AWQ")
    plain = model_called("Qwen/Qwen3-32B")

    assert isinstance(found, Transformer)
    assert isinstance(plain, Transformer)
    assert found.quantisation is not None
    assert found.quantisation.weights == "int4"
    assert plain.quantisation is None


@pytest.mark.parametrize(
    ("stated", "sentence"),
    [
        ({"quant_method": "awq", "bits": 3}, "bits of config.json is 3, where 4 or 8"),
        ({"quant_method": "awq", "group_size": "big"}, "expected a whole number"),
        ({"quant_method": "modelopt", "quant_algo": "INT2"}, "quant_algo of config.json is 'INT2'"),
        (groups(None), "has no weights: state them"),
        (groups({"num_bits": 4, "type": "float", "group_size": 5}), "float of 4 in groups of 16"),
        ({"quant_method": "compressed-tensors"}, "operands none, where one pair"),
        ({"quant_method": "fp8", "ignore": ["re:("]}, "is no regular expression"),
    ],
)
def test_what_is_wrong_is_a_sentence(stated: dict[str, Any], sentence: str) -> None:
    with pytest.raises(WorkloadError, match=sentence):
        read(stated)


def test_an_unknown_method_is_kept_by_its_name() -> None:
    found = read({"quant_method": "bitsandbytes", "load_in_4bit": True})

    assert (found.method, found.weights) == ("bitsandbytes", "")

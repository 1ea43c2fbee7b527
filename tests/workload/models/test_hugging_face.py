"""Configurations of Hugging Face, against the models described here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.workload import (
    Norm,
    Positions,
    Reach,
    ReachKind,
    Transformer,
    from_hf_config,
    load_model,
    parameters,
)
from tests.models import transformer
from tests.workload.models.configurations import COUNTED

# What config.json of each states, as far as it says something about the shape.
CONFIGS: dict[str, dict[str, object]] = {
    "llama3.1-405b": {
        "model_type": "llama",
        "attention_bias": False,
        "hidden_size": 16384,
        "intermediate_size": 53248,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "num_attention_heads": 128,
        "num_hidden_layers": 126,
        "num_key_value_heads": 8,
        "tie_word_embeddings": False,
        "vocab_size": 128256,
    },
    "llama2-7b": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "max_position_embeddings": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 32000,
    },
    "mistral-7b": {
        "model_type": "mistral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 32768,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
        "vocab_size": 32000,
    },
    "mixtral-8x22b": {
        "model_type": "mixtral",
        "hidden_size": 6144,
        "intermediate_size": 16384,
        "max_position_embeddings": 65536,
        "num_attention_heads": 48,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 56,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "sliding_window": None,
        "vocab_size": 32000,
    },
    "qwen3-0.6b": {
        "model_type": "qwen3",
        "head_dim": 128,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "max_position_embeddings": 40960,
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "qwen3-235b-a22b": {
        "model_type": "qwen3_moe",
        "decoder_sparse_step": 1,
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "max_position_embeddings": 40960,
        "mlp_only_layers": [],
        "moe_intermediate_size": 1536,
        "num_attention_heads": 64,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 94,
        "num_key_value_heads": 4,
        "vocab_size": 151936,
    },
    "deepseek-v3-mtp": {
        "model_type": "deepseek_v3",
        "quantization_config": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
        },
        "first_k_dense_replace": 3,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "kv_lora_rank": 512,
        "max_position_embeddings": 163840,
        "moe_intermediate_size": 2048,
        "moe_layer_freq": 1,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_attention_heads": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 129280,
    },
    "llama4-maverick": {
        "model_type": "llama4",
        "text_config": {
            "model_type": "llama4_text",
            "attention_chunk_size": 8192,
            "head_dim": 128,
            "hidden_size": 5120,
            "interleave_moe_layer_step": 2,
            "intermediate_size": 8192,
            "intermediate_size_mlp": 16384,
            "max_position_embeddings": 1048576,
            "num_attention_heads": 40,
            "num_experts_per_tok": 1,
            "num_hidden_layers": 48,
            "num_key_value_heads": 8,
            "num_local_experts": 128,
            "vocab_size": 202048,
        },
    },
    "gpt-oss-120b": {
        "model_type": "gpt_oss",
        "quantization_config": {
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
            "quant_method": "mxfp4",
        },
        "attention_bias": True,
        "head_dim": 64,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
        "max_position_embeddings": 131072,
        "num_attention_heads": 64,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0},
        "sliding_window": 128,
        "vocab_size": 201088,
    },
    "gpt2-large": {
        "model_type": "gpt2",
        "n_ctx": 1024,
        "n_embd": 1280,
        "n_head": 20,
        "n_layer": 36,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
    "gpt-neox-20b": {
        "model_type": "gpt_neox",
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "max_position_embeddings": 2048,
        "num_attention_heads": 64,
        "num_hidden_layers": 44,
        "tie_word_embeddings": False,
        "vocab_size": 50432,
    },
    "mpt-7b": {
        "model_type": "mpt",
        "attn_config": {"alibi": False},
        "d_model": 4096,
        "expansion_ratio": 4,
        "max_seq_len": 2048,
        "n_heads": 32,
        "n_layers": 32,
        "no_bias": False,
        "vocab_size": 50368,
    },
}


def shape(model: Transformer) -> Transformer:
    """A model without its name and where it comes from."""
    base = transformer("llama3-8b")
    return replace(
        model,
        name=base.name,
        title=base.title,
        published=base.published,
        entries=(),
        parent="",
        path=None,
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_gives_the_shape_that_is_described(name: str) -> None:
    found, described = from_hf_config(CONFIGS[name]), load_model(name)
    assert isinstance(described, Transformer)

    # A file may leave out a width that no layer has; a configuration never does.
    width = found.feed_forward if described.feed_forward.width == 0 else described.feed_forward
    assert shape(found) == shape(replace(described, feed_forward=width))


def test_bloom_has_a_norm_after_the_embedding_and_no_positions() -> None:
    config = {
        "model_type": "bloom",
        "hidden_size": 14336,
        "n_head": 112,
        "n_layer": 70,
        "vocab_size": 250880,
    }

    model = from_hf_config(config)

    assert (model.has_embedding_norm, model.positions) == (True, Positions.ALIBI)
    assert parameters(model).total == parameters(load_model("bloom-176b")).total


def test_a_gpt2_with_its_own_width_keeps_it() -> None:
    model = from_hf_config(CONFIGS["gpt2-large"] | {"n_inner": 99})

    assert model.feed_forward.width == 99


def test_biases_of_queries_are_those_of_the_class() -> None:
    config = CONFIGS["llama2-7b"]

    qwen2 = from_hf_config(config | {"model_type": "qwen2"}).attention
    biased = from_hf_config(config | {"attention_bias": True, "mlp_bias": True})

    assert (qwen2.has_input_bias, qwen2.has_output_bias) == (True, False)
    assert (biased.attention.has_output_bias, biased.feed_forward.has_bias) == (True, True)


def test_the_shared_expert_of_qwen2_has_its_own_width_and_a_gate() -> None:
    config = CONFIGS["qwen3-235b-a22b"] | {
        "model_type": "qwen2_moe",
        "mlp_only_layers": [0, 1],
        "shared_expert_intermediate_size": 5632,
    }

    experts = from_hf_config(config).experts

    assert experts is not None
    assert (experts.num_shared, experts.shared_width, experts.num_dense_first) == (1, 5632, 2)
    assert experts.has_shared_gate


def test_mpt_has_no_biases_and_alibi_unless_told() -> None:
    config = {key: value for key, value in CONFIGS["mpt-7b"].items() if key != "no_bias"}

    model = from_hf_config({**config, "attn_config": {"alibi": True, "kv_n_heads": 4}})

    assert (model.norm, model.positions) == (Norm.LAYER_WITHOUT_BIAS, Positions.ALIBI)
    assert (model.attention.has_input_bias, model.attention.num_kv_heads) == (False, 4)


def test_windows_and_chunks_are_kept() -> None:
    reach = {name: from_hf_config(CONFIGS[name]).reach for name in ("mistral-7b", "gpt-oss-120b")}

    assert reach["mistral-7b"] == Reach(ReachKind.WINDOW, 4096, 0)
    assert reach["gpt-oss-120b"] == Reach(ReachKind.WINDOW, 128, 2)


def test_a_file_or_its_folder_is_read_and_named_after_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "Llama-3.1-405B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGS["llama3.1-405b"]))

    for found in (load_model(folder / "config.json"), from_hf_config(folder)):
        assert (found.name, parameters(found).total) == ("Llama-3.1-405B", 405_853_388_800)
        assert all(entry.source is not None for entry in found.entries)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model_type": "lama"}, r"model_type 'lama', where one of arcee, .*did you mean 'llama'"),
        ({}, "model_type None, where one of"),
        ({"model_type": ["llama"]}, r"model_type \['llama'\], where one of"),
        (
            {key: value for key, value in CONFIGS["llama2-7b"].items() if key != "hidden_size"},
            "lacks 'hidden_size', which models of its model_type have",
        ),
        (CONFIGS["llama2-7b"] | {"vocab_size": "32k"}, "'vocab_size' .* is '32k', where a whole"),
        (CONFIGS["gpt-oss-120b"] | {"layer_types": ["full_attention"] * 3}, "each of 36 layers"),
        (
            CONFIGS["gpt-oss-120b"] | {"layer_types": ["linear_attention"] * 36},
            "'layer_types' of .* is one of sliding_attention, full_attention here",
        ),
        (
            CONFIGS["llama2-7b"] | {"model_type": "glm", "partial_rotary_factor": 1.5},
            "'partial_rotary_factor' of .* is 1.5, where a number above 0, up to 1, is expected",
        ),
        (CONFIGS["qwen3-235b-a22b"] | {"mlp_only_layers": [5]}, "only the first layers can lack"),
        (CONFIGS["deepseek-v3-mtp"] | {"moe_layer_freq": 2}, "only 1 can be described"),
        (CONFIGS["llama2-7b"] | {"num_key_value_heads": 5}, "32 heads cannot share 5 kv_heads"),
    ],
)
def test_what_cannot_be_described_is_said(config: dict[str, object], sentence: str) -> None:
    with pytest.raises(WorkloadError, match=sentence):
        from_hf_config(config)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"config\.json' cannot be read: No such file"):
        from_hf_config(tmp_path / "config.json")


def test_glm_of_experts_has_as_many_active_parameters_as_its_report_says() -> None:
    found = parameters(from_hf_config(COUNTED["glm-4.5-air"][0]))

    embeddings = 2 * 151552 * 4096
    assert found.active - embeddings == pytest.approx(12e9, rel=0.03)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("phi", "input_layernorm"),
        ("olmo", "layer_norm"),
        ("mamba", "state_size"),
        ("zamba2", "hybrid_layer_ids"),
    ],
)
def test_a_type_that_is_unlike_names_the_field(kind: str, field: str) -> None:
    with pytest.raises(WorkloadError, match=f"{kind!r}, whose {field!r} cannot be described"):
        from_hf_config({"model_type": kind})

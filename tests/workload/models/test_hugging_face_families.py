"""What families say in config.json that the others do not: norms, windows, parts of heads."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from foretrace.base import WorkloadError
from foretrace.workload import (
    Layer,
    NormPlace,
    Plan,
    PlanMemory,
    Pooling,
    Reach,
    ReachKind,
    Transformer,
    blocks_of_model,
    check_plan,
    from_hf_config,
    parameters,
)
from tests.models import transformer
from tests.workload.models.configurations import COUNTED
from tests.workload.models.test_hugging_face import shape


def model_of(name: str, **other: object) -> Transformer:
    return from_hf_config(COUNTED[name][0] | other)


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_are_those_that_transformers_makes(name: str) -> None:
    assert parameters(model_of(name)).total == COUNTED[name][1]


@pytest.mark.parametrize("name", COUNTED)
def test_blocks_and_memory_hold_all_of_them(name: str) -> None:
    model = model_of(name)
    sequence = model.patches.num_tokens if model.patches is not None else 2048
    plan = Plan(sequence=sequence, pipeline=2, schedule="1f1b", global_batch=4)
    alone = replace(plan, pipeline=1)

    blocks = blocks_of_model(model, alone)

    ends = [one.parameters for one in (blocks.embedding, blocks.head) if one is not None]
    held = [*ends, *(one.parameters for one in blocks.layers)]
    assert sum(one.dense + one.expert for one in held) == parameters(model).total
    for one in (alone, plan):
        check_plan(one, model)
        assert PlanMemory(model).stage_bytes(one).sum() > 2 * parameters(model).total


@pytest.mark.parametrize(
    "name",
    [
        *("gemma-2-27b", "gemma-3-27b", "olmo-2-32b", "phi-4", "qwen3-32b", "qwen3-30b-a3b"),
        *("glm-4.5", "nemotron-h-8b", "vit-h-14", "siglip-so400m", "kimi-k2", "mixtral-8x7b"),
    ],
)
def test_presets_are_what_their_configurations_say(name: str) -> None:
    described = transformer(name)
    modules = described.num_prediction_modules
    blocks = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    kept = {} if described.quantisation is None else {"quantization_config": blocks}
    found = model_of(name, num_nextn_predict_layers=modules, **kept)

    # A file may leave out a width that no layer has; a configuration never does.
    width = found.feed_forward if described.feed_forward.width else described.feed_forward
    assert shape(replace(found, feed_forward=width)) == shape(described)


def test_norms_stand_behind_or_on_both_sides() -> None:
    places = {
        name: model_of(name).norm_place
        for name in ("olmo-2-7b", "olmo-3-32b", "gemma-3-1b", "glm-4-32b", "glm-4.5")
    }

    assert places == {
        "olmo-2-7b": NormPlace.BEHIND,
        "olmo-3-32b": NormPlace.BEHIND,
        "gemma-3-1b": NormPlace.BOTH,
        "glm-4-32b": NormPlace.BOTH,
        "glm-4.5": NormPlace.BEFORE,
    }


def test_caps_are_there_unless_they_are_null() -> None:
    capped = model_of("gemma-2-9b")
    stated = COUNTED["gemma-2-9b"][0]
    silent = {key: value for key, value in stated.items() if "softcapping" not in key}
    without = model_of("gemma-2-9b", attn_logit_softcapping=None, final_logit_softcapping=None)

    for model, is_capped in (
        (capped, True),
        (from_hf_config(silent), True),
        (without, False),
        (model_of("gemma-3-27b"), False),
    ):
        assert (model.caps_logits, model.attention.has_soft_cap) == (is_capped, is_capped)


@pytest.mark.parametrize(
    ("name", "tokens", "every"),
    [("gemma-2-27b", 4096, 2), ("gemma-3-27b", 1024, 6), ("olmo-3-32b", 4096, 4)],
)
def test_windows_alternate_with_layers_that_see_all(name: str, tokens: int, every: int) -> None:
    model = model_of(name)

    assert model.reach == Reach(ReachKind.WINDOW, tokens, every)
    full = [layer.index for layer in model.layers if layer.reach is None]
    assert full == list(range(every - 1, model.num_layers, every))


def test_layers_that_see_all_may_stand_anywhere() -> None:
    types = ["full_attention", *["sliding_attention"] * 24, "full_attention"]
    uneven = model_of("gemma-3-1b", layer_types=types)
    late = model_of("qwen3-32b", use_sliding_window=True, max_window_layers=60)

    assert [layer.index for layer in uneven.layers if layer.reach is None] == [0, 25]
    assert [layer.index for layer in late.layers if layer.reach is not None] == [60, 61, 62, 63]
    assert model_of("gpt-oss-20b", layer_types=["full_attention"] * 24).reach is None


def test_a_part_of_a_head_is_turned() -> None:
    turned = {name: model_of(name).attention.rotary_size for name in ("phi-4-mini", "phi-4")}
    nested = model_of("phi-4", rope_parameters={"partial_rotary_factor": 0.25})

    assert turned == {"phi-4-mini": 96, "phi-4": 0}
    assert model_of("glm-4.5").attention.rotary_size == 64
    assert nested.attention.rotary_size == 32


def test_the_part_that_reads_text_is_read_of_a_model_that_sees() -> None:
    text = COUNTED["gemma-3-27b"][0]

    found = from_hf_config({"model_type": "gemma3", "text_config": text, "vision_config": {}})

    assert parameters(found).total == COUNTED["gemma-3-27b"][1]


def test_gemma_3_of_4_billion_states_neither_heads_nor_vocabulary() -> None:
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }

    # Gemma 3 Technical Report, table 1: 3,209 million and an embedding of 675.
    assert round(parameters(from_hf_config(text)).total / 1e6) in {3_880, 3_884}


def test_a_hybrid_has_attention_in_some_layers_and_states_in_the_others() -> None:
    layers = {name: model_of(name).layers for name in ("bamba-9b", "granite-4.0-h-small")}

    for name, places in (("bamba-9b", {9, 18, 27}), ("granite-4.0-h-small", {5, 15, 25, 35})):
        assert {layer.index for layer in layers[name] if layer.has_attention} == places
        assert all(layer.has_states != layer.has_attention for layer in layers[name])
    assert all(layer.has_experts for layer in layers["granite-4.0-h-small"])
    assert model_of("bamba-9b").attention.rotary_size == 64


def test_layers_of_linear_attention_are_listed_in_three_ways() -> None:
    by_word, by_number = model_of("minimax-text-01"), COUNTED["minimax-text-01"][0]
    kinds = [int(one == "full_attention") for one in by_number["layer_types"]]
    listed = {key: value for key, value in by_number.items() if key != "layer_types"}
    listed |= {"model_type": "minimax_text_01", "attn_type_list": kinds}

    full = {
        name: [layer.index for layer in model_of(name).layers if layer.has_attention]
        for name in ("qwen3-next-80b-a3b", "kimi-linear-48b-a3b", "minimax-text-01")
    }

    assert from_hf_config(listed).layers == by_word.layers
    assert full["qwen3-next-80b-a3b"] == list(range(3, 48, 4))
    assert full["kimi-linear-48b-a3b"] == [3, 7, 11, 15, 19, 23, 26]
    assert full["minimax-text-01"] == list(range(7, 80, 8))


def test_attention_and_states_of_falcon_stand_beside_each_other_in_every_layer() -> None:
    model = model_of("falcon-h1-34b")

    assert {layer.kind for layer in model.layers} == {Layer(0, False, None, has_states=True)}
    assert model.states is not None
    assert (model.states.inner, model.states.has_norm) == (4096, False)


def test_a_layer_of_nemotron_is_one_branch() -> None:
    model = model_of("nemotron-h-8b")
    words = {"M": "mamba", "-": "mlp", "*": "attention"}
    listed = [words[one] for one in str(COUNTED["nemotron-h-8b"][0]["hybrid_override_pattern"])]

    assert {layer.num_branches for layer in model.layers} == {1}
    assert [layer.index for layer in model.layers if layer.has_attention] == [7, 18, 29, 40]
    assert model_of("nemotron-h-8b", layers_block_type=listed).layers == model.layers


def test_nemotron_3_has_experts_in_branches_of_their_own() -> None:
    nano = {
        "model_type": "nemotron_h",
        "head_dim": 128,
        "hidden_size": 2688,
        "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        "intermediate_size": 1856,
        "mamba_head_dim": 64,
        "mamba_num_heads": 64,
        "moe_intermediate_size": 1856,
        "moe_shared_expert_intermediate_size": 3712,
        "n_groups": 8,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_attention_heads": 32,
        "num_experts_per_tok": 6,
        "num_key_value_heads": 2,
        "ssm_state_size": 128,
        "vocab_size": 131072,
    }

    found = parameters(from_hf_config(nano))

    # Its report: 31.6 billion, of which 3.2 active, 3.6 with embeddings.
    assert (round(found.total / 1e9, 1), round(found.active / 1e9, 1)) == (31.6, 3.6)


@pytest.mark.parametrize(
    ("name", "other", "sentence"),
    [
        ("mamba2-2.7b", {"num_heads": 40}, "'num_heads' .* is 40: of 64 numbers each they are not"),
        ("nemotron-h-8b", {"hybrid_override_pattern": "MX"}, "'hybrid_override_pattern' .* one of"),
        ("nemotron-h-8b", {"moe_latent_size": 1024}, "'moe_latent_size' .* experts work on whole"),
        ("granite-4.0-h-1b", {"layer_types": ["rwkv"]}, "'layer_types' .* each of 40 layers is"),
        ("bamba-9b", {"attn_layer_indices": [32]}, "names 32, and the last of 32 is 31"),
        ("bamba-9b", {"mamba_n_groups": 3}, "128 heads of .states. are no 3 groups"),
        ("bamba-9b", {"model_type": "jamba"}, "'mamba_d_state' cannot be described: it is the"),
        ("qwen3-next-80b-a3b", {"layer_types": ["rwkv"]}, "'layer_types' .* each of 48 layers is"),
        ("qwen3-next-80b-a3b", {"linear_num_key_heads": 12}, "32 heads of .states. are no 12"),
        ("qwen3-next-80b-a3b", {"mlp_only_layers": [3]}, "only the first layers can lack experts"),
        ("qwen3.5-27b", {"mamba_ssm_dtype": "int3"}, "'mamba_ssm_dtype' .* one of float32"),
        ("qwen3.5-27b", {"full_attention_interval": 65}, "'layer_types' .* at least one layer"),
        ("deepseek-v3.2-exp", {"q_lora_rank": None}, "index_heads: an indexer reads the short"),
        (
            "deepseek-v3.2-exp",
            {"model_type": "glm_moe_dsa", "index_topk_freq": 4},
            "'index_topk_freq' .* each layer has an indexer here",
        ),
        ("kimi-linear-48b-a3b", {"moe_layer_freq": 2}, "'moe_layer_freq' .* only 1 can be"),
        (
            "minimax-text-01",
            {"shared_intermediate_size": 9},
            "'shared_intermediate_size' .* only 0",
        ),
        ("ernie-4.5-21b-a3b", {"moe_layer_interval": 2}, "only the first layers can lack experts"),
        ("bamba-9b", {"model_type": "zamba2"}, "'hybrid_layer_ids' cannot be described"),
    ],
)
def test_states_that_cannot_be_described_are_named(
    name: str, other: dict[str, object], sentence: str
) -> None:
    with pytest.raises(WorkloadError, match=sentence):
        model_of(name, **other)


def test_a_classifier_stands_in_the_place_of_a_pooler() -> None:
    made, labels = ["ViTForImageClassification"], {str(at): "" for at in range(1000)}
    pooled = model_of("vit-b-16")

    model = model_of("vit-b-16", architectures=made, id2label=labels)

    assert model.patches is not None
    assert (model.patches.num_classes, model.patches.num_tokens) == (1000, 197)
    assert model.patches.pooling is Pooling.NONE
    # transformers: 86,567,656 for ViTForImageClassification of 1,000 classes.
    assert parameters(model).total == 86_567_656
    assert parameters(pooled).total - parameters(model).total == 769 * 768 - 769 * 1000


def test_of_siglip_the_part_that_sees_is_read() -> None:
    seeing = COUNTED["siglip-so400m"][0]
    without = model_of("siglip-so400m", vision_use_head=False)

    found = from_hf_config({"model_type": "siglip", "text_config": {}, "vision_config": seeing})

    assert parameters(found).total == COUNTED["siglip-so400m"][1]
    # transformers, without its head.
    assert parameters(without).total == 412_987_248


def test_a_picture_smaller_than_a_patch_is_refused() -> None:
    with pytest.raises(WorkloadError, match="a picture of 8 pixels has no patch of 16"):
        model_of("vit-b-16", image_size=8)


@pytest.mark.parametrize("name", COUNTED)
def test_no_value_of_a_configuration_escapes(name: str) -> None:
    config = COUNTED[name][0]
    keys = [*config, "layer_types", "sliding_window_pattern", "layers_block_type", "id2label"]
    hostile: list[object] = [0, -1, 10**18, 1.5, "x", [], [[]], {}]

    for key in keys:
        for value in hostile:
            with suppress(WorkloadError):
                from_hf_config(config | {key: value})

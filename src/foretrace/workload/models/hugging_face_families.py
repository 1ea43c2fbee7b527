"""What configurations of Hugging Face say of decoders with root mean square norms, by family.

What a configuration leaves out has the default of its class in transformers, stated where it
matters.
"""

from __future__ import annotations

from foretrace.workload.models.hugging_face_config import HuggingFaceConfig, Reader, Tables

_CHUNK_FULL_EVERY = 4  # Llama4TextConfig: every fourth layer has no rotary positions, no chunks
_TURNED = "partial_rotary_factor"
_WINDOW, _FULL = "sliding_attention", "full_attention"


def _llama(config: HuggingFaceConfig) -> Tables:
    """Rotary positions, root mean square norms, gated feed-forward parts, no biases."""
    hidden, heads = config.count("hidden_size"), config.heads
    has_bias = config.flag("attention_bias", default=False)
    return {
        "shape": {
            "layers": config.layers,
            "hidden": hidden,
            "vocabulary": config.count("vocab_size"),
            "context": config.count("max_position_embeddings"),
            "positions": "rotary",
            "norm": "rms",
            "tied_embeddings": config.flag("tie_word_embeddings", default=False),
        },
        "attention": {
            "heads": heads,
            "kv_heads": config.count_or("num_key_value_heads", heads),
            "head_size": config.count_or("head_dim", hidden // heads),
            "input_bias": has_bias,
            "output_bias": has_bias,
        },
        "feed_forward": {
            "width": config.count("intermediate_size"),
            "gated": True,
            "bias": config.flag("mlp_bias", default=False),
        },
    }


def _windows(config: HuggingFaceConfig, full: list[int]) -> dict[str, object]:
    """Windows in all layers but these, or but those that `layer_types` lists."""
    layers = config.layers
    types = config.words("layer_types", (_WINDOW, _FULL), layers)
    if types is not None:
        full = [at for at, one in enumerate(types) if one == _FULL]
    if not config.has("sliding_window") or len(full) == layers:
        return {}
    found: dict[str, object] = {
        "reach": "window",
        "reach_tokens": config.count("sliding_window"),
    }
    if not full:
        return found
    every = full[0] + 1
    is_even = full == list(range(full[0], layers, every))
    return found | ({"full_every": every} if is_even else {"full_layers": full})


def _every(config: HuggingFaceConfig, period: int) -> list[int]:
    """Every so manieth layer."""
    return list(range(period - 1, config.layers, period))


def _mistral(config: HuggingFaceConfig) -> Tables:
    tables = _llama(config)
    tables["attention"] |= _windows(config, [])
    return tables


def _turned(config: HuggingFaceConfig, tables: Tables, share: float) -> Tables:
    """Tables of a model whose positions turn a part of each head."""
    size = tables["attention"]["head_size"]
    if isinstance(size, int) and (turned := int(size * config.share(_TURNED, share))) < size:
        tables["attention"]["rotary_size"] = turned
    return tables


def _phi3(config: HuggingFaceConfig) -> Tables:
    return _turned(config, _mistral(config), 1.0)


def _mixtral(config: HuggingFaceConfig) -> Tables:
    tables = _mistral(config)
    tables["experts"] = config.experts("num_local_experts", "intermediate_size")
    return tables


def _qwen2(config: HuggingFaceConfig) -> Tables:
    tables = _qwen(config)
    tables["attention"] |= {"input_bias": True, "output_bias": False}
    return tables


def _qwen3(config: HuggingFaceConfig) -> Tables:
    tables = _qwen(config)
    tables["attention"]["query_key_norm"] = True
    return tables


def _qwen(config: HuggingFaceConfig) -> Tables:
    """Windows from a certain layer on, if they are to be used at all."""
    tables = _llama(config)
    if config.flag("use_sliding_window", default=False):
        config = config.over(sliding_window=4096, max_window_layers=28)
        tables["attention"] |= _windows(config, list(range(config.count("max_window_layers"))))
    return tables


def _qwen_experts(config: HuggingFaceConfig) -> dict[str, object]:
    dense = config.values.get("mlp_only_layers") or []
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        config.refuse("mlp_only_layers", "only the first layers can lack experts")
    return {
        **config.experts("num_experts", "moe_intermediate_size"),
        "every": config.count_or("decoder_sparse_step", 1),
        "dense_first": len(dense),
    }


def _qwen2_moe(config: HuggingFaceConfig) -> Tables:
    shared = {
        "shared": 1,
        "shared_width": config.count("shared_expert_intermediate_size"),
        "shared_gate": True,
    }
    return {**_qwen2(config), "experts": _qwen_experts(config) | shared}


def _qwen3_moe(config: HuggingFaceConfig) -> Tables:
    return {**_qwen3(config), "experts": _qwen_experts(config)}


def _routed(config: HuggingFaceConfig, *, has_router_bias: bool) -> dict[str, object]:
    return {
        **config.experts("n_routed_experts", "moe_intermediate_size"),
        "shared": config.count_or("n_shared_experts", 0),
        "dense_first": config.count_or("first_k_dense_replace", 0),
        "router_bias": has_router_bias,
    }


def _deepseek(config: HuggingFaceConfig, *, has_router_bias: bool) -> Tables:
    if config.count_or("moe_layer_freq", 1) != 1:
        config.refuse("moe_layer_freq", "only 1 can be described")
    tables = _llama(config)
    tables["shape"]["prediction_modules"] = config.count_or("num_nextn_predict_layers", 0)
    tables["attention"] |= {
        "head_size": config.count("qk_nope_head_dim"),
        "rotary_size": config.count("qk_rope_head_dim"),
        "value_size": config.count("v_head_dim"),
        "latent_rank": config.count("kv_lora_rank"),
        "query_rank": config.count_or("q_lora_rank", 0),
        "kv_heads": config.heads,
    }
    tables["experts"] = _routed(config, has_router_bias=has_router_bias)
    return tables


def _deepseek_v2(config: HuggingFaceConfig) -> Tables:
    return _deepseek(config, has_router_bias=False)


def _deepseek_v3(config: HuggingFaceConfig) -> Tables:
    return _deepseek(config, has_router_bias=True)


def _llama4(config: HuggingFaceConfig) -> Tables:
    tables = _llama(config)
    tables["feed_forward"]["width"] = config.count("intermediate_size_mlp")
    if config.has("attention_chunk_size"):
        tables["attention"] |= {
            "reach": "chunk",
            "reach_tokens": config.count("attention_chunk_size"),
            "full_every": config.count_or("no_rope_layer_interval", _CHUNK_FULL_EVERY),
        }
    tables["experts"] = {
        **config.experts("num_local_experts", "intermediate_size"),
        "shared": 1,
        "every": config.count_or("interleave_moe_layer_step", 1),
    }
    return tables


def _gpt_oss(config: HuggingFaceConfig) -> Tables:
    tables = _llama(config)
    # GptOssConfig has biases unless told otherwise.
    has_bias = config.flag("attention_bias", default=True)
    tables["attention"] |= {
        "input_bias": has_bias,
        "output_bias": has_bias,
        "sinks": True,
        "scaled_rotary": config.rotary_factor() != 1,
        **_windows(config, _every(config, 2)),
    }
    tables["feed_forward"] |= {"bias": True, "clamped": True}
    tables["experts"] = {
        **config.experts("num_local_experts", "intermediate_size"),
        "router_bias": True,
    }
    return tables


def _gemma(config: HuggingFaceConfig) -> Tables:
    tables = _llama(config)
    # GemmaConfig: embeddings are tied unless told otherwise.
    tables["shape"]["tied_embeddings"] = config.flag("tie_word_embeddings", default=True)
    return tables


def _gemma2(config: HuggingFaceConfig) -> Tables:
    config = config.over(
        vocab_size=256_000, head_dim=256, max_position_embeddings=8192, sliding_window=4096
    )
    tables = _gemma(config)
    tables["shape"] |= {
        "norm_place": "both",
        "capped_logits": config.stated("final_logit_softcapping", default=30.0) is not None,
    }
    tables["attention"] |= {
        "soft_cap": config.stated("attn_logit_softcapping", default=50.0) is not None,
        **_windows(config, _every(config, 2)),
    }
    return tables


def _gemma3(config: HuggingFaceConfig) -> Tables:
    # Gemma3TextConfig: the 4B model states neither heads nor vocabulary.
    config = config.over(
        vocab_size=262_208,
        head_dim=256,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=131_072,
        sliding_window=4096,
        sliding_window_pattern=6,
    )
    tables = _gemma(config)
    tables["shape"] |= {
        "norm_place": "both",
        "capped_logits": config.has("final_logit_softcapping"),
    }
    tables["attention"] |= {
        "query_key_norm": True,
        "soft_cap": config.has("attn_logit_softcapping"),
        **_windows(config, _every(config, config.count("sliding_window_pattern", low=1))),
    }
    return tables


def _olmoe(config: HuggingFaceConfig) -> Tables:
    tables = _llama(config)
    tables["attention"] |= {"query_key_norm": True, "norm_over_heads": True}
    tables["experts"] = config.experts("num_experts", "intermediate_size")
    return tables


def _olmo2(config: HuggingFaceConfig) -> Tables:
    tables = _llama(config)
    tables["shape"]["norm_place"] = "behind"
    tables["attention"] |= {"query_key_norm": True, "norm_over_heads": True}
    return tables


def _olmo3(config: HuggingFaceConfig) -> Tables:
    tables = _olmo2(config)
    config = config.over(sliding_window=4096)
    tables["attention"] |= _windows(config, _every(config, 4))
    return tables


def _glm(config: HuggingFaceConfig) -> Tables:
    tables = _turned(config, _llama(config), 0.5)
    tables["attention"]["output_bias"] = False  # only queries, keys and values have one
    return tables


def _glm4(config: HuggingFaceConfig) -> Tables:
    tables = _glm(config)
    tables["shape"]["norm_place"] = "both"
    return tables


def _glm4_moe(config: HuggingFaceConfig) -> Tables:
    tables = _glm(config)
    tables["shape"]["prediction_modules"] = config.count_or("num_nextn_predict_layers", 0)
    tables["attention"]["query_key_norm"] = config.flag("use_qk_norm", default=False)
    tables["experts"] = _routed(config, has_router_bias=True)
    return tables


def _minimax_m2(config: HuggingFaceConfig) -> Tables:
    tables = _mixtral(config.over(sliding_window=None))
    tables["attention"] |= {"query_key_norm": True, "norm_over_heads": True}
    if config.has("rotary_dim"):
        tables["attention"]["rotary_size"] = config.count("rotary_dim")
    tables["experts"]["router_bias"] = True
    return tables


def _seed_oss(config: HuggingFaceConfig) -> Tables:
    # SeedOssConfig has biases of queries, keys and values unless told otherwise, and this width.
    tables = _llama(config.over(head_dim=128))
    tables["attention"] |= {
        "input_bias": config.flag("attention_bias", default=True),
        "output_bias": config.flag("attention_out_bias", default=False),
    }
    return tables


def _smollm3(config: HuggingFaceConfig) -> Tables:
    # SmolLM3Config: embeddings are tied unless told otherwise.
    return _llama(config.over(tie_word_embeddings=True))


def _hunyuan(config: HuggingFaceConfig) -> Tables:
    tables = _llama(config)
    tables["attention"]["query_key_norm"] = True
    return tables


def _dots1(config: HuggingFaceConfig) -> Tables:
    tables = _hunyuan(config)
    config = config.over(sliding_window=4096, max_window_layers=62)
    first = min(config.count("max_window_layers"), config.layers)
    tables["attention"] |= _windows(config, list(range(first)))
    return {**tables, "experts": _routed(config, has_router_bias=True)}


def _ernie(config: HuggingFaceConfig) -> Tables:
    # Ernie4_5Config: one flag for all biases, and embeddings are tied unless told otherwise.
    has_bias = config.flag("use_bias", default=False)
    tables = _llama(config.over(tie_word_embeddings=True, mlp_bias=has_bias))
    tables["attention"] |= {"input_bias": has_bias, "output_bias": has_bias}
    return tables


def _ernie_moe(config: HuggingFaceConfig) -> Tables:
    config = config.over(moe_layer_start_index=1, moe_layer_interval=1, moe_layer_end_index=-1)
    last = (-1, config.layers - 1)
    for key, usual in (("moe_layer_interval", (1,)), ("moe_layer_end_index", last)):
        if config.values[key] not in usual:
            config.refuse(key, "only the first layers can lack experts")
    return {
        **_ernie(config),
        "experts": {
            "count": config.count("moe_num_experts"),
            "active": config.count("moe_k"),
            "width": config.count("moe_intermediate_size"),
            "shared": config.count_or("moe_num_shared_experts", 0),
            "dense_first": config.count("moe_layer_start_index"),
            "router_bias": True,
        },
    }


def _arcee(config: HuggingFaceConfig) -> Tables:
    tables = _llama(config)
    tables["feed_forward"]["gated"] = False  # a square of what is positive
    return tables


def _starcoder2(config: HuggingFaceConfig) -> Tables:
    # Starcoder2Config: biases, and tied embeddings, unless told otherwise.
    has_bias = config.flag("use_bias", default=True)
    tables = _arcee(config.over(tie_word_embeddings=True, mlp_bias=has_bias))
    tables["shape"]["norm"] = "layer"
    tables["attention"] |= {"input_bias": has_bias, "output_bias": has_bias}
    tables["attention"] |= _windows(config, [])
    return tables


def _exaone4(config: HuggingFaceConfig) -> Tables:
    tables = _hunyuan(config)
    tables["shape"]["norm_place"] = "behind"
    config = config.over(sliding_window_pattern=4)
    if isinstance(pattern := config.values["sliding_window_pattern"], str):  # as in "LLLG"
        every = len(pattern)
    else:
        every = config.count("sliding_window_pattern", low=1)
    tables["attention"] |= _windows(config, _every(config, every))
    return tables


FAMILIES: dict[str, Reader] = {
    "arcee": _arcee,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "dots1": _dots1,
    "ernie4_5": _ernie,
    "ernie4_5_moe": _ernie_moe,
    "exaone4": _exaone4,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "glm": _glm,
    "glm4": _glm4,
    "glm4_moe": _glm4_moe,
    "gpt_oss": _gpt_oss,
    "granite": _llama,
    "hunyuan_v1_dense": _hunyuan,
    "kimi_k2": _deepseek_v3,
    "llama": _llama,
    "llama4_text": _llama4,
    "minimax_m2": _minimax_m2,
    "ministral": _mistral,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "olmo2": _olmo2,
    "olmo3": _olmo3,
    "olmoe": _olmoe,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "seed_oss": _seed_oss,
    "smollm3": _smollm3,
    "starcoder2": _starcoder2,
}

"""What configurations of Hugging Face say of models that carry states: Mamba-2 and hybrids.

What a configuration leaves out has the default of its class in transformers. Layers that kernels of
Mamba-1 or of linear attention work on are another scan, and are refused.
"""

from __future__ import annotations

from foretrace.workload.models.hugging_face_config import HuggingFaceConfig, Reader, Tables

# Nemotron-H: what each letter of its pattern, or word of its list, has.
_ATTENTION, _STATES, _DENSE, _EXPERTS = "attention", "states", "feed_forward", "experts"
_LETTERS = {"*": _ATTENTION, "M": _STATES, "-": _DENSE, "E": _EXPERTS}
_WORDS = {"attention": _ATTENTION, "mamba": _STATES, "mlp": _DENSE, "moe": _EXPERTS}


def _shape(config: HuggingFaceConfig, *, is_tied: bool = False) -> dict[str, object]:
    return {
        "layers": config.layers,
        "hidden": config.count("hidden_size"),
        "vocabulary": config.count("vocab_size"),
        "norm": "rms",
        "tied_embeddings": config.flag("tie_word_embeddings", default=is_tied),
    }


def _attention(config: HuggingFaceConfig) -> dict[str, object]:
    heads = config.heads
    default = config.count("hidden_size") // heads
    has_bias = config.flag("attention_bias", default=False)
    size = "attention_head_dim" if config.has("attention_head_dim") else "head_dim"
    return {
        "heads": heads,
        "kv_heads": config.count_or("num_key_value_heads", heads),
        "head_size": config.count_or(size, default),
        "input_bias": has_bias,
        "output_bias": has_bias,
    }


def _mamba(config: HuggingFaceConfig) -> dict[str, object]:
    """A state space by the keys that Bamba, Granite and Falcon have in common."""
    config = config.over(mamba_n_groups=1, mamba_d_conv=4, mamba_chunk_size=256)
    return {
        "heads": config.count("mamba_n_heads"),
        "head_size": config.count("mamba_d_head"),
        "state_size": config.count("mamba_d_state"),
        "groups": config.count("mamba_n_groups"),
        "convolution": config.count("mamba_d_conv"),
        "chunk": config.count("mamba_chunk_size"),
        "bias": config.flag("mamba_proj_bias", default=False),
        "convolution_bias": config.flag("mamba_conv_bias", default=True),
        "norm": True,
    }


def _mamba2(config: HuggingFaceConfig) -> Tables:
    config = config.over(head_dim=64, n_groups=8, conv_kernel=4, chunk_size=256, state_size=128)
    inner = config.count_or("expand", 2) * config.count("hidden_size")
    heads, size = config.count("num_heads"), config.count("head_dim")
    if heads * size != inner:
        config.refuse("num_heads", f"of {size} numbers each they are not the {inner} of the layer")
    return {
        "shape": {**_shape(config), "positions": "none"},
        "states": {
            "heads": heads,
            "head_size": size,
            "state_size": config.count("state_size"),
            "groups": config.count("n_groups"),
            "convolution": config.count("conv_kernel"),
            "chunk": config.count("chunk_size"),
            "bias": config.flag("use_bias", default=False),
            "convolution_bias": config.flag("use_conv_bias", default=True),
            "norm": True,
        },
    }


def _split(tables: Tables, attention: list[int]) -> Tables:
    """Tables of a model whose layers have attention, or else a state space."""
    count = tables["shape"]["layers"]
    layers = list(range(count)) if isinstance(count, int) else []
    tables["states"]["layers"] = [one for one in layers if one not in attention]
    if attention:
        tables["attention"]["layers"] = attention
    else:
        del tables["attention"]
    return tables


def _bamba(config: HuggingFaceConfig) -> Tables:
    attention = config.values.get("attn_layer_indices") or []
    if not isinstance(attention, list) or not all(isinstance(one, int) for one in attention):
        config.refuse("attn_layer_indices", "a list of layers is expected")
    context = config.count("max_position_embeddings")
    tables: Tables = {
        "shape": {**_shape(config), "context": context, "positions": "rotary"},
        "attention": _attention(config),
        "states": _mamba(config),
        "feed_forward": {"width": config.count("intermediate_size"), "gated": True},
    }
    turned = config.count_or("attn_rotary_emb", 64)
    tables["attention"]["rotary_size"] = turned
    return _split(tables, attention)


def _granite(config: HuggingFaceConfig) -> Tables:
    types = config.words("layer_types", ("attention", "mamba"), config.layers)
    if types is None:
        config.refuse("layer_types", "each layer has attention or mamba, and nothing says which")
    is_rotary = config.values.get("position_embedding_type") == "rope"
    shared = config.count("shared_intermediate_size")
    tables: Tables = {
        "shape": {
            **_shape(config),
            "context": config.count("max_position_embeddings"),
            "positions": "rotary" if is_rotary else "none",
        },
        "attention": _attention(config),
        "states": _mamba(config),
        "feed_forward": {"width": shared, "gated": True},
    }
    if config.count_or("num_local_experts", 0):
        tables["experts"] = {
            "count": config.count("num_local_experts"),
            "active": config.count("num_experts_per_tok"),
            "width": config.count("intermediate_size"),
            "shared": 1,
            "shared_width": shared,
        }
    return _split(tables, [at for at, one in enumerate(types) if one == "attention"])


def _falcon_h1(config: HuggingFaceConfig) -> Tables:
    inner = config.count("mamba_n_heads") * config.count("mamba_d_head")
    if config.has("mamba_d_ssm") and config.count("mamba_d_ssm") != inner:
        config.refuse("mamba_d_ssm", f"its heads are {inner} numbers")
    return {
        "shape": {
            **_shape(config),
            "context": config.count("max_position_embeddings"),
            "positions": "rotary",
        },
        "attention": _attention(config),
        "states": {**_mamba(config), "norm": config.flag("mamba_rms_norm", default=False)},
        "feed_forward": {
            "width": config.count("intermediate_size"),
            "gated": True,
            "bias": config.flag("mlp_bias", default=False),
        },
    }


def _nemotron_h(config: HuggingFaceConfig) -> Tables:
    """Every layer is one branch: attention, a state space, a feed-forward part or experts."""
    config = config.over(mamba_head_dim=64, n_groups=8, ssm_state_size=128, conv_kernel=4)
    if config.has("moe_latent_size"):
        config.refuse("moe_latent_size", "experts work on whole tokens here, not on shorter ones")
    layers = _of_pattern(config)
    count = sum(map(len, layers.values()))
    chunk = config.count_or("chunk_size", 128)
    tables: Tables = {
        "shape": {**_shape(config.over(num_hidden_layers=count)), "positions": "none"},
        _ATTENTION: _attention(config),
        _STATES: {
            "heads": config.count("mamba_num_heads"),
            "head_size": config.count("mamba_head_dim"),
            "state_size": config.count("ssm_state_size"),
            "groups": config.count("n_groups"),
            "convolution": config.count("conv_kernel"),
            "chunk": chunk,
            "bias": config.flag("mamba_proj_bias", default=config.flag("use_bias", default=False)),
            "convolution_bias": config.flag("use_conv_bias", default=True),
            "norm": True,
        },
        _DENSE: {"bias": config.flag("mlp_bias", default=False)},
    }
    if config.has("max_position_embeddings"):
        tables["shape"]["context"] = config.count("max_position_embeddings")
    if layers[_DENSE]:
        tables[_DENSE]["width"] = config.count("intermediate_size")
    if layers[_EXPERTS]:
        tables[_EXPERTS] = {
            "count": config.count("n_routed_experts"),
            "active": config.count("num_experts_per_tok"),
            "width": config.count("moe_intermediate_size"),
            "shared": config.count_or("n_shared_experts", 0),
            "shared_width": config.count("moe_shared_expert_intermediate_size"),
            "router_bias": True,
        }
    for name, own in layers.items():
        if own:
            tables[name]["layers"] = own
        elif name != _DENSE:
            tables.pop(name, None)
    return tables


def _of_pattern(config: HuggingFaceConfig) -> dict[str, list[int]]:
    """Layers by what they have."""
    words, key = config.words("layers_block_type", _WORDS), "hybrid_override_pattern"
    pattern = config.values.get(key) if words is None else ""
    if not isinstance(pattern, str) or {*pattern} - {*_LETTERS}:
        config.refuse(key, f"each layer is one of {', '.join(_LETTERS)} here")
    kinds = [_WORDS[one] for one in words or ()] + [_LETTERS[one] for one in pattern]
    return {name: [at for at, one in enumerate(kinds) if one == name] for name in _LETTERS.values()}


STATE_FAMILIES: dict[str, Reader] = {
    "bamba": _bamba,
    "falcon_h1": _falcon_h1,
    "granitemoehybrid": _granite,
    "mamba2": _mamba2,
    "nemotron_h": _nemotron_h,
}

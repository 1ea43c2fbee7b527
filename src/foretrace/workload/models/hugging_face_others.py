"""What Hugging Face's files say of older decoders, encoders of pictures, Mamba-2 and hybrids.

What a configuration leaves out has the default of its class in transformers.

What a configuration leaves out has the default of its class in transformers. Layers that kernels of
Mamba-1 or of linear attention work on are another scan, and are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized

from foretrace.workload.models.hugging_face_config import HuggingFaceConfig, Reader, Tables


def _older(
    config: HuggingFaceConfig, shape: dict[str, object], *, hidden: int, heads: int, width: int
) -> Tables:
    """Norms with mean and variance, two matrices a feed-forward part, biases everywhere."""
    return {
        "shape": {
            "hidden": hidden,
            "vocabulary": config.count("vocab_size"),
            "norm": "layer",
            "tied_embeddings": config.flag("tie_word_embeddings", default=True),
            **shape,
        },
        "attention": {
            "heads": heads,
            "head_size": hidden // heads,
            "input_bias": True,
            "output_bias": True,
        },
        "feed_forward": {"width": width, "gated": False, "bias": True},
    }


def _gpt2(config: HuggingFaceConfig) -> Tables:
    hidden = config.count("n_embd")
    shape: dict[str, object] = {
        "layers": config.count("n_layer"),
        "context": config.count("n_positions", "n_ctx"),
        "positions": "learned",
    }
    width = config.count_or("n_inner", 4 * hidden)
    return _older(config, shape, hidden=hidden, heads=config.count("n_head", low=1), width=width)


def _gpt_neox(config: HuggingFaceConfig) -> Tables:
    shape: dict[str, object] = {
        "layers": config.layers,
        "context": config.count("max_position_embeddings"),
        "positions": "rotary",
        "tied_embeddings": config.flag("tie_word_embeddings", default=False),
    }
    hidden = config.count("hidden_size")
    heads, width = config.heads, config.count("intermediate_size")
    return _older(config, shape, hidden=hidden, heads=heads, width=width)


def _bloom(config: HuggingFaceConfig) -> Tables:
    hidden = config.count("hidden_size", "n_embed")
    shape: dict[str, object] = {
        "layers": config.count("n_layer", "num_hidden_layers", low=1),
        "positions": "alibi",
        "embedding_norm": True,
    }
    heads = config.count("n_head", "num_attention_heads", low=1)
    return _older(config, shape, hidden=hidden, heads=heads, width=4 * hidden)


def _mpt(config: HuggingFaceConfig) -> Tables:
    hidden, heads = config.count("d_model"), config.count("n_heads", low=1)
    inner = config.values.get("attn_config")
    attention = inner if isinstance(inner, Mapping) else {}
    # MptConfig has no biases unless told otherwise, and ALiBi.
    has_bias = not config.flag("no_bias", default=True)
    positions = "alibi" if attention.get("alibi", True) else "learned"
    shape: dict[str, object] = {
        "layers": config.count("n_layers"),
        "context": config.count("max_seq_len"),
        "positions": positions,
        "norm": "layer" if has_bias else "layer-without-bias",
    }
    width = config.count_or("expansion_ratio", 4) * hidden
    tables = _older(config, shape, hidden=hidden, heads=heads, width=width)
    tables["attention"] |= {
        "kv_heads": attention.get("kv_n_heads", heads),
        "input_bias": has_bias,
        "output_bias": has_bias,
    }
    tables["feed_forward"]["bias"] = has_bias
    return tables


OLDER_FAMILIES: dict[str, Reader] = {
    "bloom": _bloom,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "mpt": _mpt,
}


def _encoder(config: HuggingFaceConfig) -> Tables:
    """Norms by mean and variance, two matrices a feed-forward part, biases, learned positions."""
    config = config.over(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_channels=3,
        image_size=224,
        patch_size=16,
    )
    hidden, heads = config.count("hidden_size"), config.heads
    if hidden % heads:
        config.refuse("num_attention_heads", f"they have to divide the hidden size of {hidden}")
    return {
        "shape": {
            "layers": config.layers,
            "hidden": hidden,
            "positions": "learned",
            "norm": "layer",
        },
        "attention": {
            "heads": heads,
            "head_size": hidden // heads,
            "input_bias": config.flag("qkv_bias", default=True),
            "output_bias": True,
        },
        "feed_forward": {
            "width": config.count("intermediate_size"),
            "gated": False,
            "bias": True,
        },
        "patches": {
            "image": config.count("image_size"),
            "size": config.count("patch_size"),
            "channels": config.count("num_channels"),
        },
    }


def _vit(config: HuggingFaceConfig) -> Tables:
    """With a pooler, or with a classifier in its place."""
    tables = _encoder(config)
    tables["patches"]["class_token"] = True
    made = config.values.get("architectures")
    if isinstance(made, list) and any("Classification" in str(one) for one in made):
        labels = config.values.get("id2label")
        tables["patches"]["classes"] = len(labels) if isinstance(labels, Sized) else 2
    else:
        tables["patches"]["pooling"] = "class"
    return tables


def _siglip(config: HuggingFaceConfig) -> Tables:
    tables = _encoder(config)
    has_head = config.flag("vision_use_head", default=True)
    tables["patches"]["pooling"] = "attention" if has_head else "none"
    return tables


ENCODER_FAMILIES: dict[str, Reader] = {
    "siglip_vision_model": _siglip,
    "vit": _vit,
}


# Nemotron-H: what each letter of its pattern, or word of its list, has.
_ATTENTION, _STATES, _DENSE, _EXPERTS = "attention", "states", "feed_forward", "experts"
_LETTERS = {"*": _ATTENTION, "M": _STATES, "-": _DENSE, "E": _EXPERTS}
_WORDS = {"attention": _ATTENTION, "mamba": _STATES, "mlp": _DENSE, "moe": _EXPERTS}


def _shape(config: HuggingFaceConfig) -> dict[str, object]:
    return {
        "layers": config.layers,
        "hidden": config.count("hidden_size"),
        "vocabulary": config.count("vocab_size"),
        "norm": "rms",
        "tied_embeddings": config.flag("tie_word_embeddings", default=False),
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
            **config.experts("num_local_experts", "intermediate_size"),
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
            **config.experts("n_routed_experts", "moe_intermediate_size"),
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

"""What configurations of Hugging Face say of decoders with norms by mean and variance."""

from __future__ import annotations

from collections.abc import Mapping

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

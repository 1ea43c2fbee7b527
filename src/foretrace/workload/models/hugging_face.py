"""The `config.json` of a Hugging Face model becomes a `Transformer`.

What a configuration leaves out has the default of its class in transformers, stated below where it
matters. Only the text part of a model that also sees is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from foretrace.base import Document, WorkloadError
from foretrace.workload.models.files import MODELS
from foretrace.workload.models.transformer import Transformer
from foretrace.workload.models.transformer_file import read_transformer

_SOURCE = "config"
_CHUNK_FULL_EVERY = 4  # Llama4TextConfig: every fourth layer has no rotary positions, no chunks

Tables = dict[str, dict[str, object]]


@dataclass(frozen=True)
class _Config:
    """A configuration, asked for by key."""

    values: Mapping[str, object]
    where: str

    def count(self, *keys: str) -> int:
        """The whole number under the first of these keys that there is."""
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            if value is not None:
                raise WorkloadError(
                    f"{key!r} of {self.where} is {value!r}, where a whole number is expected"
                )
        raise WorkloadError(
            f"{self.where} lacks {keys[0]!r}, which models of its model_type have: is it complete?"
        )

    def has(self, key: str) -> bool:
        """Whether something stands under a key."""
        return self.values.get(key) is not None

    def count_or(self, key: str, default: int) -> int:
        """The whole number under a key, or its class's default."""
        return self.count(key) if self.has(key) else default

    def flag(self, key: str, *, default: bool) -> bool:
        """Whether a key is true."""
        value = self.values.get(key)
        return default if value is None else bool(value)

    def refuse(self, key: str, why: str) -> None:
        """Raise the error that a setting cannot be described here."""
        raise WorkloadError(f"{key!r} of {self.where} is {self.values.get(key)!r}: {why}")


def from_hf_config(config: Mapping[str, object] | str | Path) -> Transformer:
    """The model that a Hugging Face configuration describes.

    Args:
        config: what `config.json` holds, or the file, or the folder it stands in.

    Raises:
        WorkloadError: if it cannot be read, its `model_type` is unknown, or it holds a setting
            that a `Transformer` cannot express.
    """
    if isinstance(config, Mapping):
        return replace(_read(config, Path("config.json")), path=None)
    path = Path(config)
    path = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise WorkloadError(f"{str(path)!r} cannot be read: {err.strerror}") from err
    except ValueError as err:
        raise WorkloadError(f"{str(path)!r} is not a JSON file: {err}") from err
    if not isinstance(values, Mapping):
        raise WorkloadError(f"{str(path)!r} holds no object, where a configuration is expected")
    return _read(values, path)


def _read(values: Mapping[str, object], path: Path) -> Transformer:
    kind = values.get("model_type")
    inner = values.get("text_config")
    if isinstance(inner, Mapping) and inner.get("model_type") in _TABLES:
        values, kind = inner, inner["model_type"]
    where = f"configuration {str(path)!r}"
    if isinstance(inner, Mapping) and inner.get("model_type") in _UNLIKE:
        values, kind = inner, inner["model_type"]
    if isinstance(kind, str) and kind in _UNLIKE:
        field, why = _UNLIKE[kind]
        raise WorkloadError(
            f"{where} has the model_type {kind!r}, whose {field!r} cannot be described: {why}"
        )
    if not isinstance(kind, str) or kind not in _TABLES:
        near = get_close_matches(str(kind), _TABLES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise WorkloadError(
            f"{where} has the model_type {kind!r}, where one of {', '.join(sorted(_TABLES))} "
            f"is expected{hint}: write its shape as a model file of your own instead"
        )
    tables = _TABLES[kind](_Config(values, where))
    sourced: dict[str, object] = {
        name: {key: {"value": value, "source": _SOURCE} for key, value in entries.items()}
        for name, entries in tables.items()
    }
    # A configuration in its folder is called after that.
    name = path.stem if path.stem != "config" else path.absolute().parent.name
    table = {
        "kind": "transformer",
        "title": str(values.get("_name_or_path") or f"a model of the type {kind}"),
        "sources": {_SOURCE: {"title": f"Hugging Face {path.name}, model_type {kind}"}},
        **sourced,
    }
    return read_transformer(Document(name, path, MODELS, table, ""))


def _llama(config: _Config) -> Tables:
    """Rotary positions, root mean square norms, gated feed-forward parts, no biases."""
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    has_bias = config.flag("attention_bias", default=False)
    return {
        "shape": {
            "layers": config.count("num_hidden_layers"),
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


def _mistral(config: _Config) -> Tables:
    tables = _llama(config)
    if config.has("sliding_window"):
        tables["attention"] |= {
            "reach": "window",
            "reach_tokens": config.count("sliding_window"),
        }
    return tables


def _mixtral(config: _Config) -> Tables:
    tables = _mistral(config)
    tables["experts"] = {
        "count": config.count("num_local_experts"),
        "active": config.count("num_experts_per_tok"),
        "width": config.count("intermediate_size"),
    }
    return tables


def _qwen2(config: _Config) -> Tables:
    _no_window(config)
    tables = _llama(config)
    tables["attention"] |= {"input_bias": True, "output_bias": False}
    return tables


def _qwen3(config: _Config) -> Tables:
    _no_window(config)
    tables = _llama(config)
    tables["attention"]["query_key_norm"] = True
    return tables


def _no_window(config: _Config) -> None:
    if config.flag("use_sliding_window", default=False):
        config.refuse(
            "use_sliding_window",
            "windows in some layers from a certain one on cannot be described; set it to false",
        )


def _qwen_experts(config: _Config) -> dict[str, object]:
    dense = config.values.get("mlp_only_layers") or []
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        config.refuse("mlp_only_layers", "only the first layers can lack experts")
    return {
        "count": config.count("num_experts"),
        "active": config.count("num_experts_per_tok"),
        "width": config.count("moe_intermediate_size"),
        "every": config.count_or("decoder_sparse_step", 1),
        "dense_first": len(dense) if isinstance(dense, list) else 0,
    }


def _qwen2_moe(config: _Config) -> Tables:
    shared = {
        "shared": 1,
        "shared_width": config.count("shared_expert_intermediate_size"),
        "shared_gate": True,
    }
    return {**_qwen2(config), "experts": _qwen_experts(config) | shared}


def _qwen3_moe(config: _Config) -> Tables:
    return {**_qwen3(config), "experts": _qwen_experts(config)}


def _deepseek(config: _Config, *, has_router_bias: bool) -> Tables:
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
        "kv_heads": config.count("num_attention_heads"),
    }
    tables["experts"] = {
        "count": config.count("n_routed_experts"),
        "active": config.count("num_experts_per_tok"),
        "width": config.count("moe_intermediate_size"),
        "shared": config.count_or("n_shared_experts", 0),
        "dense_first": config.count_or("first_k_dense_replace", 0),
        "router_bias": has_router_bias,
    }
    return tables


def _deepseek_v2(config: _Config) -> Tables:
    return _deepseek(config, has_router_bias=False)


def _deepseek_v3(config: _Config) -> Tables:
    return _deepseek(config, has_router_bias=True)


def _llama4(config: _Config) -> Tables:
    tables = _llama(config)
    tables["feed_forward"]["width"] = config.count("intermediate_size_mlp")
    if config.has("attention_chunk_size"):
        tables["attention"] |= {
            "reach": "chunk",
            "reach_tokens": config.count("attention_chunk_size"),
            "full_every": config.count_or("no_rope_layer_interval", _CHUNK_FULL_EVERY),
        }
    tables["experts"] = {
        "count": config.count("num_local_experts"),
        "active": config.count("num_experts_per_tok"),
        "width": config.count("intermediate_size"),
        "shared": 1,
        "every": config.count_or("interleave_moe_layer_step", 1),
    }
    return tables


def _gpt_oss(config: _Config) -> Tables:
    tables = _llama(config)
    layers = config.count("num_hidden_layers")
    alternating = [("sliding", "full")[index % 2] + "_attention" for index in range(layers)]
    if config.has("layer_types") and config.values["layer_types"] != alternating:
        config.refuse("layer_types", "only windows in every other layer can be described")
    # GptOssConfig has biases unless told otherwise.
    has_bias = config.flag("attention_bias", default=True)
    tables["attention"] |= {
        "input_bias": has_bias,
        "output_bias": has_bias,
        "sinks": True,
        "reach": "window",
        "reach_tokens": config.count("sliding_window"),
        "full_every": 2,
    }
    tables["feed_forward"]["bias"] = True
    tables["experts"] = {
        "count": config.count("num_local_experts"),
        "active": config.count("num_experts_per_tok"),
        "width": config.count("intermediate_size"),
        "router_bias": True,
    }
    return tables


def _gemma(config: _Config) -> Tables:
    tables = _llama(config)
    # GemmaConfig: embeddings are tied unless told otherwise.
    tables["shape"]["tied_embeddings"] = config.flag("tie_word_embeddings", default=True)
    return tables


def _glm(config: _Config) -> Tables:
    tables = _llama(config)
    tables["attention"]["output_bias"] = False  # only queries, keys and values have one
    return tables


def _glm4_moe(config: _Config) -> Tables:
    tables = _glm(config)
    tables["shape"]["prediction_modules"] = config.count_or("num_nextn_predict_layers", 0)
    tables["attention"]["query_key_norm"] = config.flag("use_qk_norm", default=False)
    tables["experts"] = {
        "count": config.count("n_routed_experts"),
        "active": config.count("num_experts_per_tok"),
        "width": config.count("moe_intermediate_size"),
        "shared": config.count_or("n_shared_experts", 0),
        "dense_first": config.count_or("first_k_dense_replace", 0),
        "router_bias": True,
    }
    return tables


def _older(
    config: _Config, shape: dict[str, object], *, hidden: int, heads: int, width: int
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


def _gpt2(config: _Config) -> Tables:
    hidden = config.count("n_embd")
    shape: dict[str, object] = {
        "layers": config.count("n_layer"),
        "context": config.count("n_positions", "n_ctx"),
        "positions": "learned",
    }
    width = config.count_or("n_inner", 4 * hidden)
    return _older(config, shape, hidden=hidden, heads=config.count("n_head"), width=width)


def _gpt_neox(config: _Config) -> Tables:
    shape: dict[str, object] = {
        "layers": config.count("num_hidden_layers"),
        "context": config.count("max_position_embeddings"),
        "positions": "rotary",
        "tied_embeddings": config.flag("tie_word_embeddings", default=False),
    }
    hidden = config.count("hidden_size")
    heads, width = config.count("num_attention_heads"), config.count("intermediate_size")
    return _older(config, shape, hidden=hidden, heads=heads, width=width)


def _bloom(config: _Config) -> Tables:
    hidden = config.count("hidden_size", "n_embed")
    shape: dict[str, object] = {
        "layers": config.count("n_layer", "num_hidden_layers"),
        "positions": "alibi",
        "embedding_norm": True,
    }
    heads = config.count("n_head", "num_attention_heads")
    return _older(config, shape, hidden=hidden, heads=heads, width=4 * hidden)


def _mpt(config: _Config) -> Tables:
    hidden, heads = config.count("d_model"), config.count("n_heads")
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


_TABLES: dict[str, Callable[[_Config], Tables]] = {
    "bloom": _bloom,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "gemma": _gemma,
    "glm": _glm,
    "glm4_moe": _glm4_moe,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "gpt_oss": _gpt_oss,
    "kimi_k2": _deepseek_v3,
    "llama": _llama,
    "llama4_text": _llama4,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "mpt": _mpt,
    "phi3": _mistral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}

_BEHIND = "norms behind attention and feed-forward parts have no place in a Transformer"
_STATES = "layers that carry a state in place of attention are no layers of a Transformer"
_IMAGES = "it sees pictures in patches; only models of text are read"
# Types that are known and unlike a `Transformer`: the field that says so, and why.
_UNLIKE: dict[str, tuple[str, str]] = {
    "bamba": ("mamba_n_heads", _STATES),
    "falcon_h1": ("mamba_d_ssm", _STATES),
    "gemma2": ("post_attention_layernorm", _BEHIND),
    "gemma3_text": ("post_attention_layernorm", _BEHIND),
    "glm4": ("post_self_attn_layernorm", _BEHIND),
    "jamba": ("mamba_d_state", _STATES),
    "mamba2": ("state_size", _STATES),
    "nemotron_h": ("hybrid_override_pattern", _STATES),
    "olmo": ("layer_norm", "its norms have no parameters, which no norm here lacks"),
    "olmo2": ("post_feedforward_layernorm", _BEHIND),
    "olmo3": ("post_feedforward_layernorm", _BEHIND),
    "phi": ("input_layernorm", "attention and feed-forward part stand beside each other"),
    "siglip_vision_model": ("patch_size", _IMAGES),
    "vit": ("patch_size", _IMAGES),
}

"""What Hugging Face's files say of linear attention, and of attention to tokens that are picked.

What a configuration leaves out has the default of its class in transformers; modules that predict
tokens ahead and that transformers does not load (`mtp_num_hidden_layers`) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from foretrace.workload.models.hugging_face_config import HuggingFaceConfig, Reader, Tables
from foretrace.workload.models.hugging_face_families import FAMILIES

_LINEAR, _FULL = "linear_attention", "full_attention"
_FULL_EVERY = 4  # Qwen3NextConfig: every fourth layer has attention
_CHUNK = 64  # fla-org/flash-linear-attention, fla/ops/gated_delta_rule/chunk.py
_FORMATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def _parted(config: HuggingFaceConfig, tables: Tables, full: list[int] | None) -> Tables:
    """Tables of a model whose layers have states, but for these or those that are listed."""
    types = config.words("layer_types", (_LINEAR, _FULL), config.layers)
    if types is not None:
        full = [at for at, one in enumerate(types) if one == _FULL]
    if full is None:
        every = config.count_or("full_attention_interval", _FULL_EVERY) or config.layers + 1
        full = list(range(every - 1, config.layers, every))
    if not full:
        config.refuse("layer_types", "at least one layer has attention here")
    if linear := [at for at in range(config.layers) if at not in full]:
        tables["attention"]["layers"] = full
        tables["states"]["layers"] = linear
    else:
        del tables["states"]
    return tables


def _qwen3_next(config: HuggingFaceConfig) -> Tables:
    """Gated delta rule, gated attention, experts beside a shared one."""
    tables = _qwen3_dense(config)
    tables["experts"] = FAMILIES["qwen2_moe"](config)["experts"]
    return tables


def _qwen3_5_moe(config: HuggingFaceConfig) -> Tables:
    """The same; all layers have experts, and none a width of its own."""
    tables = _qwen3_next(config.over(intermediate_size=1))
    del tables["feed_forward"]["width"]
    return tables


def _qwen3_dense(config: HuggingFaceConfig) -> Tables:
    config = config.over(
        head_dim=256,
        linear_num_value_heads=32,
        linear_num_key_heads=16,
        linear_value_head_dim=128,
        linear_key_head_dim=128,
        linear_conv_kernel_dim=4,
    )
    tables = FAMILIES["qwen3"](config)
    size = config.count("head_dim", low=1)
    turned = int(size * config.share("partial_rotary_factor", 0.25))
    tables["attention"] |= {"output_gate": True, "rotary_size": max(turned, 1)}
    tables["states"] = {
        "rule": "delta",
        "heads": config.count("linear_num_value_heads"),
        "head_size": config.count("linear_value_head_dim"),
        "state_size": config.count("linear_key_head_dim"),
        "groups": config.count("linear_num_key_heads"),
        "convolution": config.count("linear_conv_kernel_dim"),
        "chunk": _CHUNK,
        "norm": True,
    }
    if config.has("mamba_ssm_dtype"):
        kept = _FORMATS.get(str(config.values["mamba_ssm_dtype"]))
        if kept is None:
            config.refuse("mamba_ssm_dtype", f"one of {', '.join(_FORMATS)} is expected")
        tables["states"]["kept"] = kept
    return _parted(config, tables, None)


def _kimi_linear(config: HuggingFaceConfig) -> Tables:
    """Kimi Delta Attention, and latents without positions, which a table of its own lists."""
    nested = config.values.get("linear_attn_config")
    inner = HuggingFaceConfig(nested if isinstance(nested, Mapping) else {}, config.where)
    renamed = {"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"}
    renamed |= {"num_experts_per_token": "num_experts_per_tok"}
    renamed |= {"model_max_length": "max_position_embeddings"}
    said = {new: config.values[old] for old, new in renamed.items() if config.has(old)}
    config = config.over(first_k_dense_replace=1, **said)
    tables = FAMILIES["deepseek_v3"](config)
    tables["shape"]["positions"] = "none"
    heads = inner.count_or("num_heads", config.count_or("linear_num_heads", 32))
    size = inner.count_or("head_dim", config.count_or("linear_head_dim", 128))
    seen = config.count_or("linear_conv_kernel_dim", 4)
    tables["states"] = {
        "rule": "channel-delta",
        "heads": heads,
        "head_size": size,
        "state_size": size,
        "groups": heads,
        "convolution": inner.count_or("short_conv_kernel_size", seen),
        "chunk": _CHUNK,
        "gate_rank": size,
        "norm": True,
    }
    full = inner.values.get("full_attn_layers")
    if full is None:
        return _parted(config, tables, list(range(4, config.layers, 4)))
    if not isinstance(full, list) or not all(isinstance(one, int) for one in full):
        config.refuse("linear_attn_config", "full_attn_layers lists layers, from 1")
    return _parted(config, tables, [one - 1 for one in full if 0 < one <= config.layers])


def _minimax(config: HuggingFaceConfig) -> Tables:
    """Lightning attention: states that decay by a number of their head, without a convolution."""
    types = config.values.get("attn_type_list")
    if isinstance(types, list):  # of MiniMax-Text-01's own file: 1 is attention
        words = [_FULL if one == 1 else _LINEAR for one in types]
        config = config.over(layer_types=words)
    if config.count_or("shared_intermediate_size", 0):
        config.refuse(
            "shared_intermediate_size", "only 0, as MiniMax-Text-01 has, can be described"
        )
    alike = {**config.values, "sliding_window": None, "layer_types": None}
    tables = FAMILIES["mixtral"](HuggingFaceConfig(alike, config.where))
    heads, size = config.heads, tables["attention"]["head_size"]
    if config.has("rotary_dim"):
        tables["attention"]["rotary_size"] = config.count("rotary_dim")
    tables["states"] = {
        "rule": "decay",
        "heads": heads,
        "head_size": size,
        "state_size": size,
        "groups": heads,
        "convolution": 0,
        "chunk": config.count_or("block_size", 256),
        "norm": True,
    }
    return _parted(config, tables, list(range(0, config.layers, 2)))


def _deepseek_v32(config: HuggingFaceConfig) -> Tables:
    """DeepSeek-V3 with an indexer in every layer."""
    config = config.over(index_n_heads=64, index_head_dim=128, index_topk=2048)
    types = config.words("mlp_layer_types", ("dense", "sparse"), config.layers)
    if types is not None:
        dense = types.count("dense")
        if "sparse" in types[:dense]:
            config.refuse("mlp_layer_types", "only the first layers can lack experts")
        config = HuggingFaceConfig({**config.values, "first_k_dense_replace": dense}, config.where)
    tables = FAMILIES["deepseek_v3"](config)
    tables["attention"] |= {
        "index_heads": config.count("index_n_heads"),
        "index_size": config.count("index_head_dim"),
        "index_chosen": config.count("index_topk"),
    }
    return tables


def _glm_moe_dsa(config: HuggingFaceConfig) -> Tables:
    """The same of GLM-5; some of its kin let layers take over what the one before picked."""
    shares = "each layer has an indexer here, none takes over what another one picked"
    kinds = config.words("indexer_types", ("full", "shared"))
    if kinds is not None and "shared" in kinds:
        config.refuse("indexer_types", shares)
    if config.has("index_topk_pattern"):
        config.refuse("index_topk_pattern", shares)
    if kinds is None and config.count_or("index_topk_freq", 1) > 1:
        config.refuse("index_topk_freq", shares)
    return _deepseek_v32(config.over(index_n_heads=32))


LINEAR_FAMILIES: dict[str, Reader] = {
    "deepseek_v32": _deepseek_v32,
    "glm_moe_dsa": _glm_moe_dsa,
    "kimi_linear": _kimi_linear,
    "minimax": _minimax,
    "minimax_text_01": _minimax,
    "qwen3_5_moe_text": _qwen3_5_moe,
    "qwen3_5_text": _qwen3_dense,
    "qwen3_next": _qwen3_next,
}

"""The shape of a model in Megatron-LM's arguments.

Source:
    NVIDIA/Megatron-LM, megatron/training/arguments.py and
    megatron/core/transformer/transformer_config.py: names and defaults.
"""

from __future__ import annotations

from foretrace.base import WorkloadError
from foretrace.workload.configurations.arguments import repeated
from foretrace.workload.configurations.table import Fields, SettingRow, Settings, Values

_PADDED_TO = 128  # make-vocab-size-divisible-by
_MULTIPLE = 64  # of the default width of a gated feed-forward part
# Tokenizers whose size no argument states.
_TOKENIZERS = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}
_ROTARY = {"rope", "yarn", "mrope"}
_GATED = ("swiglu", "quick-geglu")


class NoModelError(WorkloadError):
    """A model cannot be described by these settings; a plan can."""


def _vocabulary(given: Settings) -> int:
    size = given.count("vocab-size", _TOKENIZERS.get(given.word("tokenizer-type"), 0))
    if given.word("tokenizer-type") == "NullTokenizer" and size:
        size += 1  # the end of a document
    if not size and given.has("vocab-file") and given.has("merge-file"):
        size = _TOKENIZERS["GPT2BPETokenizer"]
    if not size:
        raise NoModelError(
            "its vocabulary is the tokenizer's, which nothing states: add vocab-size, or name "
            "the model"
        )
    tensor = given.count("tensor-model-parallel-size", 1)
    multiple = given.count("make-vocab-size-divisible-by", _PADDED_TO) * tensor
    return -(-size // multiple) * multiple


def _read_shape(given: Settings) -> Fields:
    if not given.has("num-layers"):
        return {}
    kind = given.word("position-embedding-type", "learned_absolute")
    is_rotary = kind in _ROTARY or given.flag("use-rotary-position-embeddings")
    if given.flag("multi-latent-attention"):
        is_rotary = True
    if not is_rotary and kind not in {"learned_absolute", "none"}:
        raise NoModelError(f"position-embedding-type {kind!r} has no counterpart")
    norm = given.word("normalization", "LayerNorm")
    context = given.count("max-position-embeddings", given.count("seq-length", 0))
    found = {
        "shape.layers": given.count("num-layers"),
        "shape.hidden": given.count("hidden-size"),
        "shape.vocabulary": _vocabulary(given),
        "shape.positions": "rotary" if is_rotary else "none" if kind == "none" else "learned",
        "shape.norm": "rms" if norm == "RMSNorm" else "layer",
        "shape.tied_embeddings": not given.flag("untie-embeddings-and-output-weights"),
        "shape.prediction_modules": given.count("mtp-num-layers", 0),
    }
    return {**found, "shape.context": context} if context else found


def _write_shape(fields: Fields) -> Values:
    if "shape.layers" not in fields:
        return {}
    found: dict[str, object] = {
        "num-layers": fields["shape.layers"],
        "hidden-size": fields["shape.hidden"],
        "vocab-size": fields["shape.vocabulary"],
        "make-vocab-size-divisible-by": 1,
        "normalization": "RMSNorm" if fields["shape.norm"] == "rms" else "LayerNorm",
        "position-embedding-type": {"rotary": "rope", "learned": "learned_absolute"}.get(
            fields["shape.positions"], "none"
        ),
    }
    if fields.get("shape.context"):
        found["max-position-embeddings"] = fields["shape.context"]
    if not fields["shape.tied_embeddings"]:
        found["untie-embeddings-and-output-weights"] = True
    if fields["shape.prediction_modules"]:
        found["mtp-num-layers"] = fields["shape.prediction_modules"]
    return found


def _read_attention(given: Settings) -> Fields:
    if not given.has("num-layers"):
        return {}
    heads = given.count("num-attention-heads")
    has_bias = not given.flag("disable-bias-linear")
    is_grouped = given.flag("group-query-attention")
    found: dict[str, object] = {
        "attention.heads": heads,
        "attention.kv_heads": given.count("num-query-groups", 1) if is_grouped else heads,
        "attention.head_size": given.count("kv-channels", given.count("hidden-size") // heads),
        "attention.input_bias": has_bias or given.flag("add-qkv-bias"),
        "attention.output_bias": has_bias,
        "attention.query_key_norm": given.flag("qk-layernorm"),
        "attention.sinks": given.word("softmax-type", "vanilla") != "vanilla",
    }
    if given.flag("multi-latent-attention"):
        found |= {
            "attention.kv_heads": heads,
            "attention.head_size": given.count("qk-head-dim", 128),
            "attention.latent_rank": given.count("kv-lora-rank", 32),
            "attention.query_rank": given.count("q-lora-rank", 0),
            "attention.rotary_size": given.count("qk-pos-emb-head-dim", 64),
            "attention.value_size": given.count("v-head-dim", 128),
            # The norms of the latents, which every latent attention has here.
            "attention.query_key_norm": False,
        }
    if given.has("window-size"):
        found |= _read_window(given)
    return found


def _read_window(given: Settings) -> Fields:
    written = given.values["window-size"]
    parts = written if isinstance(written, list) else str(written).strip("()[]").split(",")
    try:
        tokens = int(parts[0]) + 1  # those before, and itself
    except ValueError:
        raise NoModelError(f"window-size {written!r} is no window") from None
    every = given.values.get("window-attn-skip-freq", 0)
    if not isinstance(every, int):
        raise NoModelError(f"window-attn-skip-freq {every!r} has no counterpart: only a number has")
    return {
        "attention.reach": "window",
        "attention.reach_tokens": tokens,
        "attention.full_every": every,
    }


def _write_attention(fields: Fields) -> Values:  # noqa: C901  one for each part of attention
    if "shape.layers" not in fields:
        return {}
    heads, groups = fields["attention.heads"], fields["attention.kv_heads"]
    found: dict[str, object] = {"num-attention-heads": heads}
    if "attention.latent_rank" in fields:
        found |= {
            "multi-latent-attention": True,
            "qk-head-dim": fields["attention.head_size"],
            "kv-lora-rank": fields["attention.latent_rank"],
            "qk-pos-emb-head-dim": fields["attention.rotary_size"],
            "v-head-dim": fields["attention.value_size"],
            "qk-layernorm": True,
        }
        if fields["attention.query_rank"]:
            found["q-lora-rank"] = fields["attention.query_rank"]
    else:
        found["kv-channels"] = fields["attention.head_size"]
        if groups != heads:
            found |= {"group-query-attention": True, "num-query-groups": groups}
        if fields["attention.query_key_norm"]:
            found["qk-layernorm"] = True
    if not fields["attention.output_bias"]:
        found["disable-bias-linear"] = True
        if fields["attention.input_bias"]:
            found["add-qkv-bias"] = True
    if fields["attention.sinks"]:
        found["softmax-type"] = "learnable"
    if fields.get("attention.reach") == "window":
        found["window-size"] = f"{fields['attention.reach_tokens'] - 1},0"
        if fields["attention.full_every"]:
            found["window-attn-skip-freq"] = fields["attention.full_every"]
    return found


def _width(given: Settings) -> int:
    hidden = given.count("hidden-size")
    gated = 4 * hidden * 2 // 3 // _MULTIPLE * _MULTIPLE
    default = gated if given.flag("swiglu") else 4 * hidden
    return given.count("ffn-hidden-size", default)


def _read_feed_forward(given: Settings) -> Fields:
    if not given.has("num-layers"):
        return {}
    return {
        "feed_forward.width": _width(given),
        "feed_forward.gated": any(given.flag(name) for name in _GATED),
        "feed_forward.bias": not given.flag("disable-bias-linear"),
    }


def _write_feed_forward(fields: Fields) -> Values:
    if "shape.layers" not in fields:
        return {}
    width = fields.get("feed_forward.width", fields.get("experts.width"))
    found: dict[str, object] = {"ffn-hidden-size": width}
    return {**found, "swiglu": True} if fields["feed_forward.gated"] else found


def _read_experts(given: Settings) -> Fields:
    if not given.has("num-experts", "num-layers") or not given.has("num-experts"):
        return {}
    width = given.count("moe-ffn-hidden-size", _width(given))
    shared = given.count("moe-shared-expert-intermediate-size", 0)
    found: dict[str, object] = {
        "experts.count": given.count("num-experts"),
        "experts.active": given.count("moe-router-topk", 2),
        "experts.width": width,
        "experts.shared": int(shared > 0),
        "experts.router_bias": given.flag("moe-router-enable-expert-bias"),
        "experts.shared_gate": given.flag("moe-shared-expert-gate"),
        **_read_layers_of_experts(given.values.get("moe-layer-freq", 1)),
    }
    return {**found, "experts.shared_width": shared} if shared else found


def _read_layers_of_experts(written: object) -> Fields:
    """Which layers have experts: every so manieth from the first, or a list of 0 and 1."""
    if written in {1, "1"}:
        return {"experts.every": 1, "experts.dense_first": 0}
    pattern = written if isinstance(written, list) else repeated(str(written).strip("'\""))
    first = list(pattern or ()).index(1) if pattern and 1 in pattern else -1
    if pattern and first >= 0:
        for every in (1, first + 1):
            dense = first if every == 1 else 0
            made = [int(at >= dense and (at + 1) % every == 0) for at in range(len(pattern))]
            if made == list(pattern):
                return {"experts.every": every, "experts.dense_first": dense}
    raise NoModelError(
        f"moe-layer-freq {written!r} has no counterpart: expected are dense layers first, or "
        "experts in every so manieth layer, as in [0]*3+[1]*58 or [0,1]*24"
    )


def _write_experts(fields: Fields) -> Values:
    if "experts.count" not in fields:
        return {}
    layers, every, dense = (
        fields["shape.layers"],
        fields["experts.every"],
        fields["experts.dense_first"],
    )
    found: dict[str, object] = {
        "num-experts": fields["experts.count"],
        "moe-router-topk": fields["experts.active"],
        "moe-ffn-hidden-size": fields["experts.width"],
    }
    if every > 1:
        period = f"[{','.join(['0'] * (every - 1) + ['1'])}]*{layers // every}"
        found["moe-layer-freq"] = period + (f"+[0]*{layers % every}" if layers % every else "")
    elif dense:
        found["moe-layer-freq"] = f"[0]*{dense}+[1]*{layers - dense}"
    if fields["experts.shared"]:
        width = fields["experts.shared"] * fields["experts.shared_width"]
        found["moe-shared-expert-intermediate-size"] = width
    if fields["experts.router_bias"]:
        found["moe-router-enable-expert-bias"] = True
    if fields["experts.shared_gate"]:
        found["moe-shared-expert-gate"] = True
    return found


MODEL_ROWS = (
    SettingRow(
        (
            *("num-layers", "hidden-size", "vocab-size", "make-vocab-size-divisible-by"),
            *("normalization", "position-embedding-type", "use-rotary-position-embeddings"),
            *("max-position-embeddings", "untie-embeddings-and-output-weights", "mtp-num-layers"),
            *("tokenizer-type", "vocab-file", "merge-file", "no-position-embedding"),
        ),
        _read_shape,
        _write_shape,
    ),
    SettingRow(
        (
            *("num-attention-heads", "group-query-attention", "num-query-groups", "kv-channels"),
            *("disable-bias-linear", "add-qkv-bias", "qk-layernorm", "softmax-type"),
            *("multi-latent-attention", "q-lora-rank", "kv-lora-rank", "qk-head-dim"),
            *("qk-pos-emb-head-dim", "v-head-dim", "window-size", "window-attn-skip-freq"),
        ),
        _read_attention,
        _write_attention,
    ),
    SettingRow(("ffn-hidden-size", *_GATED), _read_feed_forward, _write_feed_forward),
    SettingRow(
        (
            *("num-experts", "moe-router-topk", "moe-ffn-hidden-size", "moe-layer-freq"),
            *("moe-shared-expert-intermediate-size", "moe-router-enable-expert-bias"),
            "moe-shared-expert-gate",
        ),
        _read_experts,
        _write_experts,
    ),
)

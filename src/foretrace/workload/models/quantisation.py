"""`Quantisation`: which weights are kept in fewer bits, and what they are multiplied with.

It is stated as checkpoints state it, under `quantization_config` of their `config.json`, or in one
word, as engines do. Embedding, router, norms and the last layer stay in 16 bit.

Source:
    vllm-project/vllm 0.19, vllm/model_executor/layers/quantization: awq.py, gptq.py, fp8.py,
    mxfp4.py, modelopt.py and compressed_tensors/compressed_tensors.py for keys and what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from foretrace.base import WorkloadError, known_format
from foretrace.workload.models.parts import ATTENTION, EXPERTS, FEED_FORWARD, SHARED_EXPERTS

if TYPE_CHECKING:
    from foretrace.workload.models.transformer import Layer, Transformer

SIXTEEN = "bf16"
_GROUP = 128  # weights that share a scale, where it is not said: AWQ's and GPTQ's checkpoints
_SCALE_BYTES = 2.0  # of a group, in half precision
_BLOCK_SCALE_BYTES = 4.0 / 128**2  # DeepSeek's: blocks of 128 x 128, a scale in single precision
_BITS_OF_BYTE = 8
_PARTS = (ATTENTION, FEED_FORWARD, EXPERTS, SHARED_EXPERTS)  # that have linear layers to quantise

_IGNORED = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules")
_LINEAR = "Linear"  # all of them
_CACHES = {"FP8": "fp8", "NVFP4": "nvfp4"}
_INTEGERS = {4: "int4", 8: "int8"}
_FLOATS = {(8, 0): "fp8", (4, 16): "nvfp4", (4, 32): "mxfp4"}  # by bits, and weights of a scale


@dataclass(frozen=True, kw_only=True)
class Quantisation:
    """How weights of linear layers are kept."""

    method: str  # as checkpoints call it: "awq"
    weights: str  # number format: fp8, int8, int4, mxfp4, nvfp4; "": not known
    operands: str = SIXTEEN  # what products take; 16 bit: weights are unpacked for them
    scale_bytes: float = 0.0  # of scales and zeros beside those of the format, for each weight
    by_block: bool = False  # scales are of blocks, not of rows
    whole: tuple[tuple[str, float], ...] = ()  # parts, and the share of their layers, in 16 bit
    cache: str = ""  # number format of what is kept of tokens; "": it does not say

    @property
    def bytes_per_weight(self) -> float:
        """Of one, with its share of scales."""
        kept = known_format(self.weights)
        return kept.num_bytes + kept.scale_bytes + self.scale_bytes

    def share(self, part: str) -> float:
        """Share of the layers with that part that keep it so."""
        return 1 - dict(self.whole).get(part, 0.0) if part in _PARTS else 0.0


def _kept(
    method: str,
    weights: str,
    operands: str = SIXTEEN,
    *,
    group: int = 0,
    has_zeros: bool = False,
    by_block: bool = False,
) -> Quantisation:
    """Weights of a format; integers share scales, and zeros, by groups."""
    kept = known_format(weights)
    scales = _BLOCK_SCALE_BYTES if by_block else 0.0
    if group > 0 and not kept.is_narrow:
        scales = (_SCALE_BYTES + (kept.num_bytes if has_zeros else 0.0)) / group
    return Quantisation(
        method=method, weights=weights, operands=operands, scale_bytes=scales, by_block=by_block
    )


def _experts_alone(found: Quantisation) -> Quantisation:
    return replace(found, whole=tuple((part, 1.0) for part in _PARTS if part != EXPERTS))


_FP8, _AWQ = _kept("fp8", "fp8", "fp8"), _kept("awq", "int4", group=_GROUP, has_zeros=True)
_BLOCKS, _NVFP4 = _kept("fp8", "fp8", "fp8", by_block=True), _kept("modelopt", "nvfp4", "nvfp4")
# Methods whose `quantization_config` is read.
KNOWN_METHODS = ("awq", "compressed-tensors", "fp8", "gptq", "modelopt", "mxfp4")
# What one word of an engine says; others need the checkpoint's own statement.
QUANTISATIONS: Mapping[str, Quantisation] = {
    "awq": _AWQ,
    "awq_marlin": _AWQ,
    "experts_int8": _experts_alone(_kept("experts_int8", "int8")),
    "fp8": _FP8,
    "fp8_per_block": _BLOCKS,
    "fp8_per_tensor": _FP8,
    "modelopt": _FP8,
    "modelopt_fp4": _NVFP4,
    "mxfp4": _experts_alone(_kept("mxfp4", "mxfp4")),
    "ptpc_fp8": _FP8,
    "w8a8_fp8": _FP8,
    "w8a8_int8": _kept("w8a8_int8", "int8", "int8"),
}
# How publishers call checkpoints, and what of it.
_NAMED = tuple(
    (re.compile(pattern), found)
    for pattern, found in (
        (r"-awq(-int4)?$", _AWQ),
        (r"-gptq-int4$", _kept("gptq", "int4", group=_GROUP)),
        (r"-gptq-int8$", _kept("gptq", "int8", group=_GROUP)),
        (r"-(nv)?fp4$", _NVFP4),
        (r"-fp8(-dynamic|-kv)?$", _FP8),
        (r"-quantized\.w4a16$", _kept("compressed-tensors", "int4", group=_GROUP)),
        (r"-quantized\.w8a16$", _kept("compressed-tensors", "int8")),
        (r"-quantized\.w8a8$", _kept("compressed-tensors", "int8", "int8")),
    )
)
_OF_CHECKPOINTS = ("compressed-tensors", "gptq", "gptq_marlin")


def quantisation_named(word: str, where: str) -> Quantisation:
    """What an engine's `quantization` says by itself.

    Raises:
        WorkloadError: if it is unknown, or says too little.
    """
    if word in _OF_CHECKPOINTS:
        raise WorkloadError(
            f"quantization {word!r} of {where} does not say in how many bits weights are kept: "
            "state the checkpoint's quantization_config beside it, or name its config.json as the "
            "model"
        )
    if word not in QUANTISATIONS:
        raise _unknown("quantization", word, (*QUANTISATIONS, *_OF_CHECKPOINTS), where=where)
    return QUANTISATIONS[word]


def called_quantised(name: str) -> tuple[str, Quantisation | None]:
    """A checkpoint's name without what it says of weights, and that: "Qwen/Qwen3-32B-AWQ"."""
    for pattern, found in _NAMED:
        match = pattern.search(name.lower())
        if match is not None:
            return name[: match.start()], found
    return name, None


def quantisation_of(stated: Mapping[str, Any], model: Transformer, where: str) -> Quantisation:
    """How a checkpoint keeps a model's weights; in an unknown format, if nothing here knows it.

    Args:
        stated: its `quantization_config`, or what ModelOpt's own file holds.
        model: whose.
        where: for errors.

    Raises:
        WorkloadError: if what it says of a format that is known is wrong.
    """
    inner = stated.get("quantization")
    if isinstance(inner, Mapping):
        stated = {"quant_method": "modelopt", **inner}
    method = str(stated.get("quant_method"))
    if method not in _METHODS:
        return Quantisation(method=method, weights="")
    found = replace(_METHODS[method](stated, where), cache=_cache(stated))
    ignored = [name for key in _IGNORED for name in _names(stated.get(key))]
    targets = [name for group in _groups(stated) for name in _names(group.get("targets"))]
    targets = [name for name in targets if name != _LINEAR]
    found = _of_parts(found, model, lambda name: _is_kept(name, targets, ignored, where=where))
    if method == "mxfp4" and (not ignored or found.share(ATTENTION) == 0):
        return _experts_alone(found)  # no other part was ever published so
    return found


def _unknown(key: str, word: object, known: Collection[str], *, where: str) -> WorkloadError:
    near = get_close_matches(str(word).lower(), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return WorkloadError(
        f"{key} of {where} is {word!r}, where one of {', '.join(known)} is expected{hint}"
    )


def _packed(stated: Mapping[str, Any], where: str) -> Quantisation:
    """AWQ's and GPTQ's: integers alone."""
    method = str(stated["quant_method"])
    bits = _count(stated, ("bits", "w_bit"), 4, where=where)
    if bits not in _INTEGERS:
        raise WorkloadError(f"bits of {where} is {bits}, where 4 or 8 is expected")
    group = _count(stated, ("group_size", "q_group_size"), _GROUP, where=where)
    has_zeros = bool(stated.get("zero_point", not stated.get("sym", method == "gptq")))
    return _kept(method, _INTEGERS[bits], group=group, has_zeros=has_zeros)


def _fp8(stated: Mapping[str, Any], _where: str) -> Quantisation:
    return _BLOCKS if stated.get("weight_block_size") else _FP8


def _mxfp4(_stated: Mapping[str, Any], _where: str) -> Quantisation:
    return _kept("mxfp4", "mxfp4")


def _modelopt(stated: Mapping[str, Any], where: str) -> Quantisation:
    """NVIDIA's: one word for both sides."""
    word = str(stated.get("quant_algo") or "").upper()
    if word not in _ALGORITHMS:
        raise _unknown("quant_algo", word, _ALGORITHMS, where=where)
    return replace(_ALGORITHMS[word], method="modelopt")


_ALGORITHMS = {
    "FP8": _FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": _FP8,
    "FP8_PB_WO": _BLOCKS,
    "NVFP4": _NVFP4,
    "W4A16_AWQ": _AWQ,
}


def _compressed(stated: Mapping[str, Any], where: str) -> Quantisation:
    """Groups of layers with a format for weights, and perhaps one for what they multiply.

    Raises:
        WorkloadError: if groups are unlike.
    """
    found = {_of_group(one, where) for one in _groups(stated)}
    if len(found) != 1:
        told = ", ".join(sorted(f"{one.weights} times {one.operands}" for one in found)) or "none"
        raise WorkloadError(
            f"config_groups of {where} has formats of weights and operands {told}, where one pair "
            "for all groups is expected"
        )
    return found.pop()


def _of_group(group: Mapping[str, Any], where: str) -> Quantisation:
    weights = group.get("weights")
    if not isinstance(weights, Mapping):
        raise WorkloadError(f"a group of config_groups of {where} has no weights: state them")
    taken = group.get("input_activations")
    return _kept(
        "compressed-tensors",
        _format_of(weights, where),
        _format_of(taken, where) if isinstance(taken, Mapping) else SIXTEEN,
        group=_count(weights, ("group_size",), 0, where=where),
        has_zeros=not weights.get("symmetric", True),
        by_block=weights.get("strategy") == "block",
    )


def _format_of(stated: Mapping[str, Any], where: str) -> str:
    """The number format that bits, type and group size say."""
    bits = _count(stated, ("num_bits",), _BITS_OF_BYTE, where=where)
    kind = stated.get("type", "int")
    group = 0
    if bits < _BITS_OF_BYTE:
        group = _count(stated, ("group_size",), 0, where=where)
    found = _INTEGERS.get(bits) if kind == "int" else _FLOATS.get((bits, group))
    if found is None:
        raise WorkloadError(
            f"a group of config_groups of {where} has {bits} bits of type {kind!r} and group_size "
            f"{group}, where int of 4 or 8 bits, float of 8, or float of 4 in groups of 16 or 32 "
            "is expected"
        )
    return found


_METHODS = {
    "awq": _packed,
    "compressed-tensors": _compressed,
    "fp8": _fp8,
    "gptq": _packed,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
}


def _cache(stated: Mapping[str, Any]) -> str:
    """The format of what is kept of tokens, if it is said."""
    scheme = stated.get("kv_cache_scheme")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == _BITS_OF_BYTE:
        return "fp8" if scheme.get("type", "float") == "float" else "int8"
    return _CACHES.get(str(stated.get("kv_cache_quant_algo")), "")


def _names(listed: object) -> list[str]:
    return [str(one) for one in listed] if isinstance(listed, list) else []


def _groups(stated: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    groups = stated.get("config_groups")
    found = groups.values() if isinstance(groups, Mapping) else ()
    return [one for one in found if isinstance(one, Mapping)]


def _count(stated: Mapping[str, Any], keys: Sequence[str], default: int, *, where: str) -> int:
    """The whole number under the first of these keys that there is."""
    for key in keys:
        value = stated.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if value is not None:
            raise WorkloadError(f"{key!r} of {where} is {value!r}: expected a whole number")
    return default


def _is_kept(name: str, targets: Sequence[str], ignored: Sequence[str], *, where: str) -> bool:
    """Whether a linear layer of that name is quantised."""
    is_target = not targets or any(_fits(name, one, where) for one in targets)
    return is_target and not any(_fits(name, one, where) for one in ignored)


def _fits(name: str, pattern: str, where: str) -> bool:
    """Whether a module is meant: `re:` and an expression, `*` and `?`, or a part of its name."""
    if pattern.startswith("re:"):
        try:
            return re.match(pattern[3:], name) is not None
        except re.error as err:
            raise WorkloadError(
                f"{pattern!r} of {where} is no regular expression ({err}): correct it"
            ) from err
    if any(one in pattern for one in "*?["):
        return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
    return f".{pattern}." in f".{name}."


def _modules(model: Transformer, layer: Layer) -> dict[str, tuple[str, ...]]:
    """Linear layers of each part, as transformers names them."""
    found: dict[str, tuple[str, ...]] = {}
    if layer.has_attention:
        latent = model.attention.latent
        short = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
        plain = ("q_proj", "k_proj", "v_proj", "o_proj")
        names = short if latent is not None else plain
        found[ATTENTION] = tuple(f"self_attn.{name}" for name in names)
    if layer.is_dense:
        found[FEED_FORWARD] = ("mlp.down_proj",)
    if layer.has_experts and model.experts is not None:
        found[EXPERTS] = ("mlp.experts.0.down_proj",)
        if model.experts.num_shared:
            found[SHARED_EXPERTS] = ("mlp.shared_experts.down_proj",)
    return {
        part: tuple(f"model.layers.{layer.index}.{name}" for name in names)
        for part, names in found.items()
    }


def _of_parts(
    found: Quantisation, model: Transformer, is_kept: Callable[[str], bool]
) -> Quantisation:
    """The same, of those layers alone that are quantised."""
    kept: dict[str, list[bool]] = {}
    for layer in model.layers:
        for part, names in _modules(model, layer).items():
            kept.setdefault(part, []).extend(map(is_kept, names))
    shares = {part: 1 - sum(each) / len(each) for part, each in kept.items()}
    return replace(found, whole=tuple((part, share) for part, share in shares.items() if share))

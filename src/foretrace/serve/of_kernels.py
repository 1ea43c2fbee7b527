"""`profiles_of_kernels`: what a profile of layers would say, from fitted kernel models alone.

Products, attention, experts and traffic of one layer at the sizes that profiles have, by the
families that training is predicted with, and the chip's data sheet. Which kernels an engine calls
is its own choice, by the chip: see `_has_flash2`.

Source:
    vllm-project/vllm 0.19, vllm/v1/attention/backends: FlashAttention 2 but on Hopper (3) and on
    Blackwell of data centres (FlashInfer).
    Dao-AILab/flash-attention 2.8, csrc/flash_attn/flash_api.cpp: one query of each sequence lets
    heads that share keys be worked on together, and keys be split; a prefill in the same launch
    forbids both, and the grid has as many blocks for each sequence as for the longest prefill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from foretrace.base import Float64s, Int64s, MachineError, WorkloadError
from foretrace.cost import (
    Access,
    AttentionShapes,
    Movements,
    Offer,
    Operation,
    SubstitutionRule,
    chosen_fit,
    constants_for,
    factors_of,
    model_ns,
    offers_of,
    shapes_of,
)
from foretrace.machine import Chip
from foretrace.serve.profiles import LayerProfiles, ProfileGrid
from foretrace.workload import Transformer

_FINE = np.arange(16, 257, 16)
_TOKENS = np.unique(np.concatenate([2 ** np.arange(5), _FINE, 2 ** np.arange(9, 15)]))
_SEQUENCES = 2 ** np.arange(11)
_CHUNKS = 2 ** np.arange(4, 14)
_KEYS = np.concatenate([[0], 2 ** np.arange(4, 17)])
_ROUTED = 2 ** np.arange(15)
_DTYPE, _BYTES, _LOGIT_BYTES = "bf16", 2, 4
# Kinds of kernels that vLLM calls, and Triton's fused experts.
_HEAD = "lm_head"
_FLASH2, _FLASH, _EXPERTS = "flash2", "flash", "served"
_BLOCK_QUERIES = 64  # of FlashAttention 2 with causal masks
# What a block without queries takes of a processor, in cycles: an RTX 4090's profile of prefills of
# 16 to 2,048 tokens beside 128 decodes says 600 to 700 (casys-kaist/LLMServingSim 5daddb21).
_EMPTY_CYCLES = 650.0


def profiles_of_kernels(model: Transformer, chip: Chip, *, tensor: int = 1) -> LayerProfiles:
    """Layers of a model on a chip, as if they had been measured.

    Args:
        model: that serves.
        chip: on which.
        tensor: degree of tensor parallelism.

    Raises:
        WorkloadError: if the model's attention is latent.
        MachineError: if the chip's description lacks what the kernel models need.
    """
    attention, hidden = model.attention, model.hidden
    if attention.latent is not None:
        raise WorkloadError(
            f"{model.name} keeps latents, whose serving needs layer profiles: name their folder "
            "with --profiles"
        )
    heads, shared = attention.num_heads // tensor, max(1, attention.num_kv_heads // tensor)
    size = attention.head_size
    width = model.feed_forward.width // tensor
    gates = 2 if model.feed_forward.is_gated else 1
    products = _products(model, tensor)
    moved = {
        "layernorm": 3 * hidden,
        "rotary_emb": 2 * (heads + shared) * size,
        "embedding": 2 * hidden,
        "final_layernorm": 3 * hidden,
    }
    if model.experts is None:
        moved["act_fn"] = (gates + 1) * width
    if attention.has_query_key_norm:
        moved["qk_norm"] = 2 * (heads + shared) * size
    tokens = _TOKENS.astype(np.float64)

    head = products.pop(_HEAD)
    dense = {name: (tokens, _product_ns(chip, _TOKENS, *each)) for name, each in products.items()}
    dense |= {
        name: (tokens, moved_ns(chip, _TOKENS * each * _BYTES)) for name, each in moved.items()
    }
    sequences = _SEQUENCES.astype(np.float64)
    last = {
        _HEAD: (sequences, _product_ns(chip, _SEQUENCES, *head)),
        "sampler": (sequences, moved_ns(chip, _SEQUENCES * model.vocabulary * _LOGIT_BYTES)),
    }
    prefill = _prefill_ns(chip, heads, shared, size)
    decode = _decode_ns(chip, heads, shared, size)
    both = (
        _in_one_launch_ns(chip, heads, shared, size)
        if _has_flash2(chip)
        else prefill[:, :, None, None] + decode[None, None]
    )
    axes = [_CHUNKS, _KEYS, _SEQUENCES, _KEYS[1:]]
    chunks, before, counts, keys = (axis.astype(np.float64) for axis in axes)
    return LayerProfiles(
        gpu=chip.name,
        model=model.name,
        tensor=tensor,
        dense=dense,
        per_sequence=last,
        decode=ProfileGrid((counts, keys), decode),
        prefill=ProfileGrid((chunks, before), prefill),
        mixed=ProfileGrid((chunks, before, counts, keys), both),
        experts=_experts_grid(chip, model),
    )


def under_rules(
    layers: LayerProfiles, model: Transformer, chip: Chip | None, rules: Sequence[SubstitutionRule]
) -> LayerProfiles:
    """The same layers with other products where a rule pays: what they take x a ratio of models.

    Raises:
        MachineError: if two rules are about one product.
    """
    if chip is None or not rules:
        return layers

    def changed(
        kept: Mapping[str, tuple[Float64s, Float64s]],
    ) -> dict[str, tuple[Float64s, Float64s]]:
        return {
            name: (counts, taken_ns * factors_of(_offers(sizes[name], counts, chip, rules)))
            if name in sizes
            else (counts, taken_ns)
            for name, (counts, taken_ns) in kept.items()
        }

    sizes = _products(model, layers.tensor)
    return replace(layers, dense=changed(layers.dense), per_sequence=changed(layers.per_sequence))


def workspace_bytes(
    model: Transformer, chip: Chip, rules: Sequence[SubstitutionRule], *, tensor: int, tokens: int
) -> int:
    """What the largest product under rules holds of a step of so many tokens."""
    sizes = (each for name, each in _products(model, tensor).items() if name != _HEAD)
    found = (_offers(each, np.array([tokens]), chip, rules)[0] for each in sizes)
    return max((one.workspace_bytes for one in found if one is not None), default=0)


def _offers(
    sizes: tuple[int, int], counts: Float64s | Int64s, chip: Chip, rules: Sequence[SubstitutionRule]
) -> tuple[Offer | None, ...]:
    asked = [(1, max(1, round(count)), *sizes) for count in counts.tolist()]
    return offers_of(rules, [Operation("gemm", "library", _DTYPE, one) for one in asked], chip)


def _products(model: Transformer, tensor: int) -> dict[str, tuple[int, int]]:
    """Rows and columns of every layer's weight on one GPU, by the name that profiles have."""
    attention, hidden = model.attention, model.hidden
    heads, shared = attention.num_heads // tensor, max(1, attention.num_kv_heads // tensor)
    width = model.feed_forward.width // tensor
    gates = 2 if model.feed_forward.is_gated else 1
    size = attention.head_size
    found = {
        "qkv_proj": ((heads + 2 * shared) * size, hidden),
        "o_proj": (hidden, heads * size),
        _HEAD: (model.vocabulary // tensor, hidden),
    }
    if model.experts is None:
        found |= {"gate_up_proj": (gates * width, hidden), "down_proj": (hidden, width)}
    return found


def _fitted_ns(chip: Chip, family: str, kind: str, sizes: Int64s) -> Float64s:
    shapes = shapes_of(family, sizes, _DTYPE)
    return model_ns(family, shapes, chip, values=_values(chip, family, kind))


def _values(chip: Chip, family: str, kind: str, dtype: str = _DTYPE) -> Mapping[str, float]:
    chosen = chosen_fit((family, kind, dtype), chip, constants_for(chip))
    if chosen is None:
        raise MachineError(f"there are no constants for {family} of kind {kind!r}")
    return chosen.fit.values


def _product_ns(chip: Chip, tokens: Int64s, rows: int, inner: int) -> Float64s:
    one = np.ones_like(tokens)
    return _fitted_ns(
        chip, "gemm", "library", np.stack([one, tokens, rows * one, inner * one], axis=1)
    )


def moved_ns(chip: Chip, num_bytes: Int64s | Float64s) -> Float64s:
    """Reading or writing so many bytes in a row, in ns.

    Raises:
        MachineError: if nothing says how fast.
    """
    access = np.full(len(num_bytes), Access.STREAM, np.int8)
    moved = Movements(num_bytes.astype(np.float64), access)
    return model_ns("movement", moved, chip, values=_values(chip, "movement", "", "any"))


def _has_flash2(chip: Chip) -> bool:
    """Whether attention is FlashAttention 2's: workstations' Blackwell has no links."""
    if chip.architecture.startswith("Blackwell"):
        return chip.link_bytes_per_ns is None
    return chip.vendor == "NVIDIA" and chip.architecture != "Hopper"


def _prefill_ns(chip: Chip, heads: int, shared: int, size: int) -> Float64s:
    pairs = list(product(_CHUNKS.tolist(), _KEYS.tolist()))
    sizes = np.array(
        [[1, heads, shared, size, tokens, tokens + before, 1] for tokens, before in pairs]
    )
    kind = _FLASH2 if _has_flash2(chip) else _FLASH
    return _fitted_ns(chip, "attention", kind, sizes).reshape(len(_CHUNKS), len(_KEYS))


def _decode_ns(chip: Chip, heads: int, shared: int, size: int) -> Float64s:
    pairs = list(product(_SEQUENCES.tolist(), _KEYS[1:].tolist()))
    sizes = np.array(
        [[count, heads, shared, size, size, 2 * size, keys, 0] for count, keys in pairs]
    )
    return _fitted_ns(chip, "decode", _FLASH, sizes).reshape(len(_SEQUENCES), len(_KEYS) - 1)


def _in_one_launch_ns(chip: Chip, heads: int, shared: int, size: int) -> Float64s:
    """A prefill beside decodes, each of which is a prompt of one token to the kernel."""
    axes = (_CHUNKS, _KEYS, _SEQUENCES, _KEYS[1:])
    chunks, before, counts, keys = (one.ravel() for one in np.meshgrid(*axes, indexing="ij"))
    shape = tuple(map(len, axes))
    one = np.ones_like(chunks)
    alike = (heads * one, shared * one, size * one)
    sizes = np.stack(
        [
            np.stack([one, *alike, chunks, chunks + before, one], axis=1),
            np.stack([counts, *alike, one, keys, one], axis=1),
        ]
    )
    launch = np.tile(np.arange(len(chunks)), 2)
    shapes = replace(AttentionShapes.of(sizes.reshape(-1, 7), _DTYPE), launch=launch)
    found = model_ns("attention", shapes, chip, values=_values(chip, "attention", _FLASH2))
    empty = counts * heads * (-(-chunks // _BLOCK_QUERIES) - 1)
    cycles = _EMPTY_CYCLES * empty / (chip.num_processors or 1)
    wholly: Float64s = found + cycles / (chip.cycles_per_ns or 1.0)
    return wholly.reshape(shape)


def _experts_grid(chip: Chip, model: Transformer) -> ProfileGrid | None:
    """Experts by tokens and by how many of them take part, in all of which tokens are even."""
    experts = model.experts
    if experts is None:
        return None
    top = experts.num_active
    taking_part = np.unique(np.clip(top * 2 ** np.arange(12), top, experts.count))
    pairs = list(product(_ROUTED.tolist(), taking_part.tolist()))
    sizes = [[tokens, top, count, 1, model.hidden, experts.width, 1, 0] for tokens, count in pairs]
    found = _fitted_ns(chip, "experts", _EXPERTS, np.array(sizes))
    axes = (_ROUTED.astype(np.float64), taking_part.astype(np.float64))
    return ProfileGrid(axes, found.reshape(len(_ROUTED), len(taking_part)))

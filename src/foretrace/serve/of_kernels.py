"""`profiles_of_kernels`: what a profile of layers would say, from fitted kernel models alone.

Products, attention, experts and traffic of one layer at the sizes that profiles have, by the
families that training is predicted with, and the chip's data sheet. Prefills beside decodes take
the sum of both alone.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from foretrace.base import Float64s, Int64s, MachineError, WorkloadError
from foretrace.cost import (
    Access,
    Movements,
    chosen_fit,
    model_ns,
    shapes_of,
    shipped_constants,
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
# Kinds of kernels that vLLM calls: FlashAttention 2 on chips that are neither Hopper nor a data
# centre's Blackwell, and Triton's fused experts.
_PREFILLS, _DECODES, _EXPERTS = "flash2", "flash", "served"


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
    products = {
        "qkv_proj": ((heads + 2 * shared) * size, hidden),
        "o_proj": (hidden, heads * size),
    }
    moved = {
        "layernorm": 3 * hidden,
        "rotary_emb": 2 * (heads + shared) * size,
        "embedding": 2 * hidden,
        "final_layernorm": 3 * hidden,
    }
    if model.experts is None:
        products |= {"gate_up_proj": (gates * width, hidden), "down_proj": (hidden, width)}
        moved["act_fn"] = (gates + 1) * width
    if attention.has_query_key_norm:
        moved["qk_norm"] = 2 * (heads + shared) * size
    tokens = _TOKENS.astype(np.float64)
    dense = {name: (tokens, _product_ns(chip, _TOKENS, *sizes)) for name, sizes in products.items()}
    dense |= {
        name: (tokens, _moved_ns(chip, _TOKENS * each * _BYTES)) for name, each in moved.items()
    }
    sequences = _SEQUENCES.astype(np.float64)
    rows = model.vocabulary // tensor
    last = {
        "lm_head": (sequences, _product_ns(chip, _SEQUENCES, rows, hidden)),
        "sampler": (sequences, _moved_ns(chip, _SEQUENCES * model.vocabulary * _LOGIT_BYTES)),
    }
    prefill = _prefill_ns(chip, heads, shared, size)
    decode = _decode_ns(chip, heads, shared, size)
    both = prefill[:, :, None, None] + decode[None, None]
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


def _fitted_ns(chip: Chip, family: str, kind: str, sizes: Int64s) -> Float64s:
    chosen = chosen_fit((family, kind, _DTYPE), chip, shipped_constants())
    if chosen is None:
        raise MachineError(f"there are no constants for {family} of kind {kind}")
    return model_ns(family, shapes_of(family, sizes, _DTYPE), chip, values=chosen.fit.values)


def _product_ns(chip: Chip, tokens: Int64s, rows: int, inner: int) -> Float64s:
    one = np.ones_like(tokens)
    return _fitted_ns(
        chip, "gemm", "library", np.stack([one, tokens, rows * one, inner * one], axis=1)
    )


def _moved_ns(chip: Chip, num_bytes: Int64s) -> Float64s:
    chosen = chosen_fit(("movement", "", "any"), chip, shipped_constants())
    if chosen is None:
        raise MachineError("there are no constants for movements")
    access = np.full(len(num_bytes), Access.STREAM, np.int8)
    moved = Movements(num_bytes.astype(np.float64), access)
    return model_ns("movement", moved, chip, values=chosen.fit.values)


def _prefill_ns(chip: Chip, heads: int, shared: int, size: int) -> Float64s:
    pairs = list(product(_CHUNKS.tolist(), _KEYS.tolist()))
    sizes = np.array(
        [[1, heads, shared, size, tokens, tokens + before, 1] for tokens, before in pairs]
    )
    return _fitted_ns(chip, "attention", _PREFILLS, sizes).reshape(len(_CHUNKS), len(_KEYS))


def _decode_ns(chip: Chip, heads: int, shared: int, size: int) -> Float64s:
    pairs = list(product(_SEQUENCES.tolist(), _KEYS[1:].tolist()))
    sizes = np.array(
        [[count, heads, shared, size, size, 2 * size, keys, 0] for count, keys in pairs]
    )
    return _fitted_ns(chip, "decode", _DECODES, sizes).reshape(len(_SEQUENCES), len(_KEYS) - 1)


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

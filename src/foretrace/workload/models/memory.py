"""Bytes of a model's weights, and of the keys and values that serving keeps."""

from __future__ import annotations

from foretrace.base import known_format
from foretrace.workload.models.parameters import Model, parameters
from foretrace.workload.models.transformer import Transformer


def weight_bytes(model: Model, number_format: str = "bf16") -> float:
    """Bytes of all parameters, each once."""
    return parameters(model).total * known_format(number_format).num_bytes


def cache_bytes(model: Transformer, num_tokens: int, number_format: str = "bf16") -> float:
    """Bytes of keys and values that are kept for one sequence of so many tokens.

    A layer whose attention ends after some tokens keeps no more than these.
    """
    kept = sum(
        num_tokens if layer.reach is None else min(num_tokens, layer.reach.num_tokens)
        for layer in model.layers
    )
    return kept * _numbers_per_token(model) * known_format(number_format).num_bytes


def cache_bytes_per_token(model: Transformer, number_format: str = "bf16") -> float:
    """Bytes that one more token adds while it is within every layer's reach."""
    return cache_bytes(model, 1, number_format)


def _numbers_per_token(model: Transformer) -> int:
    """Numbers that one layer keeps of one token."""
    attention = model.attention
    if attention.latent is not None:
        return attention.latent.rank + attention.latent.rotary_size
    return 2 * attention.num_kv_heads * attention.head_size

"""Bytes of a model's weights, and of the keys and values that serving keeps."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from foretrace.base import WorkloadError
from foretrace.machine import dtype_key
from foretrace.workload.models.parameters import Model, parameters
from foretrace.workload.models.transformer import Transformer

# Bytes of one number; scales that some 4-bit and 8-bit formats keep beside it are not in.
BYTES_BY_FORMAT: Mapping[str, float] = {
    "fp64": 8.0,
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
}


def bytes_of_number(number_format: str) -> float:
    """Bytes of one number in a format, called as here or as PyTorch calls it.

    Raises:
        WorkloadError: if the format is unknown.
    """
    key = dtype_key(number_format)
    if key not in BYTES_BY_FORMAT:
        near = get_close_matches(key, BYTES_BY_FORMAT, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise WorkloadError(
            f"the number format {number_format!r} is unknown: known are "
            f"{', '.join(BYTES_BY_FORMAT)}{hint}"
        )
    return BYTES_BY_FORMAT[key]


def weight_bytes(model: Model, number_format: str = "bf16") -> float:
    """Bytes of all parameters, each once."""
    return parameters(model).total * bytes_of_number(number_format)


def cache_bytes(model: Transformer, num_tokens: int, number_format: str = "bf16") -> float:
    """Bytes of keys and values that are kept for one sequence of so many tokens.

    A layer whose attention ends after some tokens keeps no more than these.
    """
    kept = sum(
        num_tokens if layer.reach is None else min(num_tokens, layer.reach.num_tokens)
        for layer in model.layers
    )
    return kept * _numbers_per_token(model) * bytes_of_number(number_format)


def cache_bytes_per_token(model: Transformer, number_format: str = "bf16") -> float:
    """Bytes that one more token adds while it is within every layer's reach."""
    return cache_bytes(model, 1, number_format)


def _numbers_per_token(model: Transformer) -> int:
    """Numbers that one layer keeps of one token."""
    attention = model.attention
    if attention.latent is not None:
        return attention.latent.rank + attention.latent.rotary_size
    return 2 * attention.num_kv_heads * attention.head_size

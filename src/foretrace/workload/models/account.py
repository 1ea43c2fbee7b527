"""What can be said of a model without a machine: counts, FLOPs by each convention, bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrace.workload.models.flops import Convention, Flops, Recompute, flops
from foretrace.workload.models.parameters import Model, Parameters, parameters
from foretrace.workload.models.published import TotalsOnly, agrees, stated_difference
from foretrace.workload.models.transformer import Transformer

if TYPE_CHECKING:
    import polars as pl


from foretrace.base import known_format

# Where a model is made for longer sequences: what Llama 3 405B is trained on but for its end.
_LONGEST_USUAL = 8192
_NO_CONTEXT = 2048  # of GPT-3, where a model says nothing
_WEIGHT_FORMATS = ("fp32", "bf16", "fp8")


@dataclass(frozen=True)
class ModelComparison:
    """A published total beside the count."""

    what: str  # "parameters", "active parameters"
    published: float
    text: str  # as published: "405B"
    counted: int
    agrees: bool  # to the digits that are published
    why: str  # the stated reason, where it does not

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {
            "what": self.what,
            "published": self.published,
            "text": self.text,
            "counted": self.counted,
            "agrees": self.agrees,
            "why": self.why or None,
        }


@dataclass(frozen=True)
class ModelAccount:
    """A model's counts."""

    model: Model
    sequence: int | None  # tokens for which FLOPs and cache are counted; transformers only
    parameters: Parameters
    comparisons: tuple[ModelComparison, ...]
    flops: tuple[Flops, ...]  # by each convention that the model allows
    recomputed_flops: float | None  # of one token by the first of them, when all is recomputed
    weight_bytes_by_format: tuple[tuple[str, float], ...]
    cache_bytes_per_token: float | None  # in bf16
    cache_bytes: float | None  # of one sequence of `sequence` tokens, in bf16

    def to_frame(self) -> pl.DataFrame:
        """Parameters by part."""
        return self.parameters.to_frame()

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {
            "name": self.model.name,
            "title": self.model.title,
            "kind": self.model.kind,
            "extends": self.model.parent or None,
            "sequence": self.sequence,
            "parameters": self.parameters.as_json(),
            "published": [each.as_json() for each in self.comparisons],
            "flops": [each.as_json() for each in self.flops],
            "recomputed_flops": self.recomputed_flops,
            "weight_bytes": dict(self.weight_bytes_by_format),
            "cache_bytes_per_token": self.cache_bytes_per_token,
            "cache_bytes": self.cache_bytes,
            "entries": [entry.as_json() for entry in self.model.entries],
        }


def account(model: Model, sequence: int | None = None) -> ModelAccount:
    """The counts of a model.

    Args:
        model: any model.
        sequence: tokens of a sequence; a transformer's context, at most 8192, if left out.

    Raises:
        WorkloadError: if the sequence has no token.
    """
    counted = parameters(model)
    is_transformer = isinstance(model, Transformer)
    if isinstance(model, Transformer) and sequence is None:
        sequence = min(model.context or _NO_CONTEXT, _LONGEST_USUAL)
    return ModelAccount(
        model=model,
        sequence=sequence if is_transformer else None,
        parameters=counted,
        comparisons=_comparisons(model, counted),
        flops=tuple(flops(model, sequence, convention=each) for each in conventions(model)),
        recomputed_flops=(
            flops(model, sequence, recompute=Recompute.FULL).recompute if is_transformer else None
        ),
        weight_bytes_by_format=tuple((each, weight_bytes(model, each)) for each in _WEIGHT_FORMATS),
        cache_bytes_per_token=(
            cache_bytes_per_token(model) if isinstance(model, Transformer) else None
        ),
        cache_bytes=(
            cache_bytes(model, sequence)
            if isinstance(model, Transformer) and sequence is not None
            else None
        ),
    )


def conventions(model: Model) -> tuple[Convention, ...]:
    """The conventions by which a model's FLOPs can be counted; the first, where all are one."""
    if isinstance(model, Transformer):
        return tuple(Convention)
    if isinstance(model, TotalsOnly):
        return (Convention.PARAMETERS,)
    return (Convention.CAUSAL,)


def _comparisons(model: Model, counted: Parameters) -> tuple[ModelComparison, ...]:
    pairs = (
        ("parameters", model.published.parameters, counted.total),
        ("active parameters", model.published.active_parameters, counted.active),
    )
    return tuple(
        ModelComparison(
            what=what,
            published=entry.amount,
            text=entry.text,
            counted=count,
            agrees=agrees(entry, count),
            why=stated_difference(entry),
        )
        for what, entry, count in pairs
        if entry is not None
    )


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

"""What can be said of a model without a machine: counts, FLOPs by each convention, bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from foretrace.answer import Answer, Column, Plain, Sentences, Table, Told, Unit, stated_parts
from foretrace.base import known_format
from foretrace.workload.models.flops import Convention, Flops, flops
from foretrace.workload.models.parameters import Model, ModelPart, Parameters, parameters
from foretrace.workload.models.published import TotalsOnly, agrees, stated_difference
from foretrace.workload.models.recompute import Recompute
from foretrace.workload.models.transformer import Transformer

# Where a model is made for longer sequences: what Llama 3 405B is trained on but for its end.
_LONGEST_USUAL = 8192
_NO_CONTEXT = 2048  # of GPT-3, where a model says nothing
_WEIGHT_FORMATS = ("fp32", "bf16", "fp8")
# Of an indexer's keys: a scale in fp32 for so many numbers.
_SCALE_BYTES, _SCALED_AT_ONCE = 4, 128


@dataclass(frozen=True)
class ModelComparison(Plain):
    """A published total beside the count."""

    what: str  # "parameters", "active parameters"
    published: float
    text: str  # as published: "405B"
    counted: int
    agrees: bool  # to the digits that are published
    why: str | None  # the stated reason, where it does not


@dataclass(frozen=True, repr=False)
class ModelAccount(Answer):
    """A model's counts."""

    json_only = (
        *("model.name", "model.title", "model.kind", "extends", "sequence", "parameters"),
        *("comparisons", "flops", "recomputed_flops", "weight_bytes_by_format"),
        *("cache_bytes_per_token", "cache_bytes", "model.entries"),
    )
    json_names: ClassVar = {
        "model.name": "name",
        "model.title": "title",
        "model.kind": "kind",
        "comparisons": "published",
        "weight_bytes_by_format": "weight_bytes",
        "model.entries": "entries",
    }

    model: Model
    sequence: int | None  # tokens for which FLOPs and cache are counted; transformers only
    parameters: Parameters
    comparisons: tuple[ModelComparison, ...]
    flops: tuple[Flops, ...]  # by each convention that the model allows
    recomputed_flops: float | None  # of one token by the first of them, when all is recomputed
    weight_bytes_by_format: Mapping[str, float]
    cache_bytes_per_token: float | None  # in bf16
    cache_bytes: float | None  # of one sequence of `sequence` tokens, in bf16

    @property
    def extends(self) -> str | None:
        """The description that the model's extends."""
        return self.model.parent or None

    @property
    def headline(self) -> str:
        """The model's name and title."""
        return f"{self.model.name}: {self.model.title}"

    def parts(self) -> tuple[Told, ...]:
        """Parameters, what is published of them, FLOPs, bytes, every number with its source."""
        return (
            self._parameters(),
            Sentences.of("held against what is published", map(_comparison, self.comparisons)),
            self._flops(),
            self._bytes(),
            *stated_parts([("numbers", self.model.entries)]),
        )

    def _parameters(self) -> Table:
        counted = self.parameters
        whole = ModelPart("all", counted.total, counted.active)
        rows = [part for part in counted.parts if part.total]
        active = (Column("active", unit=Unit.COUNT),) if whole.active != whole.total else ()
        return Table.of(
            "parameters",
            [*rows, *((whole,) if len(rows) > 1 else ())],
            Column("part", value="name"),
            Column("total", unit=Unit.COUNT),
            Column("share", value=lambda part: part.total / max(counted.total, 1)),
            *active,
            title="parameters",
        )

    def _flops(self) -> Table:
        first = self.flops[0]
        parts = [
            (one.part, one.forward, one.backward, one.forward + one.backward)
            for one in (first.parts if len(first.parts) > 1 else ())
        ]
        wholes = [
            (one.convention or "all", one.forward, one.backward, one.training) for one in self.flops
        ]
        again = self.recomputed_flops
        tokens = "" if self.sequence is None else f", in sequences of {self.sequence} tokens"
        return Table.of(
            "flops",
            [*parts, *wholes, *([("all layers again", again, None, None)] if again else ())],
            Column("part", value=lambda row: str(row[0])),
            Column("forward", unit=Unit.FLOPS, value=lambda row: row[1]),
            Column("backward", unit=Unit.FLOPS, value=lambda row: row[2]),
            Column("both", unit=Unit.FLOPS, value=lambda row: row[3]),
            title=f"FLOPs of one {first.unit}{tokens}",
        )

    def _bytes(self) -> Table:
        kept = {
            "keys and values of one token, bf16": self.cache_bytes_per_token,
            f"keys and values of {self.sequence} tokens, bf16": self.cache_bytes,
        }
        weights = {f"weights in {key}": size for key, size in self.weight_bytes_by_format.items()}
        return Table.of(
            "bytes",
            [row for row in (weights | kept).items() if row[1] is not None],
            Column("of", value=lambda row: row[0]),
            Column("bytes", value=lambda row: row[1]),
            title="bytes",
        )


def _comparison(one: ModelComparison) -> str:
    published = f"{int(one.published):,}" if one.text.isdigit() else one.text
    start = f"{one.what}: published {published}, counted {one.counted:,}"
    if one.agrees:
        return start
    off = 100 * (one.counted / one.published - 1)
    return f"{start} ({off:+.1f} %)" + (f": {one.why}" if one.why else "")


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
    keeps_tokens = isinstance(model, Transformer) and model.patches is None
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
        weight_bytes_by_format={each: weight_bytes(model, each) for each in _WEIGHT_FORMATS},
        cache_bytes_per_token=(
            cache_bytes_per_token(model)
            if isinstance(model, Transformer) and keeps_tokens
            else None
        ),
        cache_bytes=(
            cache_bytes(model, sequence)
            if isinstance(model, Transformer) and sequence is not None and keeps_tokens
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
            why=stated_difference(entry) or None,
        )
        for what, entry, count in pairs
        if entry is not None
    )


def weight_bytes(model: Model, number_format: str = "bf16") -> float:
    """Bytes of all parameters, each once."""
    return parameters(model).total * known_format(number_format).num_bytes


def cache_bytes(model: Transformer, num_tokens: int, number_format: str = "bf16") -> float:
    """Bytes of keys and values that are kept for one sequence of so many tokens.

    A layer whose attention ends after some tokens keeps no more than these; a state is as large
    for any number of tokens.
    """
    kept = sum(
        num_tokens if layer.reach is None else min(num_tokens, layer.reach.num_tokens)
        for layer in model.layers
        if layer.has_attention
    )
    return kept * _bytes_per_token(model, number_format) + state_bytes(model, number_format)


def cache_bytes_per_token(model: Transformer, number_format: str = "bf16") -> float:
    """Bytes that one more token adds while it is within every layer's reach."""
    layers = sum(layer.has_attention for layer in model.layers)
    return layers * _bytes_per_token(model, number_format)


def state_bytes(model: Transformer, number_format: str = "bf16") -> float:
    """Bytes that all layers keep of a sequence, however long: states, and tokens to convolve.

    Source:
        vllm-project/vllm 0.19, vllm/model_executor/layers/mamba/mamba_utils.py: states may have a
        format of their own, tokens have the model's.
    """
    states = model.states
    if states is None:
        return 0.0
    tokens = max(states.convolution - 1, 0) * states.convolved
    kept = states.inner * states.state_size * known_format(states.kept or number_format).num_bytes
    one = kept + tokens * known_format(number_format).num_bytes
    return one * sum(layer.has_states for layer in model.layers)


def _bytes_per_token(model: Transformer, number_format: str) -> float:
    """Bytes that one layer keeps of one token; an indexer's key has eight bits whatever else has.

    Source:
        vllm-project/vllm 0.19, vllm/model_executor/models/deepseek_v2.py,
        `DeepseekV32IndexerCache`: fp8, and a scale in fp32 for 128 numbers.
    """
    found = _numbers_per_token(model) * known_format(number_format).num_bytes
    indexer = model.attention.indexer
    if indexer is None:
        return found
    return found + indexer.head_size + _SCALE_BYTES * -(-indexer.head_size // _SCALED_AT_ONCE)


def _numbers_per_token(model: Transformer) -> int:
    """Numbers that one layer keeps of one token."""
    attention = model.attention
    if attention.latent is not None:
        return attention.latent.rank + attention.latent.rotary_size
    return 2 * attention.num_kv_heads * attention.head_size

"""Transformers that predict tokens: their shape as data, dense or with experts.

Sizes are stated one by one; none is derived from another. The size of a head in particular is
not hidden size over heads: it is not so in GPT-3 XL, Llama 4, Qwen3 and many more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from foretrace.workload.models.entries import Entry
from foretrace.workload.models.published import Published


class Positions(StrEnum):
    """How a token's position enters; only a learned table has parameters."""

    ROTARY = "rotary"
    LEARNED = "learned"
    ALIBI = "alibi"
    NONE = "none"


class Norm(StrEnum):
    """Normalisation by root mean square (a scale), or by mean and variance (a scale, a bias)."""

    RMS = "rms"
    LAYER = "layer"
    LAYER_WITHOUT_BIAS = "layer-without-bias"


class NormPlace(StrEnum):
    """Where norms stand at attention and the feed-forward part: all inside of the residual sum."""

    BEFORE = "before"
    BEHIND = "behind"  # of what they give, before it is added: OLMo 2
    BOTH = "both"  # Gemma 2, GLM-4 of 2025

    @property
    def is_before(self) -> bool:
        """Whether what goes in is normed."""
        return self is not NormPlace.BEHIND

    @property
    def is_behind(self) -> bool:
        """Whether what comes out is normed."""
        return self is not NormPlace.BEFORE

    @property
    def num_norms(self) -> int:
        """Norms of one branch."""
        return 2 if self is NormPlace.BOTH else 1


class ReachKind(StrEnum):
    """Which earlier tokens a token sees where a layer's attention does not reach them all."""

    CHUNK = "chunk"  # those of its own chunk: Llama 4
    WINDOW = "window"  # the last ones, itself among them: Mistral 7B, gpt-oss


@dataclass(frozen=True)
class Reach:
    """Layers whose attention ends after some tokens, and those between whose does not."""

    kind: ReachKind
    num_tokens: int
    full_every: int  # every so manieth layer, from the first counted as 1, sees all; 0: none does
    full_layers: tuple[int, ...] | None = None  # counted from 0; in place of every so manieth


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: keys and values are stored as one short vector (DeepSeek-V2)."""

    query_rank: int  # 0: queries are projected in one go
    rank: int  # of keys and values
    rotary_size: int  # of a head's query and key, shared by all heads' keys
    value_size: int  # of a head's value


@dataclass(frozen=True)
class ModelAttention:
    """Attention of one layer; grouped where there are fewer key-value heads than heads."""

    num_heads: int
    num_kv_heads: int
    head_size: int  # of query, key and value; of the part without positions, if latent
    has_input_bias: bool  # of the projections to queries, keys and values
    has_output_bias: bool
    has_query_key_norm: bool  # with a scale per head size, shared by all heads: Qwen3
    has_sinks: bool  # a learned number per head in the softmax: gpt-oss
    latent: Latent | None
    norms_all_heads: bool = False  # that norm is over all heads at once, with a scale each: OLMo 2
    rotary_size: int = 0  # so many numbers of a head are turned by positions; 0: all
    has_soft_cap: bool = False  # scores go through a tangent: Gemma 2

    @property
    def score_size(self) -> int:
        """Length of a head's query and key."""
        return self.head_size + (self.latent.rotary_size if self.latent else 0)

    @property
    def value_size(self) -> int:
        """Length of a head's value."""
        return self.latent.value_size if self.latent else self.head_size


@dataclass(frozen=True)
class FeedForward:
    """The dense feed-forward part of a layer; gated ones have three matrices, else two."""

    width: int  # 0: no layer is dense
    is_gated: bool
    has_bias: bool


@dataclass(frozen=True)
class Experts:
    """What stands in the place of the feed-forward part in some layers."""

    count: int
    num_active: int  # that a token passes through, shared ones apart
    width: int  # of one
    num_shared: int
    shared_width: int  # of one
    every: int  # every so manieth layer has them, the first counted as 1
    num_dense_first: int  # so many layers before have none
    has_router_bias: bool
    has_shared_gate: bool  # a vector that weighs the shared expert: Qwen2-MoE


@dataclass(frozen=True)
class Layer:
    """One layer of a model."""

    index: int  # from 0
    has_experts: bool
    reach: Reach | None  # `None`: its attention reaches every earlier token


@dataclass(frozen=True)
class Transformer:
    """A decoder that predicts the next token."""

    name: str
    title: str
    num_layers: int
    hidden: int
    vocabulary: int
    context: int  # tokens it was made for; 0 if nobody says
    attention: ModelAttention
    feed_forward: FeedForward
    experts: Experts | None
    reach: Reach | None
    positions: Positions
    norm: Norm
    norm_place: NormPlace
    has_embedding_norm: bool  # BLOOM
    ties_embeddings: bool
    caps_logits: bool  # logits go through a tangent: Gemma 2
    num_prediction_modules: int  # further layers that predict tokens ahead: DeepSeek-V3
    published: Published
    entries: tuple[Entry, ...]  # all statements with their sources
    parent: str  # the description it extends; "" if none
    path: Path | None  # `None`: it was not read from a file

    kind = "transformer"

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """All layers from the first to the last; prediction modules are none of them."""
        return tuple(self._layer(index) for index in range(self.num_layers))

    def _layer(self, index: int) -> Layer:
        experts, reach = self.experts, self.reach
        has_experts = (
            experts is not None
            and index >= experts.num_dense_first
            and (index + 1) % experts.every == 0
        )
        is_full = reach is None or _sees_all(reach, index)
        return Layer(index, has_experts=has_experts, reach=None if is_full else reach)


def _sees_all(reach: Reach, index: int) -> bool:
    if reach.full_layers is not None:
        return index in reach.full_layers
    return reach.full_every > 0 and (index + 1) % reach.full_every == 0

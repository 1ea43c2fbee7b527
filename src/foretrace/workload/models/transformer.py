"""Transformers that predict tokens, or see pictures: their shape as data.

Sizes are stated one by one; none is derived from another. The size of a head in particular is
not hidden size over heads: it is not so in GPT-3 XL, Llama 4, Qwen3 and many more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from foretrace.workload.models.entries import Entry
from foretrace.workload.models.published import Published
from foretrace.workload.models.quantisation import Quantisation


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


class Pooling(StrEnum):
    """What an encoder makes of its tokens at the end."""

    NONE = "none"
    CLASS = "class"  # a product with the first token, which is no patch: ViT's pooler
    ATTENTION = "attention"  # attention of one learned query, and a feed-forward part: SigLIP


@dataclass(frozen=True)
class Patches:
    """Pictures cut into patches, in place of tokens: an encoder, in which all tokens see all."""

    image: int  # pixels of a side
    size: int  # of a patch
    channels: int
    has_class_token: bool
    pooling: Pooling
    num_classes: int  # of a classifier; 0: none

    @property
    def num_patches(self) -> int:
        """Of one picture."""
        return (self.image // self.size) ** 2

    @property
    def num_tokens(self) -> int:
        """Of one picture, the class's among them."""
        return self.num_patches + int(self.has_class_token)

    @property
    def num_numbers(self) -> int:
        """Numbers of one patch."""
        return self.channels * self.size**2


class StateRule(StrEnum):
    """What a token does to the state that a head carries, and what is learned of it."""

    # It decays by a step that the token says, and takes what enters: Mamba-2.
    SCAN = "scan"
    # It decays by a number that a head has for all tokens: lightning attention, MiniMax-01.
    DECAY = "decay"
    # It decays, and what it holds under the token's key is replaced: Gated DeltaNet.
    DELTA = "delta"
    # The same, with a decay of each number of a key: Kimi Delta Attention.
    CHANNEL_DELTA = "channel-delta"

    @property
    def is_delta(self) -> bool:
        """Whether what the state holds under a key is replaced."""
        return self in {StateRule.DELTA, StateRule.CHANNEL_DELTA}


@dataclass(frozen=True)
class StateSpace:
    """Heads carry a state in place of keys and values, and work on it chunk by chunk.

    Of linear attention a head is one of values, a group the heads that share a key and a query.

    Source:
        Dao and Gu, "Transformers are SSMs", arXiv:2405.21060; Yang et al., "Gated Delta
        Networks", arXiv:2412.06464; Kimi Team, "Kimi Linear", arXiv:2510.26692; MiniMax,
        "MiniMax-01", arXiv:2501.08313.
    """

    num_heads: int
    head_size: int
    state_size: int  # numbers of the state for each of a head
    num_groups: int  # of heads that share what enters the state and what reads it
    convolution: int  # tokens that the convolution before it sees; 0: there is none
    chunk: int  # tokens that are worked on at once
    has_bias: bool  # of the projections
    has_convolution_bias: bool
    has_norm: bool  # of what heads give, by its gate
    layers: tuple[int, ...] | None = None  # that have it; `None`: all
    rule: StateRule = StateRule.SCAN
    gate_rank: int = 0  # gates and decays are made of vectors so short; 0: in one go
    kept: str = ""  # number format of states that serving keeps; "": as all else that it keeps

    @property
    def inner(self) -> int:
        """Numbers that all heads give of a token."""
        return self.num_heads * self.head_size

    @property
    def convolved(self) -> int:
        """Numbers of a token that go through the convolution."""
        return self.inner + 2 * self.num_groups * self.state_size

    @property
    def num_decays(self) -> int:
        """Numbers by which a token lets states decay."""
        each = {StateRule.DECAY: 0, StateRule.CHANNEL_DELTA: self.state_size}
        return self.num_heads * each.get(self.rule, 1)

    @property
    def projected(self) -> int:
        """Numbers of a token that the first projection makes: also gates, decays and strengths."""
        gates = 2 * self.gate_rank or self.inner + self.num_decays
        return self.convolved + gates + (self.num_heads if self.rule.is_delta else 0)

    @property
    def num_norms(self) -> int:
        """Norms of what heads give of a token, if it is normed."""
        of_rule = {StateRule.SCAN: self.num_groups, StateRule.DECAY: 1}
        return of_rule.get(self.rule, self.num_heads)


@dataclass(frozen=True)
class Indexer:
    """Small heads score all earlier tokens, and attention sees those with the highest sums.

    Source:
        DeepSeek-AI, "DeepSeek-V3.2", arXiv:2512.02556, section 2.1.
    """

    num_heads: int
    head_size: int  # of its queries, and of its one key a token
    num_chosen: int  # tokens that a query sees

    @property
    def reach(self) -> Reach:
        """A window with as many keys as are chosen: the first tokens see all before them."""
        return Reach(ReachKind.WINDOW, self.num_chosen, full_every=0)


@dataclass(frozen=True)
class ModelAttention:
    """Attention of one layer; grouped where there are fewer key-value heads than heads."""

    num_heads: int  # 0: no layer has attention
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
    # What positions turn is longer by a factor too: YaRN's, arXiv:2309.00071, section 3.4.
    scales_rotary: bool = False
    has_output_gate: bool = (
        False  # what heads give is weighed by a product of the token: Qwen3-Next
    )
    indexer: Indexer | None = None  # only with latents, whose short query it reads
    layers: tuple[int, ...] | None = None  # that have it; `None`: all

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
    is_clamped: bool = False  # what the gate takes is kept within limits: gpt-oss
    layers: tuple[int, ...] | None = None  # that have it; `None`: all without experts


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
    layers: tuple[int, ...] | None = None  # in place of every so manieth


@dataclass(frozen=True)
class Layer:
    """One layer of a model."""

    index: int  # from 0
    has_experts: bool
    reach: Reach | None  # `None`: its attention reaches every earlier token
    has_attention: bool = True  # beside a state space, if it has both: Falcon-H1
    has_states: bool = False
    has_feed_forward: bool = True  # or experts

    @cached_property
    def kind(self) -> Layer:
        """The layer without its place: layers of one kind are alike."""
        return replace(self, index=0)

    @property
    def is_dense(self) -> bool:
        """Whether it has a feed-forward part that is no experts."""
        return self.has_feed_forward and not self.has_experts

    @property
    def num_branches(self) -> int:
        """Sums with the residual stream."""
        return int(self.has_attention or self.has_states) + int(self.has_feed_forward)


@dataclass(frozen=True)
class Transformer:
    """A decoder that predicts the next token, or an encoder of pictures."""

    name: str
    title: str
    num_layers: int
    hidden: int
    vocabulary: int  # 0: it sees patches
    context: int  # tokens it was made for; 0 if nobody says
    attention: ModelAttention
    feed_forward: FeedForward
    experts: Experts | None
    states: StateSpace | None
    patches: Patches | None
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
    picture_tokens: int = 0  # of a picture that it makes token by token; 0: it makes none
    quantisation: Quantisation | None = None  # as its checkpoint keeps weights; None: 16 bit

    kind = "transformer"

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """All layers from the first to the last; prediction modules are none of them."""
        return tuple(self._layer(index) for index in range(self.num_layers))

    @cached_property
    def num_dense_layers(self) -> int:
        """Those with a feed-forward part that is no experts."""
        return sum(layer.is_dense for layer in self.layers)

    def _layer(self, index: int) -> Layer:
        experts, reach, states = self.experts, self.reach, self.states
        has_experts = experts is not None and _has_experts(experts, index)
        has_attention = self.attention.num_heads > 0 and _is_of(self.attention.layers, index)
        is_full = reach is None or not has_attention or _sees_all(reach, index)
        return Layer(
            index,
            has_experts=has_experts,
            reach=None if is_full else reach,
            has_attention=has_attention,
            has_states=states is not None and _is_of(states.layers, index),
            has_feed_forward=has_experts or _is_of(self.feed_forward.layers, index),
        )


def _is_of(layers: tuple[int, ...] | None, index: int) -> bool:
    return layers is None or index in layers


def _has_experts(experts: Experts, index: int) -> bool:
    if experts.layers is not None:
        return index in experts.layers
    return index >= experts.num_dense_first and (index + 1) % experts.every == 0


def _sees_all(reach: Reach, index: int) -> bool:
    if reach.full_layers is not None:
        return index in reach.full_layers
    return reach.full_every > 0 and (index + 1) % reach.full_every == 0

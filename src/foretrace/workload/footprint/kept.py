"""Tensors that a layer keeps for its backward pass, one by one, where nothing is computed again.

The list is what autograd's formulas save. Tensors that two operators save are listed once; views
of parameters and tables of positions are not listed.

Source:
    Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv
    2205.05198, section 4 (plain attention, dropout); derivatives.yaml of PyTorch;
    TransformerEngine 2.9, pytorch/module/layernorm_linear.py; Megatron-LM
    core/fusions/fused_bias_swiglu.py and core/transformer/moe/token_dispatcher.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import ClassVar

from foretrace.answer import Plain
from foretrace.workload.footprint.sizes import KeptSizes, format_bytes
from foretrace.workload.footprint.software import Software
from foretrace.workload.models.recompute import RecomputeModule
from foretrace.workload.models.transformer import Experts, Indexer, Layer, Norm
from foretrace.workload.plan.plan import ContextExchange

_FP32 = 4
_SCORES = frozenset({RecomputeModule.CORE_ATTENTION})
_NORM = frozenset({RecomputeModule.LAYER_NORM})
_LATENT = frozenset({RecomputeModule.LATENT_UP})
# What a feed-forward part has between its first products and its last one.
GATE, UP, GATE_AND_UP = "gate", "up", "gate and up"
_ACTIVATED, _DOWN_INPUT = "activated gate", "input of down"


class Use(Enum):
    """What a tensor is needed for."""

    PRODUCT_INPUT = auto()  # of a weight's gradient
    SCORES = auto()  # inside attention: what "selective" of 2205.05198 drops
    OTHER = auto()


@dataclass(frozen=True)
class Kept(Plain):
    """One tensor."""

    json_names: ClassVar = {
        "label": "tensor",
        "num_bytes": "bytes",
        "use": "",
        "modules": "",
        "instead_bytes": "",
    }

    label: str
    num_bytes: int
    use: Use = Use.OTHER
    modules: frozenset[RecomputeModule] = frozenset()  # that make it, and could again
    instead_bytes: int = 0  # of what has to be kept to make it again and is not kept otherwise


def layer_kept(layer: Layer, *, software: Software, sizes: KeptSizes) -> tuple[Kept, ...]:
    """All tensors that one layer keeps of one microbatch on a rank."""
    has_experts = layer.has_experts and sizes.model.experts is not None
    place = sizes.model.norm_place
    opening = _norm if place.is_before else _stream
    parts: list[Kept] = []
    if layer.has_attention or layer.has_states:
        parts += opening(sizes, where="attention")
        parts += _attention(software, sizes) if layer.has_attention else ()
        parts += _states(sizes) if layer.has_states else ()
        parts += _norm_behind(sizes, where="attention")
    if layer.has_feed_forward:
        parts += opening(sizes, where="feed-forward")
    routed: list[Kept] = []
    if has_experts and sizes.model.experts is not None:
        routed += _experts(sizes.model.experts, sizes)
        if not software.weighs_in_activation:
            # To weigh them: the gradient of a weight is a product with what it weighs.
            tokens = expert_tokens(sizes.model.experts, sizes)
            weighed = round(tokens * sizes.hidden * sizes.activation)
            routed.append(Kept("weighed tokens", weighed))
        parts += _within(RecomputeModule.EXPERTS, routed)
    elif layer.has_feed_forward:
        dense = _feed_forward(sizes, width=sizes.model.feed_forward.width)
        parts += _within(RecomputeModule.FEED_FORWARD, dense)
    if layer.has_feed_forward:
        parts += _norm_behind(sizes, where="feed-forward")
    if software.has_dropout:
        mask = sizes.own_tokens * sizes.hidden
        parts += [Kept("dropout of attention", mask), Kept("dropout of feed-forward", mask)]
    return tuple(each for each in parts if each.num_bytes)


def _within(module: RecomputeModule, kept: Iterable[Kept]) -> Iterator[Kept]:
    """Tensors that a module makes which recompute can name."""
    for each in kept:
        yield replace(each, modules=each.modules | {module})


def norm_kept(sizes: KeptSizes, *, where: str) -> tuple[Kept, ...]:
    """What one norm keeps, and its result, which an unquantized product keeps as its input."""
    return tuple(_norm(sizes, where=where, is_quantized=False))


def _norm(
    sizes: KeptSizes,
    *,
    where: str,
    is_quantized: bool | None = None,
) -> Iterator[Kept]:
    numbers = sizes.own_tokens * sizes.hidden
    statistics = sizes.own_tokens * _FP32 * (1 if sizes.model.norm is Norm.RMS else 2)
    if sizes.plan.implementation.fuses_norms or sizes.model.norm is not Norm.RMS:
        yield Kept(f"input of {where}", round(numbers * sizes.activation))
    else:
        # Of `x * rsqrt(mean(x ** 2))` in fp32, then cast, then scaled. Made again, it starts from
        # what was cast.
        own = round(numbers * sizes.activation)
        wide = f"input of {where} in fp32"
        yield Kept(wide, numbers * _FP32, modules=_NORM, instead_bytes=own)
        yield Kept(f"norm of {where} before its scale", own, modules=_NORM)
    yield Kept(f"statistics of {where}", statistics, modules=_NORM)
    quantized = sizes.is_quantized if is_quantized is None else is_quantized
    number = sizes.product_input if quantized else sizes.activation
    read = round(sizes.input_tokens * sizes.hidden * number)
    yield Kept(f"norm of {where}", read, Use.PRODUCT_INPUT, _NORM)


def _stream(sizes: KeptSizes, *, where: str) -> Iterator[Kept]:
    """What a product reads of the residual stream where no norm stands before it."""
    read = round(sizes.input_tokens * sizes.hidden * sizes.product_input)
    yield Kept(f"input of {where}", read, Use.PRODUCT_INPUT)


def _norm_behind(sizes: KeptSizes, *, where: str) -> Iterator[Kept]:
    """Of a norm whose result is only added."""
    if not sizes.model.norm_place.is_behind:
        return
    normed = tuple(_norm(sizes, where=f"the norm behind {where}"))
    yield from (replace(each, modules=frozenset()) for each in normed[:-1])


def _attention(software: Software, sizes: KeptSizes) -> Iterator[Kept]:
    attention = sizes.model.attention
    heads = sizes.rank.heads
    kv_heads = heads if sizes.plan.implementation.repeats_keys else sizes.rank.key_heads
    query = sizes.tokens * heads * attention.score_size
    key = sizes.tokens * kv_heads * attention.score_size
    value = sizes.tokens * kv_heads * attention.value_size
    output = sizes.tokens * heads * attention.value_size
    number = sizes.activation
    if attention.indexer is not None:
        yield from _indexer(attention.indexer, sizes)
    if sizes.rank.picks_latents and attention.latent is not None:
        # Queries and results in the latents' space, whose values are part of the keys.
        wide = attention.latent.rank + attention.latent.rotary_size
        query, key, value = sizes.tokens * heads * wide, sizes.tokens * wide, 0
        yield Kept(
            "attention in latents", round(sizes.tokens * heads * attention.latent.rank * number)
        )
    # Their norms are one kernel with the products, and so done again with them.
    up = _LATENT if attention.latent is not None else frozenset[RecomputeModule]()
    if attention.latent is not None:
        # Low-rank vectors: before their norm and after, which is a product's input.
        low = attention.latent.query_rank + attention.latent.rank
        yield Kept("low-rank queries, keys and values", round(sizes.tokens * low * number))
        normed = round(sizes.tokens * low * sizes.product_input)
        yield Kept("norm of low-rank vectors", normed, Use.PRODUCT_INPUT, up)
    if attention.has_query_key_norm:
        yield Kept("queries and keys before their norm", round((query + key) * number))
        norms = sizes.tokens * (heads + sizes.rank.key_heads) * _FP32
        yield Kept("statistics of queries and keys", norms)
    yield Kept("queries", round(query * number), modules=up)
    yield Kept("keys", round(key * number), modules=up)
    yield Kept("values", round(value * number), modules=up)
    if sizes.plan.implementation.attention == "flash":
        is_apart = sizes.is_quantized or attention.has_output_gate
        use = Use.OTHER if is_apart else Use.PRODUCT_INPUT
        yield Kept("attention", round(output * number), use)
        yield Kept("log of sums of scores", sizes.tokens * heads * _FP32, Use.SCORES, _SCORES)
    else:
        is_apart = True
        yield from _plain_scores(software, sizes)
    if sizes.plan.context > 1 and sizes.plan.context_exchange is ContextExchange.ALL_TO_ALL:
        # Attention keeps its result for all tokens and some heads; the projection, for all
        # heads and some tokens. Source: TransformerEngine >= 2.8, context_parallel.py.
        yield Kept("attention before its exchange", round(output * number))
    if attention.has_output_gate:
        yield Kept("gates of attention", round(output * number))
    if is_apart:
        read = round(output * sizes.product_input)
        yield Kept("input of the projection", read, Use.PRODUCT_INPUT)


def _indexer(indexer: Indexer, sizes: KeptSizes) -> Iterator[Kept]:
    """What an indexer's own loss is about; its scores are made piece by piece."""
    numbers = indexer.num_heads * (indexer.head_size + 1) + indexer.head_size
    yield Kept("indexer's queries and keys", round(sizes.tokens * numbers * sizes.activation))
    picked = min(indexer.num_chosen, sizes.plan.sequence)
    yield Kept("picked tokens", sizes.tokens * picked * _FP32)


def _states(sizes: KeptSizes) -> Iterator[Kept]:
    """What the scan is made from, and what comes of it: the rest is made again.

    By the delta rule also its operands, and the inverses of triangles.

    Source:
        state-spaces/mamba, mamba_ssm/ops/triton/ssd_combined.py,
        `MambaSplitConv1dScanCombinedFn.forward`; fla-org/flash-linear-attention,
        fla/ops/gated_delta_rule/chunk.py, `ChunkGatedDeltaRuleFunction.forward`.
    """
    own = sizes.rank.own_states
    yield Kept("projected states", round(sizes.tokens * own.projected * sizes.activation))
    if own.gate_rank:
        gates = own.num_decays + own.inner
        yield Kept("decays and gates", round(sizes.tokens * gates * sizes.activation))
    if own.rule.is_delta:
        length = min(own.chunk, sizes.plan.sequence)
        numbers = own.convolved + own.num_heads * length
        yield Kept(
            "queries, keys, values, inverses", round(sizes.tokens * numbers * sizes.activation)
        )
        wide = own.num_decays + own.num_heads + 2 * own.num_groups
        yield Kept("decays, strengths, lengths", sizes.tokens * wide * _FP32)
    yield Kept("scanned states", round(sizes.tokens * own.inner * sizes.activation))
    if own.has_norm:
        yield Kept("statistics of states", sizes.tokens * own.num_norms * _FP32)
    read = round(sizes.tokens * own.inner * sizes.product_input)
    yield Kept("input of the states' projection", read, Use.PRODUCT_INPUT)


def scan_bytes(sizes: KeptSizes) -> int:
    """What a backward scan makes beside what is kept.

    The convolution's result and both gradients of it; states in fp32 and as products take them,
    and their gradients; scores in fp32, and theirs; and the gradient of what was projected. By the
    delta rule states and their gradients as products take them, what is read and written of them
    and the gradients of that, and gradients of triangles and decays in fp32.
    """
    own, plan = sizes.rank.own_states, sizes.plan
    tokens, ranks = plan.micro_batch * plan.sequence, plan.context
    length = min(own.chunk, plan.sequence)
    chunks = plan.micro_batch * -(-plan.sequence // length)
    states = chunks * own.inner * own.state_size // ranks
    scores = chunks * own.num_groups * length * length // ranks
    if own.rule.is_delta:
        of_heads = own.num_heads * own.state_size
        numbers = sizes.tokens * own.projected
        numbers += tokens * (own.convolved + 4 * of_heads + 3 * own.inner) // ranks + 2 * states
        wide = tokens * (own.num_heads * length + 2 * own.num_decays) // ranks
        return round(numbers * sizes.activation) + wide * _FP32
    numbers = sizes.tokens * (own.projected + own.inner) + tokens * 2 * own.convolved // ranks
    wide = 2 * states + 2 * scores
    return round((numbers + 2 * states) * sizes.activation) + wide * _FP32


def _plain_scores(software: Software, sizes: KeptSizes) -> Iterator[Kept]:
    scores = sizes.tokens * sizes.plan.sequence * sizes.rank.heads
    if sizes.model.attention.has_soft_cap:
        capped = round(scores * sizes.activation)
        yield Kept("tangent of scores", capped, Use.SCORES, _SCORES)
    yield Kept("softmax of scores", round(scores * sizes.activation), Use.SCORES, _SCORES)
    if software.has_dropout:
        yield Kept("dropout of scores", scores, Use.SCORES, _SCORES)
        yield Kept("scores after dropout", round(scores * sizes.activation), Use.SCORES, _SCORES)


def _feed_forward(sizes: KeptSizes, *, width: int, where: str = "") -> Iterator[Kept]:
    numbers = sizes.tokens * sizes.rank.columns(width)
    yield from _activation(sizes, numbers=numbers, where=where)


def _activation(sizes: KeptSizes, *, numbers: int, where: str) -> Iterator[Kept]:
    """Between the two products of a feed-forward part, `numbers` wide in all."""
    inner = round(numbers * sizes.activation)
    narrow = sizes.plan.precision.gate_inputs
    read_by_gate = inner if narrow is None else round(numbers * format_bytes(narrow))
    if sizes.model.feed_forward.is_gated:
        yield Kept(GATE_AND_UP + where, 2 * read_by_gate)
        if not sizes.plan.implementation.fuses_activations:
            yield Kept(_ACTIVATED + where, inner)
    else:
        yield Kept(UP + where, inner)
    read = round(numbers * sizes.product_input)
    made = frozenset({RecomputeModule.EXPERT_ACTIVATION}) if where else frozenset()
    said = sizes.plan.implementation
    if sizes.model.feed_forward.is_clamped and said.launch == "eager" and not said.fuses_clamps:
        yield Kept("clamped gate and up" + where, 2 * inner, modules=made)
    yield Kept(_DOWN_INPUT + where, read, Use.PRODUCT_INPUT, made)


def _experts(experts: Experts, sizes: KeptSizes) -> Iterator[Kept]:
    routed = expert_tokens(experts, sizes)
    scores = sizes.own_tokens * experts.count * _FP32
    yield Kept("scores of the router, and their softmax", 2 * scores)
    read = round(routed * sizes.hidden * sizes.product_input)
    yield Kept("tokens of experts", read, Use.PRODUCT_INPUT)
    numbers = routed * experts.width // sizes.rank.expert_tensor
    yield from _activation(sizes, numbers=numbers, where=" of experts")
    if experts.num_shared:
        width = experts.num_shared * experts.shared_width
        shared = _feed_forward(sizes, width=width, where=" of shared experts")
        yield from _within(RecomputeModule.SHARED_EXPERTS, shared)


def expert_tokens(experts: Experts, sizes: KeptSizes) -> int:
    """Tokens that the experts of the fullest rank see; a token counts once for each of them."""
    sent = sizes.own_tokens * experts.num_active * sizes.rank.expert_tensor
    if sizes.plan.token_shares is None:
        return sent
    held = max(1, experts.count // sizes.plan.expert)
    shares = sizes.plan.token_shares
    fullest = max(sum(shares[at : at + held]) for at in range(0, len(shares), held))
    return round(sent * sizes.plan.expert * fullest)


def transfer_bytes(sizes: KeptSizes) -> int:
    """What one stage sends to the next for one microbatch."""
    number = format_bytes(sizes.plan.precision.activations)
    return round(sizes.own_tokens * sizes.hidden * number) if sizes.plan.pipeline > 1 else 0

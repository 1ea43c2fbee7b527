"""`PartBytes`: what a layer, the embedding or the output keeps, and needs for a moment."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from foretrace.workload.blocks.steps import modules_again
from foretrace.workload.footprint.kept import (
    GATE,
    GATE_AND_UP,
    UP,
    Kept,
    Use,
    expert_tokens,
    layer_kept,
    norm_kept,
    scan_bytes,
)
from foretrace.workload.footprint.sizes import KeptSizes, sizes_of
from foretrace.workload.footprint.software import Loss, Software
from foretrace.workload.models.recompute import Recompute, RecomputeModule
from foretrace.workload.models.transformer import Layer, Transformer
from foretrace.workload.plan.plan import Plan

_FP32 = 4


@dataclass(frozen=True)
class PartBytes:
    """Bytes of one part of the model for one microbatch on a rank."""

    kept: tuple[Kept, ...]  # from the forward pass to the backward pass
    forward: int  # beside them, at the worst moment of the forward pass
    backward: int  # of the backward pass
    # Of a backward pass that is taken apart, between gradients of inputs and of weights:
    # inputs of products, and the gradients of their results.
    until_weights: int = 0

    @cached_property
    def kept_bytes(self) -> int:
        """All that is kept."""
        return sum(each.num_bytes for each in self.kept)


def layer_bytes(model: Transformer, plan: Plan, software: Software, *, layer: Layer) -> PartBytes:
    """What one layer keeps and needs.

    Raises:
        WorkloadError: if a number format is unknown.
    """
    sizes = sizes_of(model, plan, software)
    everything = layer_kept(layer, software=software, sizes=sizes)
    kept = _after_recompute(sizes, everything, layer)
    # What is computed again is there once more while the layer's gradients are.
    dropped = max(0, _total(everything) - _total(kept))
    if (modules := modules_again(plan)) is not None:
        # Each module when its own gradients are due, and gone before the next one is.
        dropped = max((_total(_made(everything, {one})) for one in modules), default=0)
    own = round(sizes.own_tokens * sizes.hidden * sizes.activation)
    gathered = round(sizes.tokens * sizes.hidden * sizes.activation) if sizes.gathers else 0
    scanned = scan_bytes(sizes) if layer.has_states else 0
    gradients = max(_attention_gradients(sizes, layer), _feed_forward_gradients(sizes, layer))
    gradients = max(gradients, scanned)
    inputs = sum(each.num_bytes for each in everything if each.use is Use.PRODUCT_INPUT)
    return PartBytes(
        kept=kept,
        forward=dropped + max(gathered, _sent(sizes, layer)),
        backward=dropped + gradients + own + gathered,
        until_weights=inputs + _product_results(sizes, layer),
    )


def head_bytes(model: Transformer, plan: Plan, software: Software) -> PartBytes:
    """What the last norm, the output projection and the loss keep and need.

    Raises:
        WorkloadError: if a number format is unknown.
    """
    sizes = sizes_of(model, plan, software)
    number = sizes.activation
    logits = sizes.tokens * sizes.rank.vocabulary
    loss = software.loss if plan.implementation.fuses_loss else Loss.PLAIN
    # Of the logits: kept, beside that forward, and backward.
    kept, forward, backward = {
        Loss.PLAIN: (_FP32, number + _FP32, 2 * _FP32),
        Loss.PARALLEL: (_FP32, number, _FP32 + number),
        Loss.IN_PLACE: (number, 0, 0),
        Loss.COMPILED: (number, 0, number),
    }[loss]
    if loss is Loss.PLAIN and software.counts_holes:
        # The 16-bit logits are gone, and what comes is twice as large as the block they left: an
        # allocator that moves nothing cannot use it.
        backward += number
    hidden = round(sizes.tokens * sizes.hidden * number)
    weights = round(sizes.rank.vocabulary * sizes.hidden * number)
    # The product's own: gradients of the logits, of its input and of its weight. When they are
    # reached, what the loss kept is gone.
    gradient = 0 if loss is Loss.IN_PLACE else number - kept
    product = round(logits * gradient) + hidden + weights + (hidden if sizes.gathers else 0)
    norm = norm_kept(sizes, where="output")
    capped = (Kept("tangent of logits", round(logits * number)),) if model.caps_logits else ()
    return PartBytes(
        kept=(*norm, *capped, Kept("logits", round(logits * kept))),
        forward=round(logits * forward) + (hidden if sizes.gathers else 0),
        backward=max(round(logits * backward), product),
    )


def embedding_bytes(model: Transformer, plan: Plan, software: Software) -> PartBytes:
    """What the lookup keeps and needs: its gradient is as large as the table.

    Raises:
        WorkloadError: if a number format is unknown.
    """
    sizes = sizes_of(model, plan, software)
    mask = sizes.own_tokens * sizes.hidden if software.has_dropout else 0
    table = round(sizes.rank.vocabulary * sizes.hidden * sizes.activation)
    kept = (Kept("dropout of the embedding", mask),) if mask else ()
    return PartBytes(kept=kept, forward=0, backward=table)


def _total(tensors: tuple[Kept, ...]) -> int:
    return sum(each.num_bytes for each in tensors)


def _after_recompute(
    sizes: KeptSizes, everything: tuple[Kept, ...], layer: Layer
) -> tuple[Kept, ...]:
    if sizes.plan.recompute is Recompute.NONE:
        return everything
    own = round(sizes.own_tokens * sizes.hidden * sizes.activation)
    layer_input = Kept("input of the layer", own)
    if sizes.plan.recompute is Recompute.FULL:
        return (layer_input,)
    modules = modules_again(sizes.plan)
    if modules is not None:
        gone = _made(everything, modules)
        instead = [
            Kept(f"{each.label}, as it came", each.instead_bytes)
            for each in gone
            if each.instead_bytes
        ]
        return (*(each for each in everything if each not in gone), *instead)
    return (layer_input, *_operator_results(sizes, layer))


def _made(everything: tuple[Kept, ...], modules: AbstractSet[RecomputeModule]) -> tuple[Kept, ...]:
    """What some modules make."""
    return tuple(each for each in everything if each.modules & modules)


def _operator_results(sizes: KeptSizes, layer: Layer) -> tuple[Kept, ...]:
    """Results that torchtitan's "op" keeps: attention's, and those of every second product.

    Source:
        torchtitan 9dec370, parallelisms/parallelize_llama.py, `_save_list`.
    """
    implementation, number = sizes.plan.implementation, sizes.activation
    products = _products(sizes, layer)
    # Compiled code keeps what the backward pass reads, and nobody reads the last one.
    if implementation.launch == "compiled":
        products = products[:-1]
    heads = sizes.tokens * sizes.rank.heads
    results = [Kept(label, round(numbers * number)) for label, numbers in products[::2]]
    attention = (
        Kept("attention", round(heads * sizes.model.attention.value_size * number)),
        Kept("log of sums of scores", heads * _FP32, Use.SCORES),
    )
    is_saved = layer.has_attention and implementation.attention == "flash"
    return (*results, *(attention if is_saved else ()))


def _products(sizes: KeptSizes, layer: Layer) -> list[tuple[str, int]]:
    """Products of a layer in order, with the numbers in their results; experts' as one's."""
    found: list[tuple[str, int]] = []
    output = ("projection", sizes.own_tokens * sizes.hidden)
    if layer.has_attention:
        found += [*_attention_products(sizes), output]
    if layer.has_states:
        states = sizes.tokens * sizes.rank.own_states.projected
        found += [("states", states), ("projection of states", output[1])]
    return [*found, *(_feed_forward_products(sizes) if layer.has_feed_forward else ())]


def _attention_products(sizes: KeptSizes) -> list[tuple[str, int]]:
    attention = sizes.model.attention
    query = sizes.tokens * sizes.rank.heads * attention.score_size
    query += sizes.tokens * sizes.rank.heads * attention.value_size * attention.has_output_gate
    key = sizes.tokens * sizes.rank.key_heads * attention.score_size
    value = sizes.tokens * sizes.rank.key_heads * attention.value_size
    if sizes.plan.implementation.fuses_projections:
        return [("queries, keys and values", query + key + value)]
    return [("queries", query), ("keys", key), ("values", value)]


def _feed_forward_products(sizes: KeptSizes) -> list[tuple[str, int]]:
    inner = sizes.tokens * sizes.rank.columns(sizes.model.feed_forward.width)
    is_gated = sizes.model.feed_forward.is_gated
    if sizes.plan.implementation.fuses_projections:
        up = [(GATE_AND_UP, inner * 2) if is_gated else (UP, inner)]
    else:
        up = [(GATE, inner), (UP, inner)] if is_gated else [(UP, inner)]
    return [*up, ("down", sizes.own_tokens * sizes.hidden)]


def _attention_gradients(sizes: KeptSizes, layer: Layer) -> int:
    if not layer.has_attention:
        return 0
    attention, number = sizes.model.attention, sizes.activation
    query = sizes.tokens * sizes.rank.heads * attention.score_size
    output = sizes.tokens * sizes.rank.heads * attention.value_size
    keys = sizes.tokens * sizes.rank.key_heads * (attention.score_size + attention.value_size)
    inputs = round((query + keys + output) * number)
    if sizes.plan.implementation.attention == "flash":
        # Gradients of queries are summed up in fp32.
        # Source: Dao, "FlashAttention-2", arXiv 2307.08691; dq_accum in its source.
        return inputs + query * _FP32
    scores = sizes.tokens * sizes.plan.sequence * sizes.rank.heads
    return inputs + round(2 * scores * number)


def _feed_forward_gradients(sizes: KeptSizes, layer: Layer) -> int:
    factor = (2 if sizes.model.feed_forward.is_gated else 1) + 1
    if layer.has_experts and sizes.model.experts is not None:
        routed = expert_tokens(sizes.model.experts, sizes)
        width = sizes.model.experts.width // sizes.rank.expert_tensor
        return round(routed * (factor * width + sizes.hidden) * sizes.activation)
    if not layer.has_feed_forward:
        return 0
    inner = sizes.tokens * sizes.rank.columns(sizes.model.feed_forward.width)
    return round(inner * factor * sizes.activation)


def _sent(sizes: KeptSizes, layer: Layer) -> int:
    """Copies of tokens on their way to experts of other ranks, sent and received."""
    if not (layer.has_experts and sizes.model.experts is not None and sizes.plan.expert > 1):
        return 0
    routed = expert_tokens(sizes.model.experts, sizes)
    return round(2 * routed * sizes.hidden * sizes.activation)


def _product_results(sizes: KeptSizes, layer: Layer) -> int:
    """Gradients of the results of a layer's products."""
    products = _products(sizes, layer)
    if layer.has_experts and sizes.model.experts is not None:
        routed = expert_tokens(sizes.model.experts, sizes)
        wide = routed * sizes.model.experts.width // sizes.rank.expert_tensor
        factor = 2 if sizes.model.feed_forward.is_gated else 1
        mixing = products[: -len(_feed_forward_products(sizes))]
        numbers = sum(each for _, each in mixing) + routed * sizes.hidden + factor * wide
    else:
        numbers = sum(each for _, each in products)
    return round(numbers * sizes.activation)

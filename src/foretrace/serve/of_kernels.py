"""`profiles_of_kernels`: what a profile of layers would say, from fitted kernel models alone.

Products, attention, experts and traffic of one layer at the sizes that profiles have, by the
families that training is predicted with, and the chip's data sheet. Where layers differ it is the
mean of them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from foretrace.base import Float64s, Int64s
from foretrace.cost import (
    Offer,
    Operation,
    SubstitutionRule,
    factors_of,
    offers_of,
)
from foretrace.machine import Chip
from foretrace.serve.attention_grids import (
    AXES,
    BYTES,
    attention_grids,
    fitted_ns,
    moved_ns,
    served_product_ns,
)
from foretrace.serve.formats import SIXTEEN, ServedFormats
from foretrace.serve.profiles import LayerProfiles, ProfileGrid
from foretrace.serve.stood_in_grids import states_of_rank, stood_in_grids
from foretrace.workload import (
    ATTENTION,
    EXPERTS,
    FEED_FORWARD,
    SHARED_EXPERTS,
    Transformer,
)

_FINE = np.arange(16, 257, 16)
_TOKENS = np.unique(np.concatenate([2 ** np.arange(5), _FINE, 2 ** np.arange(9, 15)]))
_SEQUENCES = 2 ** np.arange(11)
_ROUTED = 2 ** np.arange(15)
_FEW = np.array([1, 2, 4])  # experts of one of many ranks
_LOGIT_BYTES = 4
_HEAD = "lm_head"
_BEFORE = 1  # the place of keys before prefills among axes of attention
_OF_ATTENTION = (
    *("qkv_proj", "qkv_a_proj", "q_b_proj", "o_proj", "rotary_emb", "qk_norm", "latent_norms"),
    *("attention_gate", "quantised", "index_q_proj", "index_k_proj", "index_rotary_emb"),
)
_PARTS = {  # whose weights products are with; others are never quantised
    "qkv_proj": ATTENTION,
    "qkv_a_proj": ATTENTION,
    "q_b_proj": ATTENTION,
    "o_proj": ATTENTION,
    "gate_up_proj": FEED_FORWARD,
    "down_proj": FEED_FORWARD,
    "shared_gate_up_proj": SHARED_EXPERTS,
    "shared_down_proj": SHARED_EXPERTS,
}


def profiles_of_kernels(
    model: Transformer,
    chip: Chip,
    *,
    tensor: int = 1,
    expert_shards: int = 1,
    formats: ServedFormats | None = None,
) -> LayerProfiles:
    """Layers of a model on a chip, as if they had been measured.

    Args:
        model: that serves.
        chip: on which.
        tensor: degree of tensor parallelism.
        expert_shards: parts that each expert is cut in; 1 where they lie whole over GPUs.
        formats: of products and of what is kept of tokens; 16 bit, if left out.

    Raises:
        MachineError: if the chip's description lacks what the kernel models need.
    """
    formats = formats or ServedFormats()
    sizes = _products(model, tensor)
    shares = _shares(model)
    attends = any(layer.has_attention for layer in model.layers)
    tokens = _TOKENS.astype(np.float64)
    head = sizes.pop(_HEAD)
    dense = {
        name: (tokens, served_product_ns(chip, _TOKENS, each, _PARTS.get(name, ""), formats))
        for name, each in sizes.items()
        if attends or name not in _OF_ATTENTION
    }
    dense |= {
        name: (tokens, moved_ns(chip, _TOKENS * each * BYTES))
        for name, each in _moved(model, tensor).items()
        if attends or name not in _OF_ATTENTION
    }
    if attends and formats.share(ATTENTION) > 0 and formats.quantises:
        # No norm stands between attention and its last product: its input has a kernel to itself.
        heads = model.attention.num_heads // tensor * model.attention.value_size
        taken = moved_ns(chip, _TOKENS * (heads * (BYTES + 1)))
        dense["quantised"] = (tokens, taken * formats.share(ATTENTION))
    dense = {name: (tokens, ns * shares.get(name, 1.0)) for name, (tokens, ns) in dense.items()}
    sequences = _SEQUENCES.astype(np.float64)
    last = {
        _HEAD: (sequences, served_product_ns(chip, _SEQUENCES, head, "", formats)),
        "sampler": (sequences, moved_ns(chip, _SEQUENCES * model.vocabulary * _LOGIT_BYTES)),
    }
    decode, prefill, mixed = attention_grids(chip, model, tensor, formats=formats)
    told, scanned = stood_in_grids(chip, model, tensor, formats=formats)
    decode = replace(decode, values=decode.values + told)
    prefill = replace(prefill, values=prefill.values + scanned)
    both = scanned[:, :, None, None] + told[None, None]
    mixed = replace(mixed, values=mixed.values + both)
    return LayerProfiles(
        gpu=chip.name,
        model=model.name,
        tensor=tensor,
        dense=dense,
        per_sequence=last,
        decode=decode,
        prefill=prefill,
        mixed=mixed,
        experts=_experts_grid(chip, model, formats, shards=expert_shards),
        expert_shards=expert_shards,
        assumed=(told, scanned) if told.any() else None,
    )


def with_cut_experts(
    layers: LayerProfiles,
    model: Transformer,
    chip: Chip | None,
    formats: ServedFormats,
    shards: int,
) -> LayerProfiles:
    """Layers whose experts were measured whole, each cut in parts: times a ratio of models.

    Without a chip that is described a part takes its share of the time.

    Raises:
        MachineError: if the chip's description lacks what the kernel models need.
    """
    whole = layers.experts
    if whole is None or shards == layers.expert_shards:
        return layers
    factor: Float64s = np.full(whole.values.shape, layers.expert_shards / shards)
    if chip is not None:
        cut, same = (
            _experts_grid(chip, model, formats, axes=whole.axes, shards=each)
            for each in (shards, layers.expert_shards)
        )
        if cut is not None and same is not None:
            factor = cut.values / same.values
    cut_grid = replace(whole, values=whole.values * factor)
    return replace(layers, experts=cut_grid, expert_shards=shards)


def in_formats(
    layers: LayerProfiles, model: Transformer, chip: Chip, formats: ServedFormats
) -> LayerProfiles:
    """Layers that were measured in 16 bit, in other formats: what they took x a ratio of models.

    Raises:
        MachineError: if the chip's description lacks what the kernel models need.
    """
    plain = ServedFormats()
    sizes = _products(model, layers.tensor)
    dense = dict(layers.dense)
    for name, part in _PARTS.items():
        if name in dense and name in sizes and formats.share(part) > 0:
            counts, taken_ns = dense[name]
            tokens = np.maximum(np.rint(counts), 1).astype(np.int64)
            other, same = (
                served_product_ns(chip, tokens, sizes[name], part, one) for one in (formats, plain)
            )
            dense[name] = counts, taken_ns * other / same
    experts = layers.experts
    if experts is not None and formats.share(EXPERTS) > 0:
        other_grid, same_grid = (
            _experts_grid(chip, model, one, axes=experts.axes) for one in (formats, plain)
        )
        if other_grid is not None and same_grid is not None:
            factor = other_grid.values / same_grid.values
            experts = replace(experts, values=experts.values * factor)
    changed = replace(layers, dense=dense, experts=experts)
    if formats.has_cache_of_16_bit:
        return changed

    def kept_so(at: int, measured: ProfileGrid, *places: int) -> ProfileGrid:
        axes = [axis[:1] for axis in AXES]
        for place, axis in zip(places, measured.axes, strict=True):
            least = 0 if place == _BEFORE else 1
            axes[place] = np.maximum(np.rint(axis), least).astype(np.int64)
        other_ns, same_ns = (
            attention_grids(
                chip, model, layers.tensor, formats=one, axes=(axes[0], axes[1], axes[2], axes[3])
            )[at].values
            for one in (formats, plain)
        )
        return replace(measured, values=measured.values * other_ns / same_ns)

    return replace(
        changed,
        decode=kept_so(0, layers.decode, 2, 3),
        prefill=kept_so(1, layers.prefill, 0, 1),
        mixed=kept_so(2, layers.mixed, 0, 1, 2, 3),
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
    return offers_of(rules, [Operation("gemm", "library", SIXTEEN, one) for one in asked], chip)


def _products(model: Transformer, tensor: int) -> dict[str, tuple[int, int]]:
    """Rows and columns of every layer's weight on one GPU, by the name that profiles have."""
    attention, hidden, latent = model.attention, model.hidden, model.attention.latent
    heads, shared = attention.num_heads // tensor, max(1, attention.num_kv_heads // tensor)
    size = attention.head_size
    found = {_HEAD: (model.vocabulary // tensor, hidden)}
    if latent is None:
        queries = heads * (1 + attention.has_output_gate)
        found["qkv_proj"] = ((queries + 2 * shared) * size, hidden)
    else:
        short = latent.query_rank + latent.rank + latent.rotary_size
        found["qkv_a_proj"] = (short, hidden)
        found["q_b_proj"] = (heads * attention.score_size, latent.query_rank or hidden)
    if latent is not None and (indexer := attention.indexer) is not None:
        found["index_q_proj"] = (indexer.num_heads * indexer.head_size, latent.query_rank)
        found["index_k_proj"] = (indexer.head_size + indexer.num_heads, hidden)
    if (states := model.states) is not None:
        own = states_of_rank(states, tensor)
        found["state_proj"] = (own.projected, hidden)
        found["state_out_proj"] = (hidden, own.inner)
        if own.gate_rank:
            found["state_gate_proj"] = (own.inner + own.num_decays, own.gate_rank)
    found["o_proj"] = (hidden, heads * attention.value_size)
    gates = 2 if model.feed_forward.is_gated else 1
    if model.num_dense_layers:
        width = model.feed_forward.width // tensor
        found |= {"gate_up_proj": (gates * width, hidden), "down_proj": (hidden, width)}
    experts = model.experts
    if experts is not None:
        found["gate"] = (experts.count, hidden)
        if experts.num_shared:
            width = experts.num_shared * experts.shared_width // tensor
            found["shared_gate_up_proj"] = (gates * width, hidden)
            found["shared_down_proj"] = (hidden, width)
    return found


def _moved(model: Transformer, tensor: int) -> dict[str, int]:
    """Numbers of a token that other layers read and write, by the name that profiles have."""
    attention, hidden, latent = model.attention, model.hidden, model.attention.latent
    heads, shared = attention.num_heads // tensor, max(1, attention.num_kv_heads // tensor)
    turned = (heads + shared) * attention.head_size
    if latent is not None:
        turned = (heads + 1) * latent.rotary_size
    found = {
        "layernorm": 3 * hidden,
        "rotary_emb": 2 * turned,
        "embedding": 2 * hidden,
        "final_layernorm": 3 * hidden,
    }
    gates = 2 if model.feed_forward.is_gated else 1
    if model.num_dense_layers:
        found["act_fn"] = (gates + 1) * (model.feed_forward.width // tensor)
    if model.experts is not None and model.experts.num_shared:
        width = model.experts.num_shared * model.experts.shared_width // tensor
        found["shared_act_fn"] = (gates + 1) * width
    if latent is not None:
        found["latent_norms"] = 2 * (latent.query_rank + latent.rank)
    elif attention.has_query_key_norm:
        found["qk_norm"] = 2 * (heads + shared) * attention.head_size
    if attention.has_output_gate:
        found["attention_gate"] = 3 * heads * attention.value_size
    if (indexer := attention.indexer) is not None:
        found["index_rotary_emb"] = 2 * (indexer.num_heads + 1) * indexer.head_size
    if (states := model.states) is not None:  # what they give, its norm and its gate
        found["state_norm"] = 3 * states_of_rank(states, tensor).inner
    return found


def _shares(model: Transformer) -> dict[str, float]:
    """Share of layers that have what others lack."""
    dense = model.num_dense_layers / model.num_layers
    experts = sum(layer.has_experts for layer in model.layers) / model.num_layers
    attending = sum(layer.has_attention for layer in model.layers) / model.num_layers
    carrying = sum(layer.has_states for layer in model.layers) / model.num_layers
    return (
        dict.fromkeys(("gate_up_proj", "down_proj", "act_fn"), dense)
        | dict.fromkeys(
            ("gate", "shared_gate_up_proj", "shared_down_proj", "shared_act_fn"), experts
        )
        | dict.fromkeys(_OF_ATTENTION, attending)
        | dict.fromkeys(("state_proj", "state_out_proj", "state_gate_proj", "state_norm"), carrying)
    )


def _experts_grid(
    chip: Chip,
    model: Transformer,
    formats: ServedFormats,
    *,
    axes: tuple[Float64s, ...] | None = None,
    shards: int = 1,
) -> ProfileGrid | None:
    """Experts by tokens and by how many of them take part, in all of which tokens are even.

    Fewer than a token chooses are those of one of many ranks: as many rows go to them.

    Args:
        chip: that they run on.
        model: that serves.
        formats: of products.
        axes: sizes of the grid.
        shards: parts that each expert is cut in.
    """
    experts = model.experts
    if experts is None:
        return None
    top = experts.num_active
    if axes is None:
        counts = np.concatenate([_FEW, top * 2 ** np.arange(12)])
        axes = (_ROUTED.astype(np.float64), np.unique(np.minimum(counts, experts.count)) * 1.0)
    pairs = product(*(np.maximum(np.rint(axis), 1).astype(int).tolist() for axis in axes))
    width = max(1, experts.width // shards)
    sizes = np.array(
        [
            [-(-tokens * top // chosen), chosen, count, 1, model.hidden, width, 1, 0]
            for tokens, count in pairs
            for chosen in [min(top, count)]
        ]
    )
    share = formats.share(EXPERTS)
    found = np.zeros(len(sizes))
    for part, one in ((1 - share, ServedFormats()), (share, formats)):
        if part > 0:
            kind = one.kind("experts")
            found = found + part * fitted_ns(chip, "experts", kind, sizes, dtype=one.products)
    return ProfileGrid(axes, found.reshape([len(axis) for axis in axes]))

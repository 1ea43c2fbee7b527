"""Buffers beside a unit's own: of ZeRO-3, and gradients that libraries keep for nothing.

PyTorch's allocator keeps a pool for each stream, and memory that one stream has reserved serves no
other. PyTorch's FSDP2 gathers into buffers of a stream of its own, copies them out for the stream
that computes, and copies whole gradients, in the format in which they are reduced, there too.

Source:
    PyTorch 2.13, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (`foreach_all_gather`,
    `foreach_reduce`) and _fsdp_param_group.py (a reduction's input lives until the next one's);
    torch/distributed/pipelining/stage.py (no reduction before the last microbatch).
"""

from __future__ import annotations

from dataclasses import replace

from foretrace.workload.blocks.setting import Setting
from foretrace.workload.footprint.sizes import format_bytes
from foretrace.workload.footprint.states import Held, working_bytes
from foretrace.workload.models.transformer import Transformer
from foretrace.workload.plan.groups import expert_tensor_size
from foretrace.workload.plan.plan import Plan


def gathered_bytes(plan: Plan, ends: Held, layers: tuple[Held, ...]) -> int:
    """Whole parameters of ZeRO-3 on a rank, and gradients that wait for a pipeline's end.

    Args:
        plan: a plan whose parameters are sharded.
        ends: parameters of the embedding and the output on this stage, gathered as one group
            that stays from the forward pass to the backward pass.
        layers: those of each layer of the stage; each is a group.
    """
    ends_whole = working_bytes(ends, plan)
    size_of = {each: working_bytes(each, plan) for each in set(layers)}
    sizes = sorted((size_of[each] for each in layers), reverse=True)
    ahead = sizes[: 1 + plan.prefetch]
    if not plan.implementation.copies_shards:
        # Gathered where they are read, some ahead.
        return ends_whole + sum(ahead if plan.reshard_after_forward else sizes)
    whole = ends_whole + sum(sizes[:1] if plan.reshard_after_forward else sizes)
    return whole + max(ends_whole, sum(ahead)) + _waiting_bytes(plan, ends, layers)


def reduction_bytes(plan: Plan, ends: Held, held: Held, *, is_embedding: bool = False) -> int:
    """Whole gradients of ZeRO-3 while a layer's backward pass runs, or the embedding's.

    Args:
        plan: a plan whose parameters are sharded.
        ends: parameters of the embedding and the output on this stage.
        held: parameters of the layer.
        is_embedding: whether it is the embedding's pass instead, whose gradients are as large as
            its part of `ends`, and after which all of `ends` is reduced.
    """
    reduced = format_bytes(plan.precision.reduced)
    computed = format_bytes(plan.precision.activations)
    if _waiting_bytes(plan, ends, (held,)):
        return round(computed * (held.dense + held.experts))
    if is_embedding:
        return round((computed + reduced) * ends.dense)
    count = held.dense + held.experts
    if not plan.implementation.copies_shards:
        return round(reduced * count)
    # Its own and what the reduction before still reads; the output's gradient waits for the
    # embedding's, which is of one group with it.
    return round(computed * (count + ends.dense / 2) + 2 * reduced * count)


def _waiting_bytes(plan: Plan, ends: Held, layers: tuple[Held, ...]) -> int:
    if plan.pipeline == 1 or not plan.implementation.copies_shards:
        return 0
    counts = sum(each.dense + each.experts for each in (ends, *layers))
    return round(format_bytes(plan.precision.reduced) * counts)


def dummy_gradient_bytes(model: Transformer, plan: Plan) -> int:
    """One unused gradient for every shape of weights in the model's layers."""
    number = format_bytes(plan.precision.activations)
    shapes = _mixer_shapes(model, plan)
    widths = []
    if any(layer.is_dense for layer in model.layers):
        widths.append(model.feed_forward.width // plan.tensor)
    if model.experts is not None and any(layer.has_experts for layer in model.layers):
        experts = model.experts
        widths.append(experts.width // expert_tensor_size(plan))
        widths.append(experts.num_shared * experts.shared_width // plan.tensor)
    for width in filter(None, widths):
        up = width * (2 if model.feed_forward.is_gated else 1)
        shapes |= {(up, model.hidden), (model.hidden, width)}
    return round(sum(rows * columns for rows, columns in shapes) * number)


def _mixer_shapes(model: Transformer, plan: Plan) -> set[tuple[int, int]]:
    attention, hidden = model.attention, model.hidden
    if model.states is not None:
        own = Setting(model, plan).own_states
        found = {(own.projected, hidden), (hidden, own.inner)}
        rest = replace(model, states=None)
        return found | (_mixer_shapes(rest, plan) if attention.num_heads else set())
    heads, latent = attention.num_heads, attention.latent
    output = (hidden, heads * attention.value_size // plan.tensor)
    if latent is None:
        rows = (heads + 2 * attention.num_kv_heads) * attention.head_size // plan.tensor
        return {(rows, hidden), output}
    queries = heads * attention.score_size // plan.tensor
    values = heads * (attention.head_size + attention.value_size) // plan.tensor
    # The projections down are not divided.
    query = (
        {(latent.query_rank, hidden), (queries, latent.query_rank)}
        if latent.query_rank
        else {(queries, hidden)}
    )
    return query | {
        (latent.rank + latent.rotary_size, hidden),
        (values, latent.rank),
        output,
    }

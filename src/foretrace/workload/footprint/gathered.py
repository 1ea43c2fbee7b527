"""Buffers that stay, or that other streams hold: of libraries, of stages' messages, of ZeRO-3.

PyTorch's allocator keeps a pool for each stream, and memory that one stream has reserved serves no
other. PyTorch's FSDP gathers and reduces on streams of its own, so the most that each of them needs
counts in full, whenever in the step that is.
"""

from __future__ import annotations

from foretrace.workload.footprint.sizes import format_bytes
from foretrace.workload.footprint.states import Held, working_bytes
from foretrace.workload.models.transformer import FeedForward, Transformer
from foretrace.workload.plan.plan import Plan


def gathered_bytes(plan: Plan, ends: Held, layers: tuple[Held, ...]) -> int:
    """Buffers of ZeRO-3 on a rank: whole parameters, and gradients before they are scattered.

    Args:
        plan: a plan whose parameters are sharded.
        ends: parameters of the embedding and the output on this stage, gathered as one group
            that stays from the forward pass to the backward pass.
        layers: those of each layer of the stage; each is a group.

    Source:
        PyTorch 2.6, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: copies in and out,
        streams; _fsdp_param_group.py: one reduction is waited for before the next but one.
        torchtitan 9dec370: groups.
    """
    ends_whole = working_bytes(ends, plan)
    sizes = sorted((working_bytes(each, plan) for each in layers), reverse=True)
    ahead = sizes[: 1 + plan.prefetch]
    whole = ends_whole + (sum(ahead) if plan.reshard_after_forward else sum(sizes))
    reduced = format_bytes(plan.precision.reduced)
    counts = sorted((each.dense + each.experts for each in layers), reverse=True)
    if not plan.implementation.copies_shards:
        # Gathered where they are read; the gradients of one group at a time are whole.
        largest = max(ends.dense, *counts[:1], 0)
        return whole + round(reduced * largest)
    received = max(ends_whole, sum(ahead))
    scattered = round(reduced * (ends.dense + sum(counts[:2])))
    return whole + received + scattered


def dummy_gradient_bytes(model: Transformer, plan: Plan) -> int:
    """One unused gradient for every shape of a layer's weights.

    Of a model with experts only the attention's: grouped products have none of their own.
    """
    attention, hidden = model.attention, model.hidden
    number = format_bytes(plan.precision.activations)
    inputs = hidden * attention.head_size * (attention.num_heads + 2 * attention.num_kv_heads)
    output = hidden * attention.num_heads * attention.value_size
    shapes = {(inputs // plan.tensor, 0), (output // plan.tensor, 1)}
    if model.experts is None:
        shapes |= _feed_forward_shapes(model.feed_forward, hidden, plan)
    return round(sum(size for size, _ in shapes) * number)


def _feed_forward_shapes(
    feed_forward: FeedForward, hidden: int, plan: Plan
) -> set[tuple[int, int]]:
    down = hidden * feed_forward.width // plan.tensor
    return {(down * (2 if feed_forward.is_gated else 1), 2), (down, 3)}

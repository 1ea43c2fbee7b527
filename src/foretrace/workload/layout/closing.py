"""What ends a step: gradients reduced that were not yet, agreements, and the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from foretrace.graph import Phase
from foretrace.workload.blocks.block import Block, Item, ModelBlocks, Operator, ParameterCount
from foretrace.workload.blocks.optimizer import optimizer_block
from foretrace.workload.exchanges.gradients import (
    agreement,
    buckets_of,
    reduction,
    shard_count,
    total_parameters,
)
from foretrace.workload.layout.chunks import Chunk
from foretrace.workload.layout.stage import StageProgram
from foretrace.workload.plan.groups import group_size
from foretrace.workload.plan.plan import Group, Plan, Sharding

Optimizer = Callable[[int, Plan], Block]  # of so many parameters that one rank updates
_NORM = "norm"  # in the name of the operator whose result all ranks add up
_ADDED_DTYPE = "fp32"  # of the norm of all gradients: Megatron, torch.nn.utils.clip_grad_norm_


def close(program: StageProgram, blocks: ModelBlocks, optimizer: Optimizer | None) -> None:
    """Write what a stage does behind its last unit.

    Args:
        program: of the stage.
        blocks: the model's.
        optimizer: makes the block of the update; PyTorch's Adam if left out.
    """
    schedule = program.schedule
    own = [
        program.chunks[chunk]
        for chunk, stage in enumerate(schedule.stage_of_chunk)
        if stage == program.stage
    ]
    _reduce(program, own)
    _agree_with_mirror(program, own)
    _agree_on_table(program, own, blocks)
    parts = [part for chunk in own for part in chunk.parts]
    update = _update(total_parameters(parts), program, optimizer)
    program.follow(program.templates.stretch(update), is_barrier=True)
    program.gatherings.behind(program.last_operator)


def _update(
    parameters: ParameterCount, program: StageProgram, optimizer: Optimizer | None
) -> Block:
    """The optimizer's block, in which all ranks agree on the norm of gradients."""
    plan, pools = program.plan, program.templates.pools
    own = shard_count(parameters, pools)
    if optimizer is not None:
        block = optimizer(own, plan)
    else:
        keeps_all = plan.sharding in {Sharding.NONE, Sharding.ZERO1}
        kept = parameters.dense + parameters.expert if keeps_all else own
        block = optimizer_block(own, plan, num_gradients=kept)
    is_norm = [isinstance(item, Operator) and _NORM in item.name for item in block.items]
    if group_size(plan, Group.ALL) == 1 or not any(is_norm):
        return block
    return with_sum(block, is_norm.index(True))


def with_sum(block: Block, place: int) -> Block:
    """The block with a sum over all ranks behind one of its items."""
    own = agreement(1, Group.ALL, _ADDED_DTYPE, "sum of gradient norms").items[0]

    def moved(item: Item, *more: int) -> Item:
        after = (*(one if one <= place else one + 1 for one in item.after), *more)
        return replace(item, after=after)

    behind = block.items[place + 1 :]
    items = (
        *block.items[: place + 1],
        replace(own, phase=Phase.OPTIMIZER, after=(place,)),
        *(moved(item, *([place + 1] if at == 0 else [])) for at, item in enumerate(behind)),
    )
    return Block(block.part, items)


def _reduce(program: StageProgram, chunks: Sequence[Chunk]) -> None:
    """Gradients that were to be reduced behind all backward passes."""
    plan = program.plan
    if plan.overlap.gradients or plan.sharding in {Sharding.ZERO2, Sharding.ZERO3}:
        return
    for chunk in chunks:
        for bucket in buckets_of(chunk.parts[::-1], program.templates.pools, plan):
            block = reduction(bucket.num_parameters, bucket.pool, plan)
            program.follow(program.templates.stretch(block))


def _agree_with_mirror(program: StageProgram, chunks: Sequence[Chunk]) -> None:
    """Where two stages hold the same chunks, their gradients are added up: DualPipe."""
    plan, pools = program.plan, program.templates.pools
    if group_size(plan, Group.MIRROR) == 1:
        return
    for chunk in sorted(chunks, key=lambda chunk: chunk.place):
        count = shard_count(total_parameters(chunk.parts), pools)
        dtype = plan.precision.reduced
        block = agreement(count, Group.MIRROR, dtype, "gradients of mirrored stages")
        program.follow(program.templates.stretch(block), is_barrier=True)


def _agree_on_table(program: StageProgram, chunks: Sequence[Chunk], blocks: ModelBlocks) -> None:
    """The first and the last stage add up the gradients of the table they share.

    A stage that holds both ends of the model has the table once.
    """
    plan = program.plan
    last = max(len(route) for route in program.schedule.routes) - 1
    ends = {chunk.place for chunk in chunks} & {0, last}
    if not blocks.tied_parameters or plan.pipeline == 1 or len(ends) != 1:
        return
    dtype = plan.precision.gradients
    count = blocks.tied_parameters
    block = agreement(count, Group.EMBEDDING, dtype, "gradients of the tied table")
    program.follow(program.templates.stretch(block), is_barrier=True)

"""What ends a step: gradients reduced that were not yet, agreements, and the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretrace.graph import Phase
from foretrace.workload.blocks.block import Block, Blocks, Exchange
from foretrace.workload.layout.chunks import Chunk
from foretrace.workload.layout.data_parallel import (
    agreement,
    buckets_of,
    reduction,
    shard_count,
    total_parameters,
)
from foretrace.workload.layout.stage import StageProgram
from foretrace.workload.plan.groups import group_size
from foretrace.workload.plan.plan import Group, Plan, Sharding

Optimizer = Callable[[int, Plan], Block]  # of so many parameters that one rank updates
_ADDED_DTYPE = "fp32"  # of the norm of all gradients: Megatron, torch.nn.utils.clip_grad_norm_


def close(program: StageProgram, blocks: Blocks, optimizer: Optimizer | None) -> None:
    """Write what a stage does behind its last unit."""
    schedule = program.schedule
    own = [
        program.chunks[chunk]
        for chunk, stage in enumerate(schedule.stage_of_chunk)
        if stage == program.stage
    ]
    _reduce(program, own)
    _agree_with_mirror(program, own)
    _agree_on_table(program, own, blocks)
    if optimizer is None:
        return
    parts = [part for chunk in own for part in chunk.parts]
    num_parameters = shard_count(total_parameters(parts), program.templates.pools)
    update = optimizer(num_parameters, program.plan)
    is_agreed = any(isinstance(item, Exchange) for item in update.items)
    if not is_agreed and group_size(program.plan, Group.ALL) > 1:
        norm = agreement(1, Group.ALL, _ADDED_DTYPE, Phase.OPTIMIZER, "norm of gradients")
        program.follow(program.templates.block(norm), is_barrier=True)
    program.follow(program.templates.block(update), is_barrier=True)
    program.gatherings.behind_optimizer()


def _reduce(program: StageProgram, chunks: Sequence[Chunk]) -> None:
    """Gradients that were to be reduced behind all backward passes."""
    plan = program.plan
    if plan.overlap.gradients or plan.sharding in {Sharding.ZERO2, Sharding.ZERO3}:
        return
    for chunk in chunks:
        for bucket in buckets_of(chunk.parts[::-1], program.templates.pools, plan):
            block = reduction(bucket.num_parameters, bucket.pool, plan)
            program.follow(program.templates.block(block))


def _agree_with_mirror(program: StageProgram, chunks: Sequence[Chunk]) -> None:
    """Where two stages hold the same chunks, their gradients are added up: DualPipe."""
    plan, pools = program.plan, program.templates.pools
    if group_size(plan, Group.MIRROR) == 1:
        return
    for chunk in sorted(chunks, key=lambda chunk: chunk.place):
        count = shard_count(total_parameters(chunk.parts), pools)
        dtype = plan.precision.reduced
        block = agreement(count, Group.MIRROR, dtype, Phase.BACKWARD, "gradients of mirrored stages")
        program.follow(program.templates.block(block), is_barrier=True)


def _agree_on_table(program: StageProgram, chunks: Sequence[Chunk], blocks: Blocks) -> None:
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
    block = agreement(count, Group.EMBEDDING, dtype, Phase.BACKWARD, "gradients of the tied table")
    program.follow(program.templates.block(block), is_barrier=True)

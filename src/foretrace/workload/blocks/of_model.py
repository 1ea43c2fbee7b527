"""`blocks_of_model`: any model under a plan becomes blocks."""

from __future__ import annotations

from dataclasses import replace

from foretrace.base import WorkloadError
from foretrace.operators import ModuleProgram
from foretrace.workload.blocks.block import Block, ModelBlocks, Passes
from foretrace.workload.blocks.diffusion import blocks_of_diffusion
from foretrace.workload.blocks.of_program import blocks_of_program
from foretrace.workload.blocks.recommender import blocks_of_recommender
from foretrace.workload.blocks.transformer import blocks_of_transformer
from foretrace.workload.exchanges.exchange import Exchange
from foretrace.workload.models.diffusion import Diffusion
from foretrace.workload.models.parameters import Model
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.models.transformer import Transformer
from foretrace.workload.plan.groups import expert_tensor_size
from foretrace.workload.plan.plan import Channels, Group, Plan, Sharding


def blocks_of_model(model: Model | ModuleProgram, plan: Plan) -> ModelBlocks:
    """What one rank does for one microbatch of a model, or a module of its own, under a plan.

    Raises:
        WorkloadError: for a model of which only totals are known, and for sizes that the plan's
            ranks cannot divide.
    """
    if isinstance(model, Transformer):
        return _in_channels(blocks_of_transformer(model, plan), plan)
    if isinstance(model, Recommender):
        return blocks_of_recommender(model, plan)
    if isinstance(model, Diffusion):
        return _in_channels(blocks_of_diffusion(model, plan), plan)
    if isinstance(model, ModuleProgram):
        return _in_channels(blocks_of_program(model, plan), plan)
    raise WorkloadError(
        f"model {model.name!r} is a {model.kind}, of which only totals are known: describe its "
        "shape in a file of its own, or take another"
    )


def _in_channels(blocks: ModelBlocks, plan: Plan) -> ModelBlocks:
    """The blocks, whose exchanges take the channels that the plan states; alike stay one object."""
    if plan.channels == Channels():
        return blocks
    known: dict[int, Passes] = {}

    def of_block(block: Block) -> Block:
        items = (
            replace(item, channels=plan.channels.of(item.group))
            if isinstance(item, Exchange)
            else item
            for item in block.items
        )
        return replace(block, items=tuple(items))

    def of_part(part: Passes | None) -> Passes | None:
        if part is None:
            return None
        if id(part) not in known:
            halves = part.input_backward, part.weight_backward
            known[id(part)] = replace(
                part,
                forward=of_block(part.forward),
                backward=of_block(part.backward),
                input_backward=halves[0] and of_block(halves[0]),
                weight_backward=halves[1] and of_block(halves[1]),
            )
        return known[id(part)]

    return replace(
        blocks,
        embedding=of_part(blocks.embedding),
        layers=tuple(one for one in map(of_part, blocks.layers) if one is not None),
        head=of_part(blocks.head),
        transfer_channels=plan.channels.of(Group.PIPELINE),
    )


def plan_of_blocks(plan: Plan) -> Plan:
    """A plan of the fewest ranks and microbatches that has the same blocks.

    Plans with the same one share their blocks: it keeps all that blocks read.
    """
    ranks = plan.tensor * plan.context
    data = -(-plan.expert * expert_tensor_size(plan) // ranks)
    sharding = plan.sharding
    return replace(
        plan,
        data=data,
        global_batch=min(plan.num_microbatches, 2) * plan.micro_batch * data,
        pipeline=min(plan.pipeline, 2),  # a pipeline has the table at both ends
        schedule="1f1b",
        num_chunks=1,
        layers_of_chunk=None,
        name="",
        path=None,
        contiguous=None,
        outer_data=None,
        expert_stride=None,
        sharding=Sharding.NONE if sharding is Sharding.ZERO1 else sharding,
        shard_ranks=None,
        # What is behind all units.
        overlap=replace(plan.overlap, parameters=False, gradients=False),
    )

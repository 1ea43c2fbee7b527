"""`blocks_of_model`: any model under a plan becomes blocks."""

from __future__ import annotations

from dataclasses import replace

from foretrace.base import WorkloadError
from foretrace.operators import ModuleProgram
from foretrace.workload.blocks.block import ModelBlocks
from foretrace.workload.blocks.diffusion import blocks_of_diffusion
from foretrace.workload.blocks.of_program import blocks_of_program
from foretrace.workload.blocks.recommender import blocks_of_recommender
from foretrace.workload.blocks.transformer import blocks_of_transformer
from foretrace.workload.models.diffusion import Diffusion
from foretrace.workload.models.parameters import Model
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.models.transformer import Transformer
from foretrace.workload.plan.groups import expert_tensor_size
from foretrace.workload.plan.plan import Plan, Sharding


def blocks_of_model(model: Model | ModuleProgram, plan: Plan) -> ModelBlocks:
    """What one rank does for one microbatch of a model, or a module of its own, under a plan.

    Raises:
        WorkloadError: for a model of which only totals are known, and for sizes that the plan's
            ranks cannot divide.
    """
    if isinstance(model, Transformer):
        return blocks_of_transformer(model, plan)
    if isinstance(model, Recommender):
        return blocks_of_recommender(model, plan)
    if isinstance(model, Diffusion):
        return blocks_of_diffusion(model, plan)
    if isinstance(model, ModuleProgram):
        return blocks_of_program(model, plan)
    raise WorkloadError(
        f"model {model.name!r} is a {model.kind}, of which only totals are known: describe its "
        "shape in a file of its own, or take another"
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

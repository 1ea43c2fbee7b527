"""`blocks_of_model`: any model under a plan becomes blocks."""

from __future__ import annotations

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
from foretrace.workload.plan.plan import Plan


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

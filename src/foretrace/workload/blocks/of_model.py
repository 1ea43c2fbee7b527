"""`blocks_of_model`: any model under a plan becomes blocks."""

from __future__ import annotations

from foretrace.base import WorkloadError
from foretrace.workload.blocks.block import Blocks
from foretrace.workload.blocks.transformer import blocks_of_transformer
from foretrace.workload.models.parameters import Model
from foretrace.workload.models.transformer import Transformer
from foretrace.workload.plan.plan import Plan


def blocks_of_model(model: Model, plan: Plan) -> Blocks:
    """What one rank does for one microbatch of a model under a plan.

    Raises:
        WorkloadError: for a model of which only totals are known, and for sizes that the plan's
            ranks cannot divide.
    """
    if isinstance(model, Transformer):
        return blocks_of_transformer(model, plan)
    raise WorkloadError(
        f"model {model.name!r} is a {model.kind}, whose shapes are not known as blocks: take a "
        "transformer"
    )

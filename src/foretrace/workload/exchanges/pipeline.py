"""What stages of a pipeline hand over."""

from __future__ import annotations

from foretrace.base import CollectiveKind
from foretrace.workload.exchanges.exchange import Exchange, exchange
from foretrace.workload.plan.plan import Group, Plan


def handed_over(plan: Plan, count: int) -> Exchange:
    """Activations of one microbatch on their way to the next stage, or their gradients back.

    Args:
        plan: of the job.
        count: numbers that pass from layer to layer, of all ranks of TENSOR.
    """
    own = count // (plan.tensor if plan.sequence_parallel else 1)
    size = (own, plan.precision.activations)
    return exchange("activations", CollectiveKind.SEND_RECV, Group.PIPELINE, size)

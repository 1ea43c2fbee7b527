"""`roofline_s`: a step by the data sheet: its FLOPs at the peak, and its pipeline's bubble.

What a calculator on the back of an envelope says, as something to beat. It gets as many fitted
constants as the model it stands beside.
"""

from __future__ import annotations

from foretrace.machine import Machine
from foretrace.workload import Convention, Model, Plan, flops

_NS_PER_S = 1e9


def roofline_s(model: Model, plan: Plan, machine: Machine) -> float | None:
    """Seconds of a step; `None` if the chip's peak in that number format is not known."""
    peak = machine.chip.peak_flops_per_ns(plan.precision.products)
    if peak is None:
        return None
    counted = flops(model, plan.sequence, convention=Convention.CAUSAL, recompute=plan.recompute)
    tokens = plan.global_batch * plan.sequence / plan.num_ranks
    busy_ns = (counted.training + counted.recompute) * tokens / peak
    bubble = (plan.pipeline - 1) / (plan.num_chunks * plan.num_microbatches)
    return busy_ns * (1 + bubble) / _NS_PER_S

"""The dense feed-forward part of a layer, and experts that every token passes."""

from __future__ import annotations

from foretrace.workload.blocks.linear import Weight, columns, rows_divided
from foretrace.workload.blocks.pointwise import activation_step
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.blocks.steps import Step
from foretrace.workload.plan.plan import AdaptedModule


def feed_forward_steps(
    setting: Setting, width: int, *, label: str = "", is_last: bool = True
) -> list[Step]:
    """From the normed input to the sum over ranks of TENSOR.

    Args:
        setting: model and plan.
        width: of the hidden layer, over all ranks.
        label: put before each name.
        is_last: whether its last product is the layer's.
    """
    said, hidden = setting.model.feed_forward, setting.model.hidden
    own = setting.columns(width)
    prefix = f"{label} " if label else ""
    count = 2 if said.is_gated else 1
    weights: tuple[Weight, ...] = (
        Weight(f"{prefix}up projection", hidden, count * own, said.has_bias, AdaptedModule.UP),
    )
    if said.is_gated and not setting.plan.implementation.fuses_projections:
        weights = (
            Weight(f"{prefix}gate projection", hidden, own, said.has_bias, AdaptedModule.UP),
            Weight(f"{prefix}up projection", hidden, own, said.has_bias, AdaptedModule.UP),
        )
    down = Weight(f"{prefix}down projection", own, hidden, said.has_bias, AdaptedModule.DOWN)
    return [
        columns(setting, weights),
        activation_step(setting, setting.tokens, own, is_gated=said.is_gated),
        rows_divided(setting, down, is_last=is_last),
    ]

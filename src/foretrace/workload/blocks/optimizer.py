"""The optimizer's step on the parameters that a rank updates."""

from __future__ import annotations

from foretrace.graph import Part, Phase
from foretrace.workload.blocks.block import Block, Operator
from foretrace.workload.blocks.calls import cast, elementwise, fused, total, zeros
from foretrace.workload.blocks.signatures import OperatorCall, array, call, num_bytes
from foretrace.workload.blocks.steps import operator
from foretrace.workload.plan.plan import Plan, Sharding

_WIDE = "fp32"
_NORM = "norm"  # in the name of the operator whose result all ranks add up


def optimizer_block(num_parameters: int, plan: Plan, *, num_gradients: int | None = None) -> Block:
    """Norm of gradients, clipping, Adam, and what products read made anew.

    The sum of norms over ranks is not in it. Products' eight-bit weights are made here, once a
    step, unless parameters are gathered anew for every use.

    Args:
        num_parameters: that this rank updates: its share where states are divided.
        plan: number formats, and whether the update is one kernel.
        num_gradients: that this rank holds and sets to zero; as many as it updates if left out.
    """
    shape, precision = (num_parameters,), plan.precision
    kept = num_parameters if num_gradients is None else num_gradients
    # Two moments in as many bytes as a copy in fp32 takes: parameters themselves are updated.
    is_narrow = num_bytes(1, precision.parameters) < num_bytes(1, _WIDE)
    has_copy = precision.optimizer_bytes > num_bytes(1, _WIDE)
    updated = precision.parameters if is_narrow and not has_copy else _WIDE
    found: list[tuple[str, OperatorCall]] = [
        ("gradient norm", total("aten::linalg_vector_norm", num_parameters, precision.gradients)),
        ("clipping", elementwise("aten::mul", shape, precision.gradients)),
        *_adam(shape, updated, fuses=plan.implementation.fuses_optimizer),
    ]
    if updated != precision.parameters and is_narrow:
        found.append(("cast of parameters", cast(shape, _WIDE, precision.parameters)))
    is_frozen = plan.adapters is not None  # products' weights stay as they are
    if precision.is_quantised and plan.sharding is not Sharding.ZERO3 and not is_frozen:
        eight = cast(shape, precision.parameters, precision.products)
        found += [("quantised weights", eight), ("quantised weights, transposed", eight)]
    # Where no product adds to them they are dropped: `Optimizer.zero_grad` since PyTorch 2.0.
    if plan.sharding is not Sharding.ZERO3 and plan.implementation.fuses_gradients:
        found.append(("gradients to zero", zeros((kept,), precision.gradients)))
    items = tuple(operator(label, one) for label, one in found)
    return Block(
        Part.OPTIMIZER,
        tuple(type(one)(one.label, one.name, one.signature, Phase.OPTIMIZER) for one in items),
    )


def norm_place(block: Block) -> int | None:
    """Place of the item whose result all ranks add up, the norm of gradients; `None`: none is."""
    is_norm = [isinstance(item, Operator) and _NORM in item.name for item in block.items]
    return is_norm.index(True) if any(is_norm) else None


def _adam(shape: tuple[int, ...], dtype: str, *, fuses: bool) -> list[tuple[str, OperatorCall]]:
    """AdamW on copies of a format: in one pass, or operator by operator over all tensors at once.

    Source:
        torch/optim/adamw.py, `_multi_tensor_adamw`, PyTorch 2.13.
    """
    if fuses:
        # Parameters, gradients and two moments are read, all but gradients written.
        return [("Adam", fused(shape, dtype, reads=4, writes=3))]
    one = array(shape, dtype)
    return [
        ("weight decay", call("aten::mul", one)),
        ("first moment", call("aten::lerp", one, one)),
        ("second moment", call("aten::mul", one)),
        ("second moment, squares", call("aten::addcmul", one, one, one)),
        ("root", call("aten::sqrt", one)),
        ("bias correction", call("aten::div", one)),
        ("epsilon", call("aten::add", one)),
        ("update", call("aten::addcdiv", one, one, one)),
    ]

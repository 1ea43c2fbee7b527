"""Steps that memory bounds: norms, residual sums, activation functions, rotary positions.

As one kernel each where software has one (Transformer Engine, Apex, Triton, a compiler), else
as the operators that eager PyTorch runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.workload.blocks.block import Operator
from foretrace.workload.blocks.calls import (
    cast,
    elementwise,
    fused,
    gathered_copy,
    norm,
    norm_backward,
    row_sum,
    scaled_rows,
    zeros,
)
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.blocks.signatures import OperatorCall, array, call, num_bytes
from foretrace.workload.blocks.steps import Items, Step, operator
from foretrace.workload.models.transformer import Norm

_WIDE = "fp32"


@dataclass(frozen=True)
class Joint:
    """How a norm stands to the residual stream."""

    sums_before: bool = False  # the sum before it is done in its kernel
    sums_gradients: bool = True  # its input has another user, whose gradient is added


def stream_norm_steps(setting: Setting, label: str, joint: Joint | None = None) -> list[Step]:
    """A norm of the residual stream; a wider one is cast to what products take before it.

    Source:
        mosaicml/llm-foundry, llmfoundry/models/layers/norm.py, `LPLayerNorm`.
    """
    joint = joint or Joint()
    sizes = shape = (setting.own_tokens, setting.model.hidden)
    if num_bytes(1, setting.kept) == num_bytes(1, setting.made):
        return [norm_step(setting, label, sizes, joint)]
    to = operator("cast of activations", cast(shape, setting.kept, setting.made))
    back = operator("cast of activations' gradient", cast(shape, setting.made, setting.kept))
    summed = (residual_gradient_sum(setting),) if joint.sums_gradients else ()
    alone = Joint(sums_gradients=False)
    return [Step((to,), (back, *summed)), norm_step(setting, label, sizes, alone)]


def norm_step(
    setting: Setting, label: str, sizes: tuple[int, int], joint: Joint | None = None
) -> Step:
    """A norm over rows of a width; `joint`: with the residual stream, if it stands beside one."""
    forward = _norm_forward(setting, label, sizes, joint)
    backward = _norm_backward(setting, label, sizes, joint)
    return Step(forward, backward)


def joins_sums(setting: Setting) -> bool:
    """Whether a residual sum and the norm after it are one kernel: a compiler makes it so."""
    said = setting.plan.implementation
    is_one_format = num_bytes(1, setting.kept) == num_bytes(1, setting.made)
    return is_one_format and said.fuses_residuals and said.fuses_norms and said.launch == "compiled"


def _norm_forward(
    setting: Setting, label: str, sizes: tuple[int, int], joint: Joint | None
) -> Items:
    rows, width = sizes
    kept, name = setting.made, _norm_name(setting)
    is_fused = setting.plan.implementation.fuses_norms
    if not is_fused and setting.model.norm is Norm.RMS:
        return _composed(label, rows, width, kept)
    count = 2 if setting.model.norm is Norm.LAYER else 1
    if joint is not None and joint.sums_before:
        # Both summands are read; the sum is written beside the result, and counts as read here.
        data = array((rows, width), kept)
        parameters = [array((width,), kept)] * count
        one = call(name, data, f"[{width}]", data, data, *parameters)
        return (operator(f"residual sum and {label}", one),)
    return (operator(label, norm(name, rows, width, kept, num_parameters=count)),)


def _norm_backward(
    setting: Setting, label: str, sizes: tuple[int, int], joint: Joint | None
) -> Items:
    rows, width = sizes
    kept, name = setting.made, _norm_name(setting)
    is_fused = setting.plan.implementation.fuses_norms
    count = 2 if setting.model.norm is Norm.LAYER else 1
    found: list[Operator] = []
    is_added = joint is not None and joint.sums_gradients
    if is_fused and is_added and joins_sums(setting):
        data = array((rows, width), kept)
        statistics = array((rows, 1), _WIDE)
        parameters = [array((width,), kept)] * count
        one = call(f"{name}_backward", data, data, f"[{width}]", statistics, data, *parameters)
        return (operator(f"{label} gradient and sum", one),)
    if not is_fused and setting.model.norm is Norm.RMS:
        found.extend(_composed_backward(label, rows, width, kept))
    else:
        one = norm_backward(f"{name}_backward", rows, width, kept, num_parameters=count)
        found.append(operator(f"{label} gradient", one))
        if not is_fused:
            # PyTorch reads gradient and input once more for the parameters' gradients.
            one = row_sum((2, rows, width), kept, 1)
            found.append(operator(f"{label} parameters' gradient", one))
    if is_added:
        found.append(operator("residual gradient sum", _sum(setting, rows, width)))
    return tuple(found)


def _norm_name(setting: Setting) -> str:
    is_rms = setting.model.norm is Norm.RMS
    return "aten::_fused_rms_norm" if is_rms else "aten::native_layer_norm"


def _composed(label: str, rows: int, width: int, kept: str) -> Items:
    """Root mean square as Llama's code writes it: in fp32, then back.

    Source:
        meta-llama/llama, llama/model.py, `RMSNorm`.
    """
    shape = (rows, width)
    each: list[tuple[str, OperatorCall]] = [
        ("squares", elementwise("aten::pow", shape, _WIDE)),
        ("mean", call("aten::mean", array(shape, _WIDE), "[1]", "True")),
        ("epsilon", elementwise("aten::add", (rows, 1), _WIDE)),
        ("root", elementwise("aten::rsqrt", (rows, 1), _WIDE)),
        ("scaled rows", scaled_rows(shape, _WIDE)),
        ("cast", cast(shape, _WIDE, kept)),
        ("weight", scaled_rows(shape, kept, by_column=True)),
    ]
    if kept != _WIDE:
        each.insert(0, ("cast to fp32", cast(shape, kept, _WIDE)))
    else:
        del each[5]
    return tuple(operator(f"{label}: {what}", one) for what, one in each)


def _composed_backward(label: str, rows: int, width: int, kept: str) -> list[Operator]:
    shape = (rows, width)
    each: list[tuple[str, OperatorCall]] = [
        ("weight gradient", elementwise("aten::mul", shape, kept, reads=2)),
        ("weight gradient sum", row_sum(shape, kept, 0)),
        ("gradient by weight", scaled_rows(shape, kept, by_column=True)),
        ("cast to fp32", cast(shape, kept, _WIDE)),
        ("gradient of roots", elementwise("aten::mul", shape, _WIDE, reads=2)),
        ("gradient of roots, sum", row_sum(shape, _WIDE, 1)),
        ("gradient by roots", scaled_rows(shape, _WIDE)),
        ("root power", elementwise("aten::pow", (rows, 1), _WIDE)),
        ("root factor", elementwise("aten::mul", (rows, 1), _WIDE)),
        ("root gradient", elementwise("aten::mul", (rows, 1), _WIDE, reads=2)),
        # What is one number a row is read as if it were a row.
        ("gradient of the mean", call("aten::div", array(shape, _WIDE, (1, 0)))),
        ("power of squares", elementwise("aten::pow", shape, _WIDE)),
        ("factor of squares", elementwise("aten::mul", shape, _WIDE)),
        ("gradient of squares", elementwise("aten::mul", shape, _WIDE, reads=2)),
        ("sum", elementwise("aten::add", shape, _WIDE, reads=2)),
        ("cast", cast(shape, _WIDE, kept)),
    ]
    casts = ("cast to fp32", "cast")
    return [
        operator(f"{label} gradient: {what}", one)
        for what, one in each
        if kept != _WIDE or what not in casts
    ]


def residual_step(setting: Setting, *, has_bias: bool, is_last: bool = False) -> Step:
    """The sum of a branch and the residual stream; biases that tensor ranks left are added."""
    rows, width = setting.own_tokens, setting.model.hidden
    found = [operator("residual sum", _sum(setting, rows, width))]
    is_fused = setting.plan.implementation.fuses_residuals
    if has_bias and setting.plan.tensor > 1 and not is_fused:
        bias = call("aten::add", array((rows, width), setting.kept), array((width,), setting.kept))
        found.insert(0, operator("bias", bias))
    return Step(tuple(found), is_needed_again=not is_last)


def residual_gradient_sum(setting: Setting) -> Operator:
    """The gradient of a branch's input and the residual stream's."""
    return operator(
        "residual gradient sum", _sum(setting, setting.own_tokens, setting.model.hidden)
    )


def soft_cap_step(setting: Setting, label: str, shape: tuple[int, ...]) -> Step:
    """A tangent of numbers divided by the cap, times the cap.

    Source:
        Gemma Team, "Gemma 2", arXiv:2408.00118, section 2; NVIDIA-NeMo/Megatron-Bridge,
        models/gemma/modules.py, `logit_softcapping`.
    """
    dtype = setting.made
    if setting.plan.implementation.fuses_activations:
        forward = (operator(f"cap of {label}", fused(shape, dtype, reads=1)),)
        return Step(forward, (operator(f"cap of {label}, gradient", fused(shape, dtype, reads=2)),))
    scaled = elementwise("aten::mul", shape, dtype)
    tangent = elementwise("aten::tanh", shape, dtype)
    gradient = elementwise("aten::tanh_backward", shape, dtype, reads=2)
    return Step(
        tuple(operator(f"cap of {label}", one) for one in (scaled, tangent, scaled)),
        tuple(operator(f"cap of {label}, gradient", one) for one in (scaled, gradient, scaled)),
    )


def clamp_step(setting: Setting, rows: int, width: int) -> Step:
    """Halves of what a gate takes are kept within limits and joined again, before its kernel.

    A compiler joins that with the gate; so do kernels that a captured graph launches.

    Source:
        NVIDIA/Megatron-LM, megatron/core/fusions/fused_bias_geglu.py,
        `weighted_bias_quick_geglu_impl`; `ScaledClampedQGeGLU` of Transformer Engine for graphs.
    """
    said = setting.plan.implementation
    if not setting.model.feed_forward.is_clamped or said.fuses_clamps or said.launch != "eager":
        return Step()
    dtype = setting.made
    half = array((rows, width), dtype, (2 * width, 1))
    whole = array((rows, 2 * width), dtype)
    within = call("aten::clamp", half)
    gradient = call("aten::mul", half, half)  # by 0 or 1
    joined = call("aten::copy_", whole, whole, "False")
    return Step(
        (
            *(operator(f"clamped {what}", within) for what in ("gate", "up")),
            operator("gate and up joined", joined),
        ),
        (
            *(operator(f"clamped {what} gradient", gradient) for what in ("gate", "up")),
            operator("gate and up gradients joined", joined),
        ),
    )


def _sum(setting: Setting, rows: int, width: int) -> OperatorCall:
    return elementwise("aten::add", (rows, width), setting.kept, reads=2)


def activation_step(setting: Setting, rows: int, width: int, *, is_gated: bool) -> Step:
    """SwiGLU of two products' results, or GELU of one's.

    Kernel by kernel on the result of one product, gate and up are views of its halves, whose
    gradients are joined.
    """
    shape, dtype = (rows, width), setting.made
    is_fused = setting.plan.implementation.fuses_activations
    if is_gated and is_fused:
        return Step(
            (operator("SwiGLU", fused(shape, dtype, reads=2)),),
            (operator("SwiGLU gradient", fused(shape, dtype, reads=3, writes=2)),),
        )
    if is_gated:
        alone = array(shape, dtype)
        is_joint = setting.plan.implementation.fuses_projections
        half = array(shape, dtype, (2 * width, 1)) if is_joint else alone
        whole = array((rows, 2 * width), dtype)
        joined = operator(
            "gate and up gradients joined", call("aten::copy_", whole, whole, "False")
        )
        return Step(
            (
                operator("SiLU", call("aten::silu", half)),
                operator("gate times up", call("aten::mul", alone, half)),
            ),
            (
                operator("gate gradient", call("aten::mul", alone, half)),
                operator("up gradient", call("aten::mul", alone, alone)),
                operator("SiLU gradient", call("aten::silu_backward", alone, half)),
                *((joined,) if is_joint else ()),
            ),
        )
    gradient = elementwise("aten::gelu_backward", shape, dtype, reads=2)
    return Step(
        (operator("GELU", elementwise("aten::gelu", shape, dtype)),),
        (operator("GELU gradient", gradient),),
    )


def rotary_step(
    setting: Setting, label: str, rows: int, sizes: tuple[int, int], *, turned: int = 0
) -> Step:
    """Rotation of heads of a size by position; the gradient is turned back likewise.

    Where only so many numbers of each are `turned`, the rest is copied: by the same kernel in
    Transformer Engine (fused_rope.cu), as the two are joined elsewhere.

    Source:
        meta-llama/llama, llama/model.py, `apply_rotary_emb`: as complex numbers, in fp32.
    """
    heads, size = sizes
    shape, dtype = (rows, heads, size), setting.made
    said = setting.plan.implementation
    is_scaled = setting.model.attention.scales_rotary
    if is_scaled and not said.fuses_scaled_rotary:
        return _rotation_in_halves(setting, label, shape)
    if said.fuses_rotary:
        one = operator(label, fused(shape, dtype, reads=1))
        return Step((one,), (one,))
    if turned:
        joined = operator(
            f"{label}: joined", gathered_copy((rows * heads, size), dtype, row_stride=2 * size)
        )
        part = rotary_step(setting, label, rows, (heads, turned))
        return Step((*part.forward, joined), (*part.backward, joined))
    if said.rotates_halves:
        return _rotation_in_halves(setting, label, shape, is_whole=True)
    angles = array((rows, 1, size // 2), "complex64")
    turn = call("aten::mul", array((rows, heads, size // 2), "complex64"), angles)
    items = [operator(f"{label}: rotation", turn)]
    if dtype != _WIDE:
        items.insert(0, operator(f"{label}: cast to fp32", cast(shape, dtype, _WIDE)))
        items.append(operator(f"{label}: cast", cast(shape, _WIDE, dtype)))
    conjugate = operator(f"{label}: angles turned back", call("aten::clone", angles))
    at = len(items) - (2 if dtype != _WIDE else 1)
    return Step(tuple(items), (*items[:at], conjugate, *items[at:]))


def _rotation_in_halves(
    setting: Setting, label: str, shape: tuple[int, int, int], *, is_whole: bool = False
) -> Step:
    """As real numbers, one kernel for each operator; views of halves cost nothing.

    Halves lie apart in every head, for what negates and what joins them.

    Args:
        setting: model and plan.
        label: what is turned.
        shape: rows, heads, numbers of a head.
        is_whole: no rest of a head is joined to what was turned, not even an empty one.

    Source:
        NVIDIA/Megatron-LM, megatron/core/models/common/embeddings/rope_utils.py,
        `_apply_rotary_pos_emb_bshd`, which stands in where Transformer Engine's kernel cannot
        scale; huggingface/transformers, models/llama/modeling_llama.py, `apply_rotary_pos_emb`;
        derivatives.yaml of PyTorch.
    """
    rows, heads, size = shape
    dtype = setting.made
    turned = call("aten::mul", array(shape, dtype), array((rows, 1, size), dtype))
    half = (rows, heads, size // 2)
    negated = call("aten::neg", array(half, dtype, (heads * size, size, 1)))
    apart = gathered_copy((rows * heads, size), dtype, row_stride=2 * size)
    joined = call("aten::copy_", array(shape, dtype), array(shape, dtype), "False")
    total = elementwise("aten::add", shape, dtype, reads=2)
    if is_whole:
        back = (("times cosines", turned), ("times sines", turned))
        both = (("half negated", negated), ("halves joined", apart))
        there = (back[0], *both, back[1], ("sum", total))
        return Step(
            tuple(operator(f"{label}: {what}", one) for what, one in there),
            tuple(
                operator(f"{label}: {what}", one)
                for what, one in (*back, *both, ("sum of gradients", total))
            ),
        )
    forward = (
        ("times cosines", turned),
        ("half negated", negated),
        ("halves joined", apart),
        ("times sines", turned),
        ("sum", total),
        ("joined with the rest", joined),
    )
    backward = (
        ("times cosines", turned),
        ("times sines", turned),
        ("half negated", negated),
        ("halves joined", apart),
        ("sum of gradients", total),
        ("gradient of the rest", zeros(shape, dtype)),
        ("sum with the rest", total),
    )
    return Step(
        tuple(operator(f"{label}: {what}", one) for what, one in forward),
        tuple(operator(f"{label}: {what}", one) for what, one in backward),
    )

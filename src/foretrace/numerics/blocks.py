"""Numbers that share a scale: MX blocks and NVFP4."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.base import WorkloadError
from foretrace.numerics.formats import FloatFormat, Rounding, float_format, rounded
from foretrace.numerics.libraries import Tensor, torch


@dataclass(frozen=True, kw_only=True)
class BlockFormat:
    """Elements of one format with a scale for every so many of them."""

    name: str
    element: FloatFormat
    scale: FloatFormat
    num_elements: int
    has_tensor_scale: bool = False  # one fp32 more, so that the scales use their whole range


def _mx(name: str, element: str) -> BlockFormat:
    return BlockFormat(
        name=name, element=float_format(element), scale=float_format("e8m0"), num_elements=32
    )


# Sources: Open Compute Project, "Microscaling Formats (MX) Specification" 1.0; NVIDIA,
# "Pretraining Large Language Models with NVFP4", arXiv:2509.25149.
BLOCK_FORMATS = (
    _mx("mxfp8_e4m3", "fp8_e4m3"),
    _mx("mxfp8_e5m2", "fp8_e5m2"),
    _mx("mxfp6_e2m3", "fp6_e2m3"),
    _mx("mxfp6_e3m2", "fp6_e3m2"),
    _mx("mxfp4", "fp4_e2m1"),
    BlockFormat(
        name="nvfp4",
        element=float_format("fp4_e2m1"),
        scale=float_format("fp8_e4m3"),
        num_elements=16,
        has_tensor_scale=True,
    ),
)
_BY_NAME = {one.name: one for one in BLOCK_FORMATS}


def block_format(name: str) -> BlockFormat:
    """The format of blocks of this name.

    Raises:
        WorkloadError: if there is none.
    """
    if name not in _BY_NAME:
        raise WorkloadError(
            f"the format of blocks {name!r} is unknown: expected one of {', '.join(_BY_NAME)}"
        )
    return _BY_NAME[name]


def block_rounded(
    values: Tensor, to: BlockFormat, *, rounding: Rounding = Rounding.NEAREST
) -> Tensor:
    """The values as blocks along the last dimension hold them.

    Raises:
        WorkloadError: if the last dimension is no whole number of blocks.
    """
    if values.shape[-1] % to.num_elements:
        raise WorkloadError(
            f"{values.shape[-1]} values in a row do not divide into blocks of {to.num_elements}: "
            "pad them"
        )
    blocks = values.double().reshape(*values.shape[:-1], -1, to.num_elements)
    whole = _tensor_scale(blocks, to)
    scales = _scales(blocks / whole, to) * whole
    elements = rounded(blocks / scales, to.element, rounding=rounding, saturates=True)
    limited = elements.clamp(-to.element.largest, to.element.largest)
    return (limited * scales).flatten(-2).to(values.dtype)


def _tensor_scale(blocks: Tensor, to: BlockFormat) -> float:
    largest = float(blocks.abs().max())
    if not to.has_tensor_scale or largest == 0:
        return 1.0
    return largest / (to.element.largest * to.scale.largest)


def _scales(blocks: Tensor, to: BlockFormat) -> Tensor:
    """A scale for each block; 1 where all its values are zero."""
    largest = blocks.abs().amax(-1, keepdim=True)
    largest = torch.where(largest == 0, to.element.largest, largest)
    if to.scale.is_scale:  # the largest power of two of the element's format holds the block's
        fitting = torch.frexp(torch.tensor(to.element.largest, dtype=torch.float64))[1] - 1
        power = (torch.frexp(largest)[1] - 1 - fitting).clamp(-127, 127)
        return torch.ldexp(torch.ones_like(largest), power.double())
    held = rounded(largest / to.element.largest, to.scale)
    smallest = 2.0 ** (to.scale.smallest_exponent - to.scale.mantissa_bits)
    return held.clamp(min=smallest)

"""Matrix products and convolutions.

Source of the formulas: torch/utils/flop_counter.py (PyTorch 2.13): a product of m x k and k x n
is 2 m n k FLOPs; a convolution 2 x batch x outputs x all weights; each of its two gradients the
same again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from foretrace.operators.shapes import Shapes, Tensor
from foretrace.operators.work import Work, moved

_Counter = Callable[[Shapes], Work | None]
_NUM_OUTER = 2  # batch and channels, before the directions of an image
# How kernels that round fp32 operands to TF32 are called: 1688 is that instruction's shape for
# them (PTX ISA, mma.m16n8k8.tf32), xf32 is AMD's format; all seen but the last.
_TF32_NAMES = ("tf32", "tensorop_s1688", "s1688", "xf32")


def runs_in_tf32(kernel: str) -> bool:
    """Whether a kernel of fp32 operands multiplies them on matrix units, by its name."""
    lowered = kernel.lower()
    return any(text in lowered for text in _TF32_NAMES)


def _product(first: Tensor | None, second: Tensor | None, added: Tensor | None) -> Work | None:
    """`first @ second + added`; leading dimensions of either may be missing or 1."""
    if first is None or second is None or len(first.shape) < 1 or len(second.shape) < 1:
        return None
    left = first.shape if len(first.shape) > 1 else (1, *first.shape)
    right = second.shape if len(second.shape) > 1 else (*second.shape, 1)
    if left[-1] != right[-2]:
        return None
    batch = _batch(left[:-2], right[:-2])
    out = Tensor((*batch, left[-2], right[-1]), first.dtype)
    return moved(
        2 * out.num_elements * left[-1],
        read=(first, second, added),
        written=(out,),
        dtype=first.dtype,
        is_product=True,
    )


def _batch(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    shorter = (1,) * (len(longer) - len(shorter)) + shorter
    return tuple(max(a, b) for a, b in zip(longer, shorter, strict=True))


def _mm(shapes: Shapes) -> Work | None:
    return _product(shapes.tensor(0), shapes.tensor(1), None)


def _addmm(shapes: Shapes) -> Work | None:
    """`addmm(added, first, second, beta, alpha)`; a beta of 0 leaves `added` unread."""
    added = None if shapes.value(3) in {"0", "0.", "0.0"} else shapes.tensor(0)
    return _product(shapes.tensor(1), shapes.tensor(2), added)


def _linear(shapes: Shapes) -> Work | None:
    weight = shapes.tensor(1)
    if weight is None:
        return None
    turned = Tensor(weight.shape[::-1], weight.dtype)
    return _product(shapes.tensor(0), turned, shapes.tensor(2))


def _grouped(shapes: Shapes) -> Work | None:
    """`_grouped_mm(first, second, ends)`: of rows that groups share out, or of what they sum over.

    Where each group's rows end is in the values of `ends`: all rows are taken to be in one.
    """
    first, second, ends = (shapes.tensor(at) for at in range(3))
    if first is None or second is None or not first.shape or not second.shape:
        return None
    left, right = first.shape, second.shape
    matrices = {len(left), len(right)} <= {2, 3} and ends is not None
    if not matrices or left[-1] != right[-2] or (len(left) == len(right) == 3):  # noqa: PLR2004
        return _product(first, second, None)
    is_summed = len(left) == len(right)
    groups = (ends.num_elements,) if is_summed and ends is not None else ()
    out = Tensor((*groups, left[-2], right[-1]), first.dtype)
    return moved(
        2 * left[-2] * left[-1] * right[-1],
        read=(first, second),
        written=(out,),
        dtype=first.dtype,
        is_product=True,
    )


@dataclass(frozen=True)
class _Settings:
    """Where an operator's inputs say how its window moves; dilation follows both, if any."""

    stride: int
    padding: int
    is_dilated: bool


def _window(
    size: tuple[int, ...], kernel: tuple[int, ...], shapes: Shapes, at: _Settings
) -> tuple[int, ...] | None:
    """Outputs in each direction."""
    stated = [shapes.numbers(at.stride), shapes.numbers(at.padding)]
    stated.append(shapes.numbers(max(at.stride, at.padding) + 1) if at.is_dilated else (1,))
    steps, pads, spread = (_spread(one, len(size)) or () for one in stated)
    if not steps or not pads or not spread or min(steps) < 1:
        return None
    return tuple(
        max((size[at] + 2 * pads[at] - spread[at] * (kernel[at] - 1) - 1) // steps[at] + 1, 0)
        for at in range(len(size))
    )


def _spread(numbers: tuple[int, ...] | None, length: int) -> tuple[int, ...] | None:
    if numbers is None or len(numbers) not in {1, length}:
        return None
    return numbers * (length if len(numbers) == 1 else 1)


def _convolution(
    *, stride: int, padding: int, transposed: int | None, is_dilated: bool = True
) -> _Counter:
    """A forward convolution whose settings stand at these positions."""
    at = _Settings(stride, padding, is_dilated)

    def work(shapes: Shapes) -> Work | None:
        data, weight = shapes.tensor(0), shapes.tensor(1)
        if data is None or weight is None or not _are_images(data, weight):
            return None
        if transposed is not None and shapes.flags(transposed) == (True,):
            return _transposed(data, weight)
        sizes = _window(data.shape[2:], weight.shape[2:], shapes, at)
        if sizes is None:
            return None
        out = Tensor((data.shape[0], weight.shape[0], *sizes), data.dtype)
        flops = 2 * data.shape[0] * math.prod(sizes) * weight.num_elements
        read = (data, weight, shapes.tensor(2) if transposed is not None else None)
        return moved(flops, read=read, written=(out,), dtype=data.dtype, is_product=True)

    return work


def _are_images(*tensors: Tensor) -> bool:
    """Whether all have a batch, channels and the same number of directions, one at least."""
    ranks = {len(one.shape) for one in tensors}
    return len(ranks) == 1 and ranks.pop() > _NUM_OUTER


def _transposed(data: Tensor, weight: Tensor) -> Work:
    """What is written is not told by the inputs' sizes alone: at least as much as the data."""
    flops = 2 * data.shape[0] * math.prod(data.shape[2:]) * weight.num_elements
    return moved(flops, read=(data, weight), written=(data,), dtype=data.dtype, is_product=True)


def _convolution_backward(shapes: Shapes) -> Work | None:
    """`convolution_backward(grad, input, weight, ..., output_mask)`: which gradients, it says."""
    gradient, data, weight = (shapes.tensor(at) for at in range(3))
    if gradient is None or data is None or weight is None:
        return None
    if not _are_images(gradient, data, weight):
        return None
    wanted = shapes.flags(10) or (True, True, False)
    outer = data if shapes.flags(7) == (True,) else gradient
    each = 2 * data.shape[0] * math.prod(outer.shape[2:]) * weight.num_elements
    return moved(
        each * sum(wanted[:2]),
        read=(gradient, data if wanted[1] else None, weight if wanted[0] else None),
        written=(data if wanted[0] else None, weight if wanted[1] else None),
        dtype=gradient.dtype,
        is_product=True,
    )


def _convolution_backward_input(shapes: Shapes) -> Work | None:
    """`cudnn_convolution_backward_input(sizes, grad, weight, ...)`, PyTorch before 1.10."""
    gradient, weight = shapes.tensor(1), shapes.tensor(2)
    if gradient is None or weight is None or not _are_images(gradient, weight):
        return None
    flops = 2 * gradient.shape[0] * math.prod(gradient.shape[2:]) * weight.num_elements
    sizes = shapes.numbers(0)
    written = Tensor(sizes, gradient.dtype) if sizes and min(sizes) >= 0 else gradient
    return moved(
        flops, read=(gradient, weight), written=(written,), dtype=gradient.dtype, is_product=True
    )


PRODUCTS: dict[str, _Counter] = {
    "mm": _mm,
    "bmm": _mm,
    "_state_product": _mm,
    "matmul": _mm,
    "mv": _mm,
    "dot": _mm,
    "_scaled_mm": _mm,
    "_int_mm": _mm,
    "_grouped_mm": _grouped,
    "addmm": _addmm,
    "_addmm_activation": _addmm,
    "baddbmm": _addmm,
    "addmv": _addmm,
    "linear": _linear,
    "mkldnn_linear": _linear,
    "convolution": _convolution(stride=3, padding=4, transposed=6),
    "_convolution": _convolution(stride=3, padding=4, transposed=6),
    "convolution_overrideable": _convolution(stride=3, padding=4, transposed=6),
    "conv1d": _convolution(stride=3, padding=4, transposed=None),
    "conv2d": _convolution(stride=3, padding=4, transposed=None),
    "conv3d": _convolution(stride=3, padding=4, transposed=None),
    "cudnn_convolution": _convolution(stride=3, padding=2, transposed=None),
    "miopen_convolution": _convolution(stride=4, padding=3, transposed=None),
    "mkldnn_convolution": _convolution(stride=4, padding=3, transposed=None),
    "_slow_conv2d_forward": _convolution(stride=4, padding=5, transposed=None, is_dilated=False),
    "slow_conv3d_forward": _convolution(stride=4, padding=5, transposed=None, is_dilated=False),
    "slow_conv_dilated2d": _convolution(stride=4, padding=5, transposed=None),
    "_conv_depthwise2d": _convolution(stride=4, padding=5, transposed=None),
    "convolution_backward": _convolution_backward,
    "cudnn_convolution_backward_input": _convolution_backward_input,
}

"""Kernels written for older chips run on newer ones, but not at their full rate.

Since Hopper a tensor core reaches its peak only by instructions that a whole group of warps issues
together. Kernels built for Ampere (FlashAttention 2, libraries' kernels called `sm80` or
`ampere`, encoders' heads that 16 does not divide, Marlin's unpacked weights) issue those of one
warp, which reach 62.9% of the peak on average: Luo et al., "Dissecting the NVIDIA Hopper
Architecture through Microbenchmarking and Multiple Level Analysis", arXiv:2501.12084, section 6.2,
measured on an H800.

A processor of a Blackwell does no more of them in a cycle, while its own instructions do twice as
much: FlashAttention 2 reaches 308 to 381 TFLOP/s with heads of 64 on a B200 (Dao-AILab's
flash-attention, issue 1589), what it reaches on an H100. Cards whose own instructions do less in a
cycle than that have nothing else. What training calls attention stands in for newer kernels on a
Blackwell (cuDNN's), of which nobody published any: there it keeps its share.
"""

from __future__ import annotations

import re
from dataclasses import replace

from foretrace.cost.attention import PROFILED, UNEVEN
from foretrace.cost.experts import MARLIN
from foretrace.machine import Chip

OLDER = "older"  # kind of products by kernels whose name says so
_KINDS = (OLDER, PROFILED, UNEVEN, MARLIN)
_SHARE_OF_PEAK = 0.629
_SIXTEEN_BIT_PER_CLOCK = 4_096  # operations of a Hopper's processor: NVIDIA's H100 whitepaper
_HOPPER, _NEWER = "Hopper", "Blackwell"
_VECTOR_FORMATS = ("fp32", "fp64")  # no tensor cores, no such instructions
_OLDER_NAMES = re.compile(r"ampere_|turing_|volta_|sm8[06]_|sm7[05]_|cutlass_[78][05]_")


def is_older(kernel: str) -> bool:
    """Whether a kernel's name says that it was built for Ampere or before."""
    return _OLDER_NAMES.search(kernel) is not None


def is_of_older(kind: str) -> bool:
    """Whether kernels of a kind were built for Ampere or before, whatever release they are of."""
    return kind.partition(" ")[0] in _KINDS


def for_older_kernels(chip: Chip, kind: str = OLDER) -> Chip:
    """The chip as kernels built for Ampere see it: itself, if it is no newer."""
    share = _share(chip, is_cycle=kind != PROFILED)
    peaks = {
        dtype: peak if dtype in _VECTOR_FORMATS else peak * share
        for dtype, peak in chip.peak_by_dtype.items()
    }
    return replace(chip, peak_by_dtype=peaks)


def _share(chip: Chip, *, is_cycle: bool) -> float:
    """What instructions of one warp reach of the chip's peak."""
    if chip.architecture == _HOPPER or (chip.architecture == _NEWER and not is_cycle):
        return _SHARE_OF_PEAK
    if not (chip.architecture.startswith(_NEWER) and is_cycle):
        return 1.0
    cycles = (chip.num_processors or 0) * (chip.matrix_cycles_per_ns or 0.0)
    peak = chip.peak_flops_per_ns("bf16")
    if not cycles or peak is None:
        return _SHARE_OF_PEAK
    return min(1.0, _SHARE_OF_PEAK * _SIXTEEN_BIT_PER_CLOCK / (peak / cycles))

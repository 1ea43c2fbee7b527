"""Kernels written for older chips run on newer ones, but not at their full rate.

Since Hopper a tensor core reaches its peak only by instructions that a whole group of warps issues
together. Kernels built for Ampere (FlashAttention 2, libraries' kernels called `sm80` or
`ampere`) issue those of one warp, which reach 62.9% of the peak on average: Luo et al.,
"Dissecting the NVIDIA Hopper Architecture through Microbenchmarking and Multiple Level Analysis",
arXiv:2501.12084, section 6.2, measured on an H800. On Blackwell nobody published it: taken alike.
"""

from __future__ import annotations

import re
from dataclasses import replace

from foretrace.machine import Chip

_SHARE_OF_PEAK = 0.629
_NEWER = ("Hopper", "Blackwell")
_VECTOR_FORMATS = ("fp32", "fp64")  # no tensor cores, no such instructions
_OLDER_NAMES = re.compile(r"ampere_|turing_|volta_|sm8[06]_|sm7[05]_|cutlass_[78][05]_")


def is_older(kernel: str) -> bool:
    """Whether a kernel's name says that it was built for Ampere or before."""
    return _OLDER_NAMES.search(kernel) is not None


def for_older_kernels(chip: Chip) -> Chip:
    """The chip as kernels built for Ampere see it: itself, if it is no newer."""
    if chip.architecture not in _NEWER:
        return chip
    peaks = {
        dtype: peak if dtype in _VECTOR_FORMATS else peak * _SHARE_OF_PEAK
        for dtype, peak in chip.peak_by_dtype.items()
    }
    return replace(chip, peak_by_dtype=peaks)

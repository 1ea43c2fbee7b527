"""`kernel_factors`: how many times as long software's kernels take in steps as alone.

What a description states counts first. The rest was learned from published runs, source by
source: products take longer in steps than alone, or less long, by a factor that depends on
software and number format more than on chips (libraries, real numbers at the power limit;
benchmarks of eight and four bits quantise their operands, which libraries join with other
kernels). Classes whose products one library issues (PyTorch's, with a compiler around it or not)
share what their sources taught, whose geometric mean counts. Of a library that nobody ran in a
format on an architecture: its factor in another format there, times what sets the formats apart in
other libraries; else the mean over other libraries, then the mean over all on the architecture
before: what sets a library apart on one chip says little of the next. Names that mean nothing have
taught too, of themselves alone: other software than what is described is no average of it. A source
can be left out, so that its runs are predicted by what the others taught. All of them ran on
several chips: one that works alone exchanges nothing beside its products, and has no such factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import numpy as np

from foretrace.base import SIXTEEN_BITS
from foretrace.software.software import (
    UNKNOWN_SOFTWARE,
    TrainingSoftware,
    load_software,
    software_names,
)

# How families of products begin, by the units that work on their numbers.
PRODUCTS_BY_FORMAT = {
    "16bit": tuple(f"gemm library {dtype}" for dtype in SIXTEEN_BITS),
    "fp8": ("gemm library fp8",),
    "fp4": ("gemm library fp4",),
}
PRODUCTS = PRODUCTS_BY_FORMAT["16bit"]
# What a generation of chips without runs of its own is taken to be like.
_OLDER = {
    "Blackwell Ultra": "Blackwell",
    "Blackwell": "Hopper",
    "Hopper": "Ampere",
    "CDNA 4": "CDNA 3",
    "CDNA 3": "Hopper",
}


def kernel_factors(
    software: TrainingSoftware,
    architecture: str,
    *,
    without: Sequence[str] = (),
    is_alone: bool = False,
) -> dict[str, float]:
    """Times as long as under lasting load alone, by how a family of kernels begins.

    Args:
        software: whose kernels.
        architecture: of the chip: "Hopper".
        without: sources of runs of which nothing may be used.
        is_alone: whether one chip is all of the job: nothing was learned from such.

    Source:
        Steps of one H200 (`bench/one_gpu.py`) and of KempnerForge's on one H200, whose products
        take 0.81 times as long as alone under lasting load, where sharded ones take 1.18 to 1.31.
    """
    asked = {dtype: (dtype, frozenset(without)) for dtype in PRODUCTS_BY_FORMAT}
    found = {
        family: 1.0 if is_alone else _learned_factor(software.library, architecture, asked[dtype])
        for dtype, families in PRODUCTS_BY_FORMAT.items()
        for family in families
    }
    # Those for one architecture last, so that they win; "Blackwell" is of "Blackwell Ultra" too.
    for one in sorted(software.kernels, key=lambda one: one.architecture):
        if architecture.startswith(one.architecture):
            found = {name: v for name, v in found.items() if not name.startswith(one.family)}
            found[one.family] = one.value
    return found


def _learned_factor(library: str, architecture: str, asked: tuple[str, frozenset[str]]) -> float:
    """Of software whose products a library issues; of the mean over all libraries, if it is "".

    Args:
        library: its name.
        architecture: of the chip.
        asked: the products' format, and sources that are left out.
    """
    dtype, without = asked
    by_format = {one: _by_library(architecture, one, without) for one in PRODUCTS_BY_FORMAT}
    by_library = by_format.pop(dtype)
    own = by_library.get(library)
    if own is None:
        own = _of_other_formats(library, by_library, by_format.values())
    if own is None:  # names that mean nothing are no library
        own = _mean(one for name, one in by_library.items() if name != UNKNOWN_SOFTWARE)
    if own is not None:
        return own
    older = _OLDER.get(architecture)
    return 1.0 if older is None else _learned_factor("", older, asked)


def _of_other_formats(
    library: str, asked: Mapping[str, float], others: Iterable[Mapping[str, float]]
) -> float | None:
    """What a library does in another format, times what sets the formats apart in libraries.

    Args:
        library: without a factor in the format that is asked for.
        asked: factors by library in that format.
        others: the same in other formats, on the same chips.
    """
    carried = []
    for known in others:
        apart = _mean(asked[name] / known[name] for name in asked.keys() & known.keys())
        if apart is not None and library in known:
            carried.append(known[library] * apart)
    return _mean(carried)


def _by_library(architecture: str, dtype: str, without: frozenset[str]) -> dict[str, float]:
    """Factors of products in a format on an architecture, by who issues them."""
    taught: dict[str, list[float]] = {}
    for each in _classes():
        for one in each.learned:
            is_asked = (one.architecture, one.format) == (architecture, dtype)
            if is_asked and one.runs_of not in without:
                taught.setdefault(each.library, []).append(one.products)
    return {name: found for name, each in taught.items() if (found := _mean(each)) is not None}


def _mean(factors: Iterable[float]) -> float | None:
    """Geometric; none of nothing."""
    logarithms = np.log(list(factors))
    return float(np.exp(logarithms.mean())) if len(logarithms) else None


@cache
def _classes() -> tuple[TrainingSoftware, ...]:
    """Descriptions of classes; releases have what their class was taught."""
    return tuple(one for one in map(load_software, software_names()) if one.name == one.family)

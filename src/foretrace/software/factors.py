"""`kernel_factors`: how many times as long software's kernels take in steps as alone.

What a description states counts first. The rest was learned from published runs, source by
source: products take longer in steps than alone, or less long, by a factor that depends on
software and number format more than on chips (libraries, real numbers at the power limit;
benchmarks of eight and four bits quantise their operands, which libraries join with other
kernels). Classes whose products one library issues (PyTorch's, with a compiler around it or not)
share what their sources taught, whose geometric mean counts; of a library that nobody ran on an
architecture the mean over other libraries, then the mean over all on the architecture before: what
sets a library apart on one chip says little of the next. A source can be left out, so that its
runs are predicted by what the others taught.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from foretrace.base import SIXTEEN_BITS
from foretrace.software.software import Learned, TrainingSoftware, load_software, software_names

# How families of products begin, by the units that work on their numbers.
PRODUCTS_BY_FORMAT = {
    "16bit": tuple(f"gemm library {dtype}" for dtype in SIXTEEN_BITS),
    "fp8": ("gemm library fp8",),
    "fp4": ("gemm library fp4",),
}
PRODUCTS = PRODUCTS_BY_FORMAT["16bit"]
# What a generation of chips without runs of its own is taken to be like.
_OLDER = {"Blackwell Ultra": "Blackwell", "Blackwell": "Hopper", "Hopper": "Ampere"}


def kernel_factors(
    software: TrainingSoftware, architecture: str, *, without: Sequence[str] = ()
) -> dict[str, float]:
    """Times as long as under lasting load alone, by how a family of kernels begins.

    Args:
        software: whose kernels.
        architecture: of the chip: "Hopper".
        without: sources of runs of which nothing may be used.
    """
    found = {
        family: _learned_factor(software.library, architecture, (dtype, frozenset(without)))
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

    def of(entries: Iterable[Learned]) -> float | None:
        return _mean(
            one.products
            for one in entries
            if one.architecture == architecture
            and one.format == dtype
            and one.runs_of not in without
        )

    taught: dict[str, list[Learned]] = {}
    for each in _classes():
        taught.setdefault(each.library, []).extend(each.learned)
    by_library = {name: of(entries) for name, entries in taught.items()}
    own = by_library.get(library)
    if own is not None:
        return own
    others = _mean(factor for factor in by_library.values() if factor is not None)
    if others is not None:
        return others
    older = _OLDER.get(architecture)
    return 1.0 if older is None else _learned_factor("", older, asked)


def _mean(factors: Iterable[float]) -> float | None:
    """Geometric; none of nothing."""
    logarithms = np.log(list(factors))
    return float(np.exp(logarithms.mean())) if len(logarithms) else None


@cache
def _classes() -> tuple[TrainingSoftware, ...]:
    """Descriptions of classes; releases have what their class was taught."""
    return tuple(one for one in map(load_software, software_names()) if one.name == one.family)

"""`kernel_factors`: how many times as long software's kernels take in steps as alone.

What a description states counts first. The rest was learned from published runs, source by
source: 16-bit products are slower in steps than alone by a factor that depends on software more
than on chips (libraries, real numbers at the power limit). Of the sources of one class the
geometric mean counts; of a class that nobody ran on an architecture the mean over other classes,
then what is known of the architecture before. A source can be left out, so that its runs are
predicted by what the others taught.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from foretrace.base import SIXTEEN_BITS
from foretrace.software.software import Learned, TrainingSoftware, load_software, software_names

# How families of products of 16-bit numbers begin.
PRODUCTS = tuple(f"gemm library {dtype}" for dtype in SIXTEEN_BITS)
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
    found = dict.fromkeys(PRODUCTS, _learned_factor(software, architecture, frozenset(without)))
    # Those for one architecture last, so that they win.
    for one in sorted(software.kernels, key=lambda one: one.architecture):
        if one.architecture in {"", architecture}:
            found = {name: v for name, v in found.items() if not name.startswith(one.family)}
            found[one.family] = one.value
    return found


def _learned_factor(
    software: TrainingSoftware, architecture: str, without: frozenset[str]
) -> float:
    def of(entries: Iterable[Learned]) -> float | None:
        times = [
            one.products
            for one in entries
            if one.architecture == architecture and one.runs_of not in without
        ]
        return float(np.exp(np.mean(np.log(times)))) if times else None

    by_class = {each.family: of(each.learned) for each in _classes()}
    own = by_class.get(software.family)
    if own is not None:
        return own
    others = [factor for factor in by_class.values() if factor is not None]
    if others:
        return float(np.exp(np.mean(np.log(others))))
    older = _OLDER.get(architecture)
    return 1.0 if older is None else _learned_factor(software, older, without)


@cache
def _classes() -> tuple[TrainingSoftware, ...]:
    """Descriptions of classes; releases have what their class was taught."""
    return tuple(one for one in map(load_software, software_names()) if one.name == one.family)

"""Kernel families: which library or code generator a device kernel comes from, by its name.

The first rule that holds decides, so what is special stands before what is general.
"""

from __future__ import annotations

from functools import lru_cache

from foretrace.operators import general_kernels, library_kernels
from foretrace.operators.rule import Rule

RULES = (
    *library_kernels.COMMUNICATION,
    *general_kernels.TRANSFERS,
    *library_kernels.ATTENTION,
    *general_kernels.LOSSES,
    *general_kernels.EMBEDDINGS,
    *library_kernels.CONVOLUTIONS,
    *library_kernels.NORMALISATIONS,
    *library_kernels.SOFTMAXES,
    *general_kernels.OPTIMIZERS,
    *library_kernels.PRODUCTS,
    *general_kernels.MOVES,
    *general_kernels.GENERAL,
)


# A pure function of a name that goes through hundreds of patterns, 0.2 ms; a job has a few hundred
# names, and every question about it asks for each of them again.
@lru_cache(maxsize=4096)
def rule_of(name: str) -> Rule | None:
    """The first rule that holds for a kernel's name, or none."""
    lowered = name.lower()
    return next((rule for rule in RULES if rule.holds(lowered)), None)

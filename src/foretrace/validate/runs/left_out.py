"""Constants that published runs teach, each source's left out when it is predicted.

Two things no benchmark of kernels tells: how much slower products of 16-bit numbers are in a
training step than under lasting load alone (real numbers, a chip at its power limit, the library
of the day), and how far steps lie around predictions. Both are fitted on the development part of
the published runs, source by source; a run is predicted with what the other sources teach. A
source that is not among them gets what all of them teach.

`tests/validate/runs/test_acceptance.py` fits them anew and compares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.estimate import UNMODELLED


@dataclass(frozen=True)
class Taught:
    """What the runs of one source say of one generation of chips."""

    source: str
    architecture: str
    num_runs: int
    products: float  # time of 16-bit products in steps, of that under lasting load


# Fitted on complete and assumed dense runs whose critical path is products of 16-bit numbers for a
# tenth or more, each the factor that brings the median error of its runs to nothing.
TAUGHT = (
    Taught("llm-foundry", "Ampere", 72, 1.11),
    Taught("paper", "Ampere", 29, 1.04),
    Taught("vtrain", "Ampere", 62, 1.13),
    Taught("llm-foundry", "Hopper", 47, 1.33),
    Taught("torchtitan", "Hopper", 6, 1.28),
    Taught("simumax-b200", "Blackwell", 31, 1.53),
)
_OLDER = {"Blackwell Ultra": "Blackwell", "Blackwell": "Hopper", "Hopper": "Ampere"}

# What is unmodelled, as a logarithmic width each way that makes 80% of the runs of all other
# sources lie inside their intervals; each source counts alike.
SPREAD_WITHOUT = {
    "llm-foundry": 0.119,
    "megatron-bridge": 0.086,
    "mlperf": 0.119,
    "neusight": 0.090,
    "paper": 0.113,
    "simumax-b200": 0.063,
    "torchtitan": 0.113,
    "vtrain": 0.107,
}
SPREAD = UNMODELLED  # of a source that is not among them


def products_factor(architecture: str, source: str) -> float:
    """How much longer 16-bit products take in steps, as all sources but one say.

    A generation that no other source ran on takes what is known of the one before.
    """
    known = [
        one.products for one in TAUGHT if one.architecture == architecture and one.source != source
    ]
    if known:
        return float(np.exp(np.mean(np.log(known))))
    older = _OLDER.get(architecture)
    return products_factor(older, source) if older is not None else 1.0


def unmodelled_spread(source: str) -> float:
    """Width of what is unmodelled, as all sources but one say."""
    return SPREAD_WITHOUT.get(source, SPREAD)

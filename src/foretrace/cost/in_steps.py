"""`step_costs`: what a machine's kernels take within a training step, not in a benchmark.

Benchmarks run a kernel for a moment; a step loads the chip for minutes on end. Two things follow
that tables of single kernels tell only in part:

- Near its power limit a chip lowers its clock. A fit to single products finds how far (`throttle`)
  and after how long; within a step that time has always passed. A chip sold with a lower power
  limit than the one it extends is slower still: power grows with the cube of the clock.
- Within a model products run one after another on operands that the one before just wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from foretrace.cost.constants import Constants, Fit, shipped_constants
from foretrace.cost.fitted import FittedCosts
from foretrace.cost.model import CostModel
from foretrace.cost.slower import Slower
from foretrace.machine import Chip, Machine, load_chip

_PRODUCTS = "gemm"
_ATTENTION = "attention"


def step_costs(machine: Machine, *, slower: Mapping[str, float] | None = None) -> CostModel:
    """Kernels under lasting load, and collectives over a machine's tiers.

    Args:
        machine: what the step runs on.
        slower: further factors by how a family of kernels begins, as of older software.
    """
    power = power_factor(machine.chip)
    factors = {_PRODUCTS: power, _ATTENTION: power}
    for family, factor in (slower or {}).items():
        factors[family] = factors.get(family, 1.0) * factor
    return Slower(FittedCosts(machine, under_lasting_load(shipped_constants())), factors)


def under_lasting_load(constants: Sequence[Constants]) -> tuple[Constants, ...]:
    """Constants with whose products the chip has reached its lasting clock from the start."""
    return tuple(replace(one, fits=tuple(_lasting(fit) for fit in one.fits)) for one in constants)


def _lasting(fit: Fit) -> Fit:
    if fit.model != _PRODUCTS or "throttle_after_ns" not in fit.values:
        return fit
    return replace(fit, values={**fit.values, "throttle_after_ns": 0.0})


def power_factor(chip: Chip) -> float:
    """How much longer arithmetic takes than on the chip that this one extends, 1 or more.

    Dynamic power grows with clock and the square of voltage, which grows with the clock.
    """
    if not chip.parent or chip.power_watts is None:
        return 1.0
    parent = load_chip(chip.parent)
    if parent.power_watts is None or parent.num_processors != chip.num_processors:
        return 1.0
    return float(max(1.0, (parent.power_watts / chip.power_watts) ** (1 / 3)))

"""`step_costs`: what a machine's kernels take within a training step, not in a benchmark.

Benchmarks run a kernel for a moment; a step loads the chip for minutes on end. Two things follow
that tables of single kernels tell only in part:

- Near its power limit a chip lowers its clock. A fit to single products finds how far (`throttle`)
  and after how long; within a step that time has always passed. Carried to a chip of another power
  limit it is another: power grows with the cube of the clock. What a chip's description says that
  large products keep up counts before that.
  Where a chip's description says what large products keep up, that counts.
- Software decides what else differs: which library's kernels run, on which numbers, joined with
  what. Such factors belong to software (`foretrace.software`), learned from published training
  runs; `foretrace validate runs` shows what they are worth, each source predicted by the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from foretrace.base import Float64s
from foretrace.cost.choosing import chosen_fit
from foretrace.cost.constants import (
    ELSEWHERE,
    Constants,
    Fit,
    constants_for,
    shipped_constants,
    width_of,
)
from foretrace.cost.gemm import LIBRARY, GemmShapes, gemm_ns, without_quantising
from foretrace.cost.kernels import FittedKernels
from foretrace.cost.model import CollectiveRequests, CostModel, Costs, KernelRequests, Source
from foretrace.cost.network.costs import collective_costs
from foretrace.cost.network.span import GroupSpans
from foretrace.machine import Chip, Machine, load_chip
from foretrace.software import kernel_factors, unstated_software

_PRODUCTS = "gemm"
_ATTENTION = "attention"
_LARGE = 16_384  # rows, columns and terms of a product that waits for nothing but arithmetic


@dataclass(frozen=True)
class Slower:
    """Another model's answers, each family's times its factor.

    A benchmark runs one kernel over and over, on numbers of its own choice, at the clock that the
    chip then has. In a step kernels follow one another on real numbers, near the power limit for
    minutes, and other software may bring older kernels. Such differences are by family of kernels;
    where they come from stands with whoever states them.
    """

    model: CostModel
    # By how a family of kernels begins ("gemm", "attention backward"); the longest counts.
    factor_by_family: Mapping[str, float] = field(default_factory=dict)
    # The same of collectives ("all_gather"); "" for all others.
    factor_by_collective: Mapping[str, float] = field(default_factory=dict)

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """As the model's own, slower."""
        return _slowed(self.model.kernel_costs(requests), self.factor_by_family)

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """As the model's own, slower."""
        return _slowed(self.model.collective_costs(requests), self.factor_by_collective)


def _slowed(costs: Costs, factors: Mapping[str, float]) -> Costs:
    if not factors:
        return costs
    by_family = np.array([_factor(name, factors) for name in costs.families])
    # What recorded steps taught has it already.
    factor: Float64s = np.where(costs.source == Source.LEARNT, 1.0, by_family[costs.family])
    return replace(
        costs,
        duration_ns=np.rint(costs.duration_ns * factor).astype(np.int64),
        low_ns=np.rint(costs.low_ns * factor).astype(np.int64),
        high_ns=np.rint(costs.high_ns * factor).astype(np.int64),
    )


def _factor(family: str, factors: Mapping[str, float]) -> float:
    fitting = [begin for begin in factors if family.startswith(begin)]
    return factors[max(fitting, key=len)] if fitting else 1.0


@dataclass(frozen=True)
class FittedCosts:
    """Kernels of a machine's chip, and collectives over its tiers."""

    machine: Machine
    kernels: tuple[Constants, ...] | None = None  # in place of those of its chip
    collectives: tuple[Constants, ...] | None = None

    @cached_property
    def _spans(self) -> GroupSpans:
        return GroupSpans(self.machine)

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """As `FittedKernels.kernel_costs`."""
        return FittedKernels(self.machine.chip, self.kernels).kernel_costs(requests)

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """As `foretrace.cost.collective_costs`."""
        return collective_costs(
            requests, self.machine, constants=self.collectives, spans=self._spans
        )


def step_costs(machine: Machine, factors: Mapping[str, float] | None = None) -> CostModel:
    """Kernels as they are within a step, and collectives over a machine's tiers.

    What the user's recordings taught of the chip is a step's already, and stays as it is.

    Args:
        machine: what the step runs on.
        factors: times as long as under lasting load alone, by how a family of kernels begins;
            those where no software is stated, if left out.
    """
    chip = machine.chip
    if factors is None:
        factors = kernel_factors(unstated_software(), chip.architecture)
    lasting = FittedCosts(machine, under_lasting_load(constants_for(chip), chip))
    return Slower(Slower(lasting, {_ATTENTION: max(1.0, _attention_factor(chip))}), factors)


def _attention_factor(chip: Chip) -> float:
    """Times as long as carried from another chip: its clock falls as that of products does."""
    if "bf16" in chip.lasting_by_dtype:
        alone = constants_for(chip)
        both = (alone, under_lasting_load(alone, chip))
        fits = [chosen_fit((_PRODUCTS, LIBRARY, "bf16"), chip, one) for one in both]
        benchmark, lasting = (1 + one.fit.values["throttle"] if one else 1.0 for one in fits)
        return lasting / benchmark
    return power_factor(chip, load_chip(chip.parent)) if chip.parent else 1.0


def under_lasting_load(
    constants: Sequence[Constants], chip: Chip | None = None
) -> tuple[Constants, ...]:
    """Constants with whose products a chip has reached its lasting clock from the start.

    Args:
        constants: of chips that were measured.
        chip: what they are carried to; each to its own if left out.
    """
    alike = {} if chip is None else {one.name: one for one in _measured_alike(chip)}
    found = []
    for one in constants:
        power = power_factor(chip, alike[one.chip]) if chip and one.chip in alike else 1.0
        fits = (_lasting(fit, power) for fit in one.fits)
        found.append(replace(one, fits=tuple(_as_stated(fit, chip) for fit in fits)))
    return tuple(found)


def _as_stated(fit: Fit, chip: Chip | None) -> Fit:
    """The clock that gives large products the rate that the chip's description states."""
    if chip is None or (fit.model, fit.kind) != (_PRODUCTS, LIBRARY) or fit.is_of_steps:
        return fit
    stated = [one for one in chip.lasting_by_dtype if width_of(one) == fit.width]
    if not stated:
        return fit
    dtype = min(stated)  # "bf16" before "fp16"
    large = GemmShapes.of(np.full((1, 4), (1, _LARGE, _LARGE, _LARGE)), dtype)
    cold_ns, slowed_ns = (
        float(gemm_ns(large, chip, {**fit.values, "throttle": throttle})[0]) for throttle in (0, 1)
    )
    lasting_ns = float(large.num_flops[0]) / chip.lasting_by_dtype[dtype]
    throttle = max(0.0, (lasting_ns - cold_ns) / (slowed_ns - cold_ns))
    return replace(fit, values={**fit.values, "throttle": throttle})


def _lasting(fit: Fit, power: float) -> Fit:
    if fit.is_of_steps or fit.model != _PRODUCTS or "throttle_after_ns" not in fit.values:
        return fit
    throttle = max(0.0, (1 + fit.values["throttle"]) * power - 1)
    # Operands are quantised once for all products of them, by kernels of their own.
    lasting = {"throttle": throttle, "throttle_after_ns": 0.0}
    return replace(fit, values={**without_quantising(fit.values), **lasting})


def _measured_alike(chip: Chip) -> tuple[Chip, ...]:
    """Chips of its generation, or the one before under its name, whose kernels were measured."""
    return tuple(
        load_chip(one.chip)
        for one in shipped_constants()
        if one.chip not in {chip.name, ELSEWHERE} and chip.architecture.startswith(one.architecture)
    )


def power_factor(chip: Chip, measured: Chip) -> float:
    """Times as long as arithmetic under lasting load takes, carried from a chip by their peaks.

    Dynamic power grows with the number of processors, their clock and the square of voltage, which
    grows with the clock; so what a limit lets them do grows with the cube root of the power and
    of the square of their number.
    """
    if chip.power_watts is None or measured.power_watts is None:
        return 1.0
    peak, other = chip.peak_flops_per_ns("bf16"), measured.peak_flops_per_ns("bf16")
    if not peak or not other or not chip.num_processors or not measured.num_processors:
        return 1.0
    processors = chip.num_processors / measured.num_processors
    allowed = (processors**2 * chip.power_watts / measured.power_watts) ** (1 / 3)
    return float(peak / other / allowed)

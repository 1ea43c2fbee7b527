"""`SubstitutionRule`: what else could do an operation, what that adds, and what it would take.

A rule answers beside the model of the kernel that is there, so that its answer is a ratio: a
measured kernel keeps what no model knows of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from foretrace.answer import Plain
from foretrace.cost.kernels import FittedKernels
from foretrace.cost.signatures import Operation

# Of the memory's bandwidth, what added traffic reaches: fitted to both crossovers and both gains of
# Strassen's scheme in fp32 on a V100 (arXiv:1808.07984) by bench/fast_products.py.
TRAFFIC_RATE = 0.76
LAUNCH_NS = 2_500.0  # of a further kernel, behind another one


@dataclass(frozen=True)
class AddedOperator(Plain):
    """Work that a kernel has not, and what takes its place has."""

    name: str
    num_bytes: int  # read and written
    duration_ns: float


@dataclass(frozen=True)
class Offer:
    """What takes an operation's place."""

    plain_ns: float  # of the operation as it is, by the same models
    duration_ns: float  # of all that takes its place, what is added included
    least_factor: float  # of the time, which no program of this kind goes below
    added: tuple[AddedOperator, ...] = ()
    workspace_bytes: int = 0  # that is held while it runs, beside operands and result

    @property
    def factor(self) -> float:
        """Its time over that of the operation as it is."""
        return max(self.duration_ns / self.plain_ns, self.least_factor)

    @property
    def pays(self) -> bool:
        """Whether it is faster."""
        return self.factor < 1


class SubstitutionRule(Protocol):
    """One way to do operations otherwise."""

    @property
    def name(self) -> str:
        """As a command line says it: "strassen:1"."""
        ...

    @property
    def sentence(self) -> str:
        """What it does, and what it changes besides the time."""
        ...

    def offers(
        self, operations: Sequence[Operation], kernels: FittedKernels
    ) -> tuple[Offer | None, ...]:
        """What takes the place of each operation; `None`: the rule is about other ones.

        Args:
            operations: distinct ones.
            kernels: models of the chip's kernels.
        """
        ...

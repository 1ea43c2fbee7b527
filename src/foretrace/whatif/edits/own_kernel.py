"""`OwnKernel`: selected kernels take what an operator in index notation takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import Selection, fitting, selected, selection_of
from foretrace.base import ScenarioError
from foretrace.cost import FittedKernels, described_costs
from foretrace.operators import IndexedOperator, read_operator
from foretrace.whatif.edits.costed import CostedJob, check_device
from foretrace.whatif.edits.edit import EditTurn, Holds, Key, StatedValues, WorkEdit

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario


@dataclass(frozen=True)
class OwnKernel(WorkEdit):
    """Every selected kernel takes what the described operator takes at best on the chip."""

    file: str
    of: Selection = field(default=Selection())

    KERNEL = Key(
        "kernel",
        Holds.NAMES,
        "A file of index notation, and the work that its operator takes the place of.",
        "a file of index notation and, behind `=`, the work that it is for",
        "FILE=WORK",
    )
    KEYS = (KERNEL,)
    TURNS = (EditTurn.SUBSTITUTES,)

    def __post_init__(self) -> None:
        """Refuse a file that is not understood."""
        _ = self.operator

    @cached_property
    def operator(self) -> IndexedOperator:
        """What the file describes."""
        return read_operator(Path(self.file))

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[OwnKernel]:
        """One for each file."""
        for text in stated.names(cls.KERNEL):
            name, sign, work = text.rpartition("=")
            if not sign or not work.strip():
                raise ScenarioError(
                    f"kernel {text!r} names no work: write it as in {text}=kernels:*mine*"
                )
            yield cls(name.strip(), selection_of(work))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`kernels:*mine* as mm: 4.29 GFLOP, 12.6 MB, 341 FLOP/B`."""
        found = self.operator
        return (
            f"{self.of} as {found.name}: {found.flops / 1e9:,.3g} GFLOP, "
            f"{found.num_bytes / 1e6:,.3g} MB, {found.intensity:,.3g} FLOP/B, at best"
        )

    def check(self, job: CostedJob) -> None:
        """Something must be selected, and its chip known."""
        check_device(job.graph, "replaced")
        selected(job.graph, self.of)
        if job.chip is None:
            raise ScenarioError(
                f"{self.file} is costed for a chip, and the recording names none that is known: "
                "state the machine that the job runs on."
            )

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """Every selected kernel as long as the operator."""
        if job.chip is None:
            return job
        mask = fitting(job.graph, self.of) & job.graph.is_device
        costs = described_costs(self.operator, FittedKernels(job.chip))
        taken = job.is_replaced if job.is_replaced is not None else np.zeros_like(mask)
        if (mask & taken).any():
            raise ScenarioError(f"{self.file} and another kernel take the place of the same work")
        return replace(
            job,
            duration_ns=np.where(mask, float(costs.duration_ns[0]), job.duration_ns),
            low_ns=np.where(mask, float(costs.low_ns[0]), job.low_ns),
            high_ns=np.where(mask, float(costs.high_ns[0]), job.high_ns),
            source=np.where(mask, costs.source[0], job.source).astype(np.uint8),
            is_replaced=mask | taken,
        )

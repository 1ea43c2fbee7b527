"""Other kernels in the place of those that are there: `Substitute`, and `OwnKernel`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import Selection, fitting, selected, selection_of
from foretrace.base import Float64s, Int64s, ScenarioError
from foretrace.cost import (
    FittedKernels,
    Offer,
    Source,
    described_costs,
    node_operations,
    rule_named,
)
from foretrace.graph import ExecutionGraph
from foretrace.machine import Chip
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


@dataclass(frozen=True)
class Substitute(WorkEdit):
    """A rule's kernels in the place of selected ones wherever they are faster; others stay.

    A kernel takes its time x the ratio of two models: of what takes its place, and of itself. What
    is added (sums, casts, copies) counts within that time.
    """

    rule: str  # "strassen:1", ...
    of: Selection = field(default=Selection())
    dtype: str = ""  # operations in this number format alone

    SUBSTITUTE = Key(
        "substitute",
        Holds.NAMES,
        "Other kernels in the place of those that are there: strassen:1, or strassen:1=WORK.",
        "a rule of substitution and, behind `=`, the work that it is for",
        "RULE[=WORK]",
    )
    KEYS = (SUBSTITUTE,)
    TURNS = (EditTurn.SUBSTITUTES,)

    def __post_init__(self) -> None:
        """Refuse a rule that does not exist."""
        rule_named(self.rule)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Substitute]:
        """One for each rule."""
        for name, work in stated.names_of_work(cls.SUBSTITUTE):
            yield cls(name, work)

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`strassen:1: 7/8 of the arithmetic ...; for all work, where it is faster`."""
        return f"{rule_named(self.rule).sentence}; for {self.of}, where it is faster"

    def check(self, job: CostedJob) -> None:
        """The rule must be about something that is selected."""
        check_device(job.graph, "replaced")
        selected(job.graph, self.of)
        if job.chip is None:
            raise ScenarioError(
                f"{self.rule} is costed for a chip, and the recording names none that is known: "
                "state the machine that the job runs on."
            )
        offers, _, _ = self._offers(job.graph, job.chip)
        if not any(offers):
            raise ScenarioError(
                f"{self.rule} takes the place of nothing that {str(self.of)!r} selects: it is for "
                "products whose shapes were recorded (record_shapes=True), in a format that it "
                "takes, with sides it can divide. `foretrace substitute` lists what there is."
            )

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """Faster kernels where there are any; at best as fast as its arithmetic, at worst no gain.

        Raises:
            ScenarioError: if another rule is about one of them.
        """
        graph = job.graph
        if job.chip is None:
            return job
        offers, nodes, rows = self._offers(graph, job.chip)
        is_mine = np.zeros(graph.num_nodes, np.bool_)
        is_mine[nodes] = np.array([one is not None for one in offers], np.bool_)[rows]
        if job.is_replaced is not None and (is_mine & job.is_replaced).any():
            twice = graph.names[graph.name[int(np.flatnonzero(is_mine & job.is_replaced)[0])]]
            raise ScenarioError(
                f"two rules are about {twice!r}, the second is {self.rule}: of what they are for, "
                "state it behind `=`, as in strassen:1=layers:0-3"
            )
        taken = job.is_replaced if job.is_replaced is not None else np.zeros_like(is_mine)
        factor, least = (
            _spread(graph, nodes, np.array(each)[rows])
            for each in (
                [one.factor if one and one.pays else 1.0 for one in offers],
                [one.least_factor if one and one.pays else 1.0 for one in offers],
            )
        )
        is_faster = factor < 1
        source = np.where(is_faster, np.maximum(job.source, Source.SCALED), job.source)
        return replace(
            job,
            duration_ns=job.duration_ns * factor,
            low_ns=job.low_ns * least,
            source=source.astype(np.uint8),
            is_replaced=taken | is_mine,
        )

    def workspace_bytes(self, graph: ExecutionGraph, chip: Chip | None) -> int:
        """Of the largest kernel that it puts in another's place."""
        if chip is None:
            return 0
        offers, _, _ = self._offers(graph, chip)
        return max((one.workspace_bytes for one in offers if one and one.pays), default=0)

    def _offers(
        self, graph: ExecutionGraph, chip: Chip
    ) -> tuple[tuple[Offer | None, ...], Int64s, Int64s]:
        """What it offers for distinct operations; selected nodes, and which each of them is."""
        nodes = np.flatnonzero(fitting(graph, self.of) & graph.is_device)
        operations, rows = node_operations(graph, nodes)
        offers = rule_named(self.rule).offers(operations, FittedKernels(chip))
        mine = (
            offer if self.dtype in {"", one.dtype} else None
            for offer, one in zip(offers, operations, strict=True)
        )
        return tuple(mine), nodes, rows


def _spread(graph: ExecutionGraph, nodes: Int64s, values: Float64s) -> Float64s:
    found = np.ones(graph.num_nodes)
    found[nodes] = values
    return found

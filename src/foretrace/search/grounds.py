"""`SearchGround`: what a search stands on: its plans, their bounds, and how one is simulated.

`ModelGround` knows a model and a machine; `recorded` has that of a recording.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from foretrace.base import NetworkUse, WorkloadError
from foretrace.cost import (
    CostModel,
    Inflation,
    SubstitutionRule,
    node_operations,
    offers_of,
)
from foretrace.estimate import estimate, unit_programs
from foretrace.machine import Machine
from foretrace.risk import DEFAULT_VARIATION, Sampling, Variation, estimated_steps, variation_named
from foretrace.search.bound import StepBound
from foretrace.search.constraints import Constraint
from foretrace.search.looked import Looked
from foretrace.search.space import Listing, PlanSpace
from foretrace.software import TrainingSoftware
from foretrace.workload import (
    Plan,
    PlanDraft,
    PlanMemory,
    Transformer,
    UnitPrograms,
    blocks_of_model,
    check_plan,
    completions,
    plan_of_blocks,
    plan_table,
    schedule_of,
    unit_layout,
)

NUM_LEADERS = 3  # that are simulated kernel by kernel
# Of all stages in a step, simulated kernel by kernel: about 10 s of a processor and 2 GB.
_MOST_OPERATIONS = 1_000_000
_NUM_SHARED = 6  # so too where links are shared, which nothing before that shows
SAMPLED_STEPS = 400  # whose 95 % is known to a tenth of their deviation


class SearchGround(Protocol):
    """What plans are looked at with."""

    @property
    def names(self) -> tuple[str, str]:
        """Of the model and of the machine."""

    @property
    def spaces(self) -> tuple[PlanSpace, ...]:
        """One for each number of ranks."""

    @property
    def is_recorded(self) -> bool:
        """Whether plans are arranged from pieces of a recording."""

    @property
    def num_timed(self) -> int:
        """Distinct works of a rank that bounds were made of."""

    @property
    def num_leaders(self) -> int:
        """Plans that are simulated kernel by kernel, to choose from."""

    @property
    def assumed(self) -> Plan | None:
        """The plan that is taken where nobody searches, if it can be told."""

    @property
    def capacity(self) -> int | None:
        """Bytes of a chip's memory; `None`: nobody said of which."""

    def listing(self, wanted: Constraint | None, *, margin: float = 0.0) -> Listing:
        """Plans that are legal, within the constraint and within memory but for a share of it."""

    def quick_ns(self, plan: Plan) -> int:
        """What the step is not below, from a closed form.

        Raises:
            ScenarioError: if it turns out that the plan cannot be simulated.
        """

    def run_ns(self, plan: Plan) -> int:
        """What the step is not below, from running the plan's schedule."""

    def simulates(self) -> Callable[[Plan], int | str]:
        """A function that simulates a plan's step in ns, or says why it cannot; for processes."""

    def samples(self) -> Callable[[Plan], int | str]:
        """A function that tells the step that 95 % of steps are not longer than; for processes."""

    def looked(self, plan: Plan, *, number: int, unit_ns: int | None) -> Looked:
        """A plan simulated kernel by kernel."""

    def question(self, plans: Sequence[Plan]) -> dict[str, object]:
        """All but the spaces that answers depend on, told apart by what it says of some plans."""


def digest(value: object) -> str:
    """A text that differs where the values' own texts do."""
    return hashlib.sha256(repr(value).encode()).hexdigest()


def asked(
    ground: SearchGround,
    plans: Sequence[Plan],
    wanted: Constraint | None,
    *,
    version: str,
    margin: float = 0.0,
) -> dict[str, object]:
    """All that the answers of a search depend on.

    Args:
        ground: what it stands on.
        plans: that can run, at least one.
        wanted: of them.
        version: of foretrace.
        margin: share of memory that they leave free.
    """
    spaces = ground.spaces
    orders = schedule_of(plans[0]).orders
    return {
        "version": version,
        **ground.question(plans),
        "num_ranks": [space.num_ranks for space in spaces],
        "plan": plan_table(spaces[0].base),
        "schedule": digest([column.tolist() for column in vars(orders).values()]),
        "spaces": digest([space.variables for space in spaces]),
        "where": None if wanted is None else wanted.text,
        "margin": margin,
    }


@dataclass
class ModelGround:
    """Plans of a model on a machine, as `estimate` sees them."""

    model: Transformer
    machine: Machine
    spaces: tuple[PlanSpace, ...]
    draft: PlanDraft
    software: TrainingSoftware | None
    costs: CostModel
    inflation: Inflation
    variation: Variation | None = None  # of times; `None`: `risk steps`' own default
    network: NetworkUse = NetworkUse.PRIVATE  # when plans are simulated kernel by kernel
    rules: tuple[SubstitutionRule, ...] = ()  # that the costs are under
    is_recorded: bool = False
    _held: dict[Plan, int] = field(default_factory=dict, init=False, repr=False)

    @property
    def names(self) -> tuple[str, str]:
        """Of the model and of the machine."""
        return self.model.name, self.machine.name

    @cached_property
    def _bound(self) -> StepBound:
        return StepBound(self.model, self.costs, self.inflation)

    @cached_property
    def _units(self) -> UnitPrograms:
        own = self._bound.schedules
        return unit_programs(self.model, self.costs, self.inflation, schedules=own)

    @cached_property
    def _memory(self) -> PlanMemory:
        return PlanMemory(self.model, chip=self.machine.chip)

    def _peak_bytes(self, plan: Plan) -> int:
        return int(self._memory.stage_bytes(plan).max()) + self._workspace_bytes(plan)

    def _workspace_bytes(self, plan: Plan) -> int:
        """What kernels of rules hold besides at most, one after the other in one buffer."""
        if not self.rules:
            return 0
        work = plan_of_blocks(plan)
        if work not in self._held:
            graph = unit_layout(blocks_of_model(self.model, work), work).fragments.graph
            operations, _ = node_operations(graph, np.flatnonzero(graph.is_device))
            offers = offers_of(self.rules, operations, self.machine.chip)
            self._held[work] = max((one.workspace_bytes for one in offers if one), default=0)
        return self._held[work]

    @property
    def num_timed(self) -> int:
        """Distinct works of a rank that bounds were made of."""
        return self._bound.num_timed

    @property
    def num_leaders(self) -> int:
        """Plans that are simulated kernel by kernel, to choose from."""
        return _NUM_SHARED if self.network is NetworkUse.SHARED else NUM_LEADERS

    @property
    def capacity(self) -> int:
        """Of the machine's chip."""
        return self.machine.chip.memory_bytes

    def listing(self, wanted: Constraint | None, *, margin: float = 0.0) -> Listing:
        """Plans that are legal, within the constraint and within memory but for a share of it."""

        def peak_bytes(plan: Plan) -> int:
            check_plan(plan, self.model, plan.num_ranks)
            return self._peak_bytes(plan)

        capacity = round((1 - margin) * self.capacity)
        check = None if wanted is None else wanted.check
        return Listing(
            self.spaces, peak_bytes, capacity=capacity, assumed=self.assumed, check=check
        )

    def quick_ns(self, plan: Plan) -> int:
        """From the work of stages, and how long the pipeline takes to fill and to drain."""
        return self._bound.quick_ns(plan)

    def run_ns(self, plan: Plan) -> int:
        """From the plan's schedule, run unit by unit."""
        return self._bound.run_ns(plan)

    def simulates(self) -> Callable[[Plan], int | str]:
        """Unit by unit."""
        return self._units.step_ns

    def samples(self) -> Callable[[Plan], int | str]:
        """As `risk steps` samples them."""
        return partial(_p95_ns, self)

    def looked(self, plan: Plan, *, number: int, unit_ns: int | None) -> Looked:
        """What `estimate` says; unit by unit, where kernel by kernel would take too long."""
        if self._num_operations(plan) > _MOST_OPERATIONS:
            return Looked.by_units(
                plan,
                self._units.step_ns(plan) if unit_ns is None else unit_ns,
                number=number,
                peak_bytes=self._peak_bytes(plan),
                p95_ns=None,
                capacity=self.capacity,
            )
        found = estimate(
            self.model,
            plan,
            self.machine,
            software=self.software,
            costs=self.costs,
            inflation=self.inflation,
            network=self.network,
        )
        if found.footprint is not None:
            memory = found.footprint.with_buffer(self._workspace_bytes(plan))
            found = replace(found, footprint=memory)
        return Looked.of(found, number=number, unit_ns=unit_ns)

    def _num_operations(self, plan: Plan) -> int:
        """What all stages launch in a step, one rank each."""
        blocks = self._units.work(plan).blocks
        parts = (blocks.embedding, *blocks.layers, blocks.head)
        each = sum(len(one.forward.items) + len(one.backward.items) for one in parts if one)
        return plan.num_microbatches * each

    def question(self, plans: Sequence[Plan]) -> dict[str, object]:
        """Model, machine, software, and what cost models predict, by which alone they are known."""
        own = (plans[0], self.assumed or plans[-1])
        steps_ns = [self._units.step_ns(plan) for plan in own]
        software = self.software
        return {
            "model": [self.model.name, digest(asdict(self.model))],
            "machine": [self.machine.name, digest(asdict(self.machine))],
            "software": None if software is None else [software.name, digest(asdict(software))],
            "inflation": digest(asdict(self.inflation)),
            "variation": digest(self.variation),
            "costs": digest(steps_ns),
        }

    @cached_property
    def assumed(self) -> Plan | None:
        """The plan that `estimate` would take where nothing more is stated."""
        chip = self.machine.chip
        try:
            return completions(
                self.draft,
                self.model,
                self.spaces[0].num_ranks,
                fits=lambda plan: self._peak_bytes(plan) <= chip.memory_bytes,
                domain=self.machine.tiers[0].num_ranks,
            ).plan
        except WorkloadError:
            return None


def _p95_ns(ground: ModelGround, plan: Plan) -> int | str:
    found = estimated_steps(
        ground.model,
        plan,
        ground.machine,
        variation=ground.variation or variation_named(DEFAULT_VARIATION),
        sampling=Sampling(num_samples=SAMPLED_STEPS, workers=1, has_shares=False),
        costs=ground.costs,
        inflation=ground.inflation,
    )
    return round(found.quantile(0.95).step_ns)

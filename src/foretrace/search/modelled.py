"""`searched`: the best plan of a model on a machine; `ModelGround` is what that stands on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial

import numpy as np

from foretrace.base import NetworkUse, WorkloadError
from foretrace.cost import (
    CostModel,
    Inflation,
    Remembered,
    Substituted,
    SubstitutionRule,
    node_operations,
    offers_of,
)
from foretrace.estimate import estimate, software_costs, unit_programs
from foretrace.machine import Machine, with_hosts
from foretrace.risk import DEFAULT_VARIATION, Sampling, Variation, estimated_steps, variation_named
from foretrace.search.bound import StepBound
from foretrace.search.constraints import Constraint
from foretrace.search.found import PlanSearch
from foretrace.search.grounds import NUM_LEADERS, SAMPLED_STEPS, digest, quick_bounds
from foretrace.search.links_to_buy import with_links
from foretrace.search.looked import Looked
from foretrace.search.progress import SearchOptions
from foretrace.search.search import searched_on
from foretrace.search.space import Listing, PlanSpace, plan_space
from foretrace.search.unit_times import work_key
from foretrace.search.variables import SpaceLimits
from foretrace.software import TrainingSoftware
from foretrace.workload import (
    Plan,
    PlanDraft,
    PlanMemory,
    Transformer,
    UnitPrograms,
    blocks_of_model,
    check_plan,
    complete,
    completions,
    plan_of_blocks,
    unit_layout,
)

# Of all stages in a step, simulated kernel by kernel: about 10 s of a processor and 2 GB.
_MOST_OPERATIONS = 1_000_000
_NUM_SHARED = 6  # leaders where links are shared, which nothing before the kernels shows


def searched(
    model: Transformer,
    draft: PlanDraft,
    machine: Machine,
    *,
    num_ranks: int | Sequence[int],
    options: SearchOptions | None = None,
    vary: Sequence[str] = (),
    network: NetworkUse = NetworkUse.PRIVATE,
    software: TrainingSoftware | None = None,
    variation: Variation | None = None,
    costs: CostModel | None = None,
    inflation: Inflation | None = None,
    rules: Sequence[SubstitutionRule] = (),
    beside: PlanDraft | None = None,
) -> PlanSearch:
    """The best plan of a space, and how much better one that was not simulated could be.

    Args:
        model: a transformer.
        draft: what every plan of the space has; the rest is searched.
        machine: with as many chips as are asked for, or more.
        num_ranks: chips to use, or several numbers of them.
        options: the shortest step, sought for two minutes or to a gap of 1 %, if left out.
        vary: more variables to search, of `MORE_VARIABLES`, or all of a dimension, of `DIMENSIONS`.
        network: as in `estimate`, of plans that are simulated kernel by kernel.
        software: what runs it.
        variation: how times vary, for the longest of steps; as `risk steps`, if left out.
        costs: as in `estimate`.
        inflation: so too.
        rules: of substitution, whose kernels take the place of those that are there where they
            are faster.
        beside: a plan that the best is held beside; what it leaves open is completed.

    Raises:
        WorkloadError: if the space is not stated well, or no plan of it can run and fits.
        MachineError: if the machine is too small, or cannot be costed.
    """
    sizes = (num_ranks,) if isinstance(num_ranks, int) else tuple(num_ranks)
    machine = with_hosts(machine, max(sizes))
    is_shared = network is NetworkUse.SHARED
    host_times = machine.host.launch_times
    if host_times is not None and not draft.states("implementation.launch_times"):
        draft = draft.with_fields({"implementation.launch_times": host_times})
    costs = costs or software_costs(
        machine.unshared() if is_shared else machine, software, num_ranks=max(sizes)
    )
    ground = ModelGround(
        model,
        machine,
        spaces=tuple(plan_space(draft, SpaceLimits.of(model), size, vary=vary) for size in sizes),
        draft=draft,
        software=software,
        costs=Remembered(Substituted(costs, tuple(rules), machine.chip) if rules else costs),
        inflation=inflation or Inflation(),
        variation=variation,
        network=network,
        rules=tuple(rules),
    )
    options = options or SearchOptions()
    options = replace(options, target=with_links(options.target, machine))
    own = None if beside is None else complete(beside, model, sizes[0])
    return searched_on(ground, options, beside=own)


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

    def __getstate__(self) -> dict[str, object]:
        """Another process finds out for itself what is only remembered."""
        stated = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        return {**stated, "_held": {}}

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

    def work_key(self, plan: Plan) -> Hashable:
        """By what a rank does for a microbatch."""
        return work_key(plan)

    @cached_property
    def bounds(self) -> Callable[[Sequence[Plan]], list[int | str]]:
        """From the work of stages, and how long the pipeline takes to fill and to drain."""
        return partial(quick_bounds, self._bound)

    def run_ns(self, plan: Plan) -> int:
        """From the plan's schedule, run unit by unit."""
        return self._bound.run_ns(plan)

    @cached_property
    def simulates(self) -> Callable[[Plan], int | str]:
        """Unit by unit."""
        return self._units.step_ns

    @cached_property
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

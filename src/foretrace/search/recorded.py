"""`searched_recording`: the best plan for a recorded job, from its own blocks, host and exchanges.

Plans are simulated as `whatif` predicts them: recorded pieces in another order, resized where ranks
divide them otherwise. Their bounds are of the recorded computation alone: what every layer takes a
rank at least, over all microbatches, steps and ranks that were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from foretrace.analyze import breakdown
from foretrace.base import (
    Bools,
    Int32s,
    Int64s,
    NotShownError,
    ScenarioError,
    WorkloadError,
    numbered_rows,
)
from foretrace.cost import Source
from foretrace.estimate import StepParts
from foretrace.graph import NodeKind, Part, Phase, Timeline, beside_communication
from foretrace.machine import with_hosts
from foretrace.risk import FittedModels, Sampling, fit_models, recorded_steps
from foretrace.search.bound import fill_and_drain_ns, places_on_route
from foretrace.search.constraints import Constraint
from foretrace.search.found import PlanSearch
from foretrace.search.grounds import NUM_LEADERS, SAMPLED_STEPS, digest, quick_bounds
from foretrace.search.looked import Looked
from foretrace.search.progress import SearchOptions
from foretrace.search.search import searched_on
from foretrace.search.space import Listing, PlanSpace, space_over
from foretrace.search.variables import SpaceLimits
from foretrace.whatif import (
    ARRANGED,
    Baseline,
    Scenario,
    ScenarioOutcome,
    check_outcome,
    outcome,
)
from foretrace.workload import (
    Pass,
    Plan,
    PlanDraft,
    PlanMemory,
    Transformer,
    UnitTimes,
    chunk_layers,
    expert_tensor_size,
    schedule_of,
    stage_ends_ns,
    with_fields,
)

_PASSES = (Pass.FORWARD, Pass.BACKWARD)
_PHASES = {
    Phase.FORWARD: Pass.FORWARD,
    Phase.BACKWARD: Pass.BACKWARD,
    Phase.RECOMPUTE: Pass.BACKWARD,
}
ONLY_A_MODEL = "only a model knows what it takes"


def searched_recording(
    baseline: Baseline,
    draft: PlanDraft,
    *,
    num_ranks: int | Sequence[int],
    options: SearchOptions | None = None,
) -> PlanSearch:
    """The best plan for a recorded job on so many ranks, and how much better one could be.

    Args:
        baseline: what `baseline_of` makes of the recording, with a model and a machine if they are
            stated: memory is known then, and what only a model knows can be searched.
        draft: what every plan of the space has. What it does not state is searched, or as recorded;
            the sequences of a step grow with the ranks.
        num_ranks: as in `searched`.
        options: as there.

    Raises:
        WorkloadError: if the space is not stated well, or the recording shows no plan of it.
    """
    sizes = (num_ranks,) if isinstance(num_ranks, int) else tuple(num_ranks)
    ground = RecordedGround(baseline, tuple(recorded_space(baseline, draft, one) for one in sizes))
    return searched_on(ground, options)


def recorded_space(baseline: Baseline, draft: PlanDraft, num_ranks: int) -> PlanSpace:
    """The plans of a recorded job on so many ranks; each rank's share of the batch is as recorded.

    Raises:
        WorkloadError: if a degree is stated that follows, no layers were recorded, or the space is
            too large.
    """
    before = baseline.before
    if draft.states("data"):
        raise WorkloadError(
            "dp follows from the number of GPUs and the other degrees in a search: leave it out, "
            "and state tp, cp or pp"
        )
    if before.sizes.layers is None:
        raise WorkloadError(
            "no layers were found in this recording, so that nothing tells how a pipeline would "
            "divide them: `foretrace inspect --blocks` shows what was, --blocks FILE corrects it"
        )
    has_model = baseline.costs is not None and isinstance(baseline.model, Transformer)
    base = with_fields(replace(before.plan, path=None), draft.stated)
    if not draft.states("global_batch"):
        batch = max(round(before.plan.global_batch * num_ranks / before.plan.num_ranks), 1)
        base = replace(base, global_batch=batch)
    if not (draft.states("pipeline") and draft.states("num_chunks")):
        base = replace(base, layers_of_chunk=None)
    fixed: dict[str, Any] = {} if has_model else {"context": base.context, "expert": base.expert}
    if not base.sequence_parallel:
        fixed["sequence_parallel"] = False
    limits = SpaceLimits(
        num_layers=before.sizes.layers,
        num_heads=before.sizes.heads,
        num_experts=before.sizes.experts,
        schedules=("1f1b", "gpipe", "zb-h1") if has_model else ("1f1b", "gpipe"),
    )
    return space_over(base, draft.with_fields(fixed), limits, num_ranks)


@dataclass
class RecordedGround:
    """Plans of a recorded job, as `whatif` predicts them."""

    baseline: Baseline
    spaces: tuple[PlanSpace, ...]
    is_recorded: bool = True
    _works: dict[Plan, Int64s | str] = field(init=False, default_factory=dict)

    @property
    def names(self) -> tuple[str, str]:
        """Of the model and of the machine, where they are stated."""
        model, machine = self.baseline.model, self.baseline.before.machine
        named = "the recorded model" if model is None else model.name
        return named, "the recorded machine" if machine is None else machine.name

    @property
    def num_leaders(self) -> int:
        """Plans that are looked at closely; each is simulated kernel by kernel anyway."""
        return NUM_LEADERS

    @cached_property
    def _memory(self) -> PlanMemory | None:
        model, machine = self.baseline.model, self.baseline.before.machine
        if not isinstance(model, Transformer) or machine is None:
            return None
        return PlanMemory(model, chip=machine.chip)

    @property
    def capacity(self) -> int | None:
        """Of the stated machine's chip."""
        machine = self.baseline.before.machine
        return None if machine is None else machine.chip.memory_bytes

    def listing(self, wanted: Constraint | None, *, margin: float = 0.0) -> Listing:
        """Plans that are arranged from recorded pieces, within the constraint and within memory."""

        def peak_bytes(plan: Plan) -> int | None:
            try:
                check_outcome(self.baseline, scenario_of(self.baseline, plan))
            except NotShownError as err:
                raise NotShownError(f"{ONLY_A_MODEL}: {err}") from err
            return None if self._memory is None else int(self._memory.stage_bytes(plan).max())

        if wanted is not None and wanted.needs_memory and self._memory is None:
            raise WorkloadError(
                f"the constraint {wanted.text!r} is about memory, which is not known of a "
                "recording alone: state its model and machine (--model, --machine)"
            )
        capacity = None if self.capacity is None else round((1 - margin) * self.capacity)
        check = None if wanted is None else wanted.check
        return Listing(
            self.spaces, peak_bytes, capacity=capacity, assumed=self.assumed, check=check
        )

    @property
    def assumed(self) -> Plan | None:
        """The recorded plan, on more copies of the model."""
        before, base = self.baseline.before.plan, self.spaces[0].base
        data, rest = divmod(self.spaces[0].num_ranks, before.ranks_of_replica)
        if rest:
            return None
        batch = replace(base, data=1).global_batch
        return replace(before, data=data, global_batch=batch, path=None, layers_of_chunk=None)

    def __reduce__(self) -> tuple[object, ...]:
        """Another process finds works for itself."""
        return RecordedGround, (self.baseline, self.spaces)

    def work_key(self, plan: Plan) -> Hashable:
        """By what a rank does for a microbatch, as recorded."""
        return _probe(self.baseline.before.plan, plan)

    @cached_property
    def bounds(self) -> Callable[[Sequence[Plan]], list[int | str]]:
        """From the recorded computation of stages."""
        return partial(quick_bounds, self)

    def quick_ns(self, plan: Plan) -> int:
        """From the recorded computation of stages, and how long a pipeline fills and drains."""
        alone, stages = self._chunks_ns(plan), plan.pipeline
        work_ns = plan.num_microbatches * alone.sum(axis=0).reshape(-1, stages).sum(axis=0)
        return int((work_ns + fill_and_drain_ns(alone[:, :stages], _PASSES)).max())

    def run_ns(self, plan: Plan) -> int:
        """From the plan's schedule, run unit by unit."""
        schedule = schedule_of(plan)
        own = np.ascontiguousarray(self._chunks_ns(plan)[:, places_on_route(schedule)])
        begin_ns = np.zeros(plan.pipeline, np.int64)
        ends_ns = stage_ends_ns(schedule, UnitTimes(own, own, np.zeros_like(own[0]), begin_ns))
        return 0 if ends_ns is None else int(ends_ns.max())

    def _chunks_ns(self, plan: Plan) -> Int64s:
        """What chunks of a route take at least; int64[kinds of passes, chunks]."""
        found = np.zeros((len(Pass), plan.pipeline * plan.num_chunks), np.int64)
        work = self._work(plan)
        at = np.repeat(np.arange(found.shape[1]), chunk_layers(plan, work.shape[1] - 2))
        if plan.schedule in {"1f1b", "gpipe", "interleaved"}:
            for row in _PASSES:
                found[row] = np.bincount(at, work[row, 1:-1], found.shape[1])
            found[: len(work), 0] += work[:, 0]
            found[: len(work), -1] += work[:, -1]
        return found

    def _work(self, plan: Plan) -> Int64s:
        """What parts of the model take a rank at least; int64[passes, 2 + layers].

        The embedding first, the head last.

        Raises:
            ScenarioError: where the recording does not show it even at its own degrees.
        """
        probe = _probe(self.baseline.before.plan, plan)
        if probe not in self._works:
            self._works[probe] = self._work_of(probe)
        found = self._works[probe]
        if isinstance(found, str):
            raise ScenarioError(found)
        return found

    def _work_of(self, probe: Plan) -> Int64s | str:
        """Of a plan with the recorded pipeline; or why it is not known."""
        try:
            found = outcome(self.baseline, scenario_of(self.baseline, probe))
        except (ScenarioError, WorkloadError) as err:
            return str(err)
        if found.method != ARRANGED:
            return f"{ONLY_A_MODEL}: {found.notes[0]}"
        alone_ns = self._alone_ns(found.timeline, found.costs.duration_ns)
        num_layers = self.baseline.before.sizes.layers or 0
        return least_work_ns(
            found.timeline, alone_ns, num_layers, num_microbatches=probe.num_microbatches
        )

    def _alone_ns(self, timeline: Timeline, duration_ns: Int64s) -> Int64s:
        """Durations without any communication beside kernels, at least."""
        most = max(float(self.baseline.slowdowns.factor.max(initial=1.0)), 1.0)
        beside = beside_communication(timeline)
        saved: Int64s = np.floor(duration_ns * (1 - (1 - 1 / most) * beside)).astype(np.int64)
        return saved

    @cached_property
    def simulates(self) -> Callable[[Plan], int | str]:
        """As `whatif` does."""
        return partial(_arranged_ns, self.baseline)

    @cached_property
    def samples(self) -> Callable[[Plan], int | str]:
        """As recorded operations vary, around what they take under the plan."""
        models = fit_models([self.baseline.program.graph], by_place=True)
        return partial(_p95_ns, self.baseline, models)

    def looked(self, plan: Plan, *, number: int, unit_ns: int | None) -> Looked:
        """With its interval, what is known from where, and what was taken to be so."""
        found = outcome(self.baseline, scenario_of(self.baseline, plan))
        peak = None if self._memory is None else int(self._memory.stage_bytes(plan).max())
        return Looked(
            number=number,
            plan=plan,
            step_ns=found.step_ns,
            low_ns=found.low_ns,
            high_ns=found.high_ns,
            unit_ns=unit_ns,
            peak_bytes=peak,
            capacity=self.capacity,
            step_parts=_parts_of(found.timeline),
            sources=_sources_of(found),
            notes=found.notes,
        )

    def question(self, plans: Sequence[Plan]) -> dict[str, object]:  # noqa: ARG002  as others do
        """The recorded times, and what was stated of the recorded job."""
        before = self.baseline.before
        return {
            "recording": digest(self.baseline.program.graph.measured_ns.tolist()),
            "model": self.names[0],
            "machine": self.names[1],
            "recorded": digest([before.plan, before.sizes, before.machine]),
        }


def scenario_of(baseline: Baseline, plan: Plan) -> Scenario:
    """The recorded job under another plan, on more hosts of its machine where it has too few."""
    machine = baseline.before.machine
    grown = machine if machine is None else with_hosts(machine, plan.num_ranks)
    return replace(baseline.before, plan=plan, machine=grown)


def _arranged_ns(baseline: Baseline, plan: Plan) -> int | str:
    """The step of a plan, or why recorded pieces do not tell it."""
    try:
        found = outcome(baseline, scenario_of(baseline, plan))
    except (ScenarioError, WorkloadError) as err:
        return str(err)
    if found.method != ARRANGED:
        return f"{ONLY_A_MODEL}: {found.notes[0]}"
    return found.step_ns


def _p95_ns(baseline: Baseline, models: FittedModels, plan: Plan) -> int | str:
    found = outcome(baseline, scenario_of(baseline, plan))
    graph = replace(found.timeline.graph, measured_ns=found.costs.duration_ns)
    sampling = Sampling(num_samples=SAMPLED_STEPS, workers=1, has_shares=False)
    steps = recorded_steps(graph, models, sampling, keeps_means=True)
    # Of the step that is told, as steps that a recording has are not all the same.
    return round(found.step_ns * max(steps.quantile(0.95).step_ns / steps.fixed_ns, 1.0))


def _probe(before: Plan, plan: Plan) -> Plan:
    """A plan under which a rank does for a microbatch what it does under another, as recorded."""
    sharding = plan.sharding if before.data > 1 else before.sharding
    ranks = plan.tensor * plan.context
    data = max(before.data, -(-plan.expert * expert_tensor_size(plan) // ranks))
    return replace(
        plan,
        pipeline=before.pipeline,
        schedule=before.schedule,
        num_chunks=before.num_chunks,
        contiguous=before.contiguous,
        layers_of_chunk=before.layers_of_chunk,
        data=data,
        global_batch=before.num_microbatches * plan.micro_batch * data,
        sharding=sharding,
        name="",
        path=None,
    )


def least_work_ns(
    timeline: Timeline, alone_ns: Int64s, num_layers: int, *, num_microbatches: int
) -> Int64s:
    """What every part of a model takes a rank at least for a microbatch, on its busiest stream.

    Returns:
        int64[passes, 2 + layers], the embedding first, the head last.
    """
    graph = timeline.graph
    kind = NodeKind.KERNEL if graph.has_device else NodeKind.OPERATOR
    column = np.full(graph.num_nodes, -1, np.int64)
    is_layer = (graph.part == Part.LAYER) & (graph.layer >= 0) & (graph.layer < num_layers)
    column[is_layer] = graph.layer[is_layer] + 1
    column[graph.part == Part.EMBEDDING] = 0
    column[np.isin(graph.part, (Part.HEAD, Part.LOSS))] = num_layers + 1
    row = np.full(graph.num_nodes, -1, np.int64)
    for phase, own in _PHASES.items():
        row[graph.phase == phase] = own
    is_known = (graph.microbatch >= 0) | (num_microbatches == 1)
    nodes = np.flatnonzero((graph.kind == kind) & (column >= 0) & (row >= 0) & is_known)
    nodes = nodes[_is_on_busiest(graph.rank[nodes], graph.lane[nodes], row[nodes], alone_ns[nodes])]
    found = np.full((len(_PASSES), num_layers + 2), np.iinfo(np.int64).max)
    keys = (graph.rank, graph.step, graph.microbatch, row, column)
    unit = numbered_rows([key[nodes] for key in keys])
    work_ns = np.bincount(unit, alone_ns[nodes]).astype(np.int64)
    first = np.unique(unit, return_index=True)[1]
    np.minimum.at(found, (row[nodes[first]], column[nodes[first]]), work_ns)
    return np.where(found == np.iinfo(np.int64).max, 0, found)


def _is_on_busiest(rank: Int32s, lane: Int32s, row: Int64s, time_ns: Int64s) -> Bools:
    """Which nodes stand on the lane that has most of their rank's time of a pass; bool[nodes]."""
    of_lane, of_rank = numbered_rows([rank, row, lane]), numbered_rows([rank, row])
    total_ns = np.bincount(of_lane, time_ns)[of_lane] if len(rank) else time_ns
    most_ns = np.zeros(int(of_rank.max(initial=-1)) + 1)
    np.maximum.at(most_ns, of_rank, total_ns)
    busiest: Bools = total_ns >= most_ns[of_rank]
    return busiest


def _parts_of(timeline: Timeline) -> StepParts:
    """The step of the mean rank in parts."""
    found = breakdown(timeline)
    parts, count = found.overall, max(len(found.rows), 1)
    return StepParts(
        compute_ns=parts.exposed_compute_ns // count,
        overlapped_ns=parts.overlapped_ns // count,
        waiting_ns=parts.waiting_for_ranks_ns // count,
        idle_ns=parts.idle_ns // count,
        transfer_ns_by_group={"exposed": parts.exposed_transfer_ns // count},
    )


def _sources_of(found: ScenarioOutcome) -> dict[str, float]:
    """Shares of all nodes' time by where their durations come from."""
    time_ns = np.bincount(found.costs.source, found.costs.duration_ns, len(Source))
    shares = time_ns / max(time_ns.sum(), 1)
    return {source.name.lower(): float(shares[source]) for source in Source if shares[source]}

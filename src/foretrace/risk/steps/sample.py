"""Step-time distributions: of a recorded job, and of a plan that has not been run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze import Windows, windows
from foretrace.balance import Documents, ExpertLoad, ExpertPlacement, document_work
from foretrace.base import Bools, Float64s, Int32s, RiskError, SweepEngine, mapped
from foretrace.cost import CostModel, Inflation, step_costs
from foretrace.estimate import Follows, drawn_mix, expert_work, routing_of, simulated_step
from foretrace.graph import NO_STEP, ExecutionGraph, NodeKind
from foretrace.machine import Machine
from foretrace.risk.steps.distribution import Scale, Shares, StepDistribution
from foretrace.risk.steps.fit import FittedModels, fit_models
from foretrace.risk.steps.models import Variation
from foretrace.risk.steps.paths import shares
from foretrace.risk.steps.varying import (
    Mix,
    cell_replicas,
    cells_of,
    draws_of,
    draws_of_recording,
    jitter_notes,
    step_factors_of,
)
from foretrace.simulate import (
    FIXED,
    LANES,
    NO_GOAL,
    Cells,
    Draws,
    simulate,
    simulate_cells,
    simulate_samples,
)
from foretrace.workload import (
    Model,
    Plan,
    Transformer,
    blocks_of_model,
    check_plan,
    layout,
    schedule_of,
)

NUM_BATCHES = 4  # sampled apart, so that they tell how sure a quantile is
_REPEATS = 2  # steps of each job: the least that tells apart what lasts from what averages out
# Lanes for each cell: with 32 of them, batches differ by what a few tens of jobs do. Fewer than 4
# and jobs have most of their cells in common.
_LANES_PER_CELL, _LEAST_PER_CELL = 32, 4
_LANES_AT_LEAST = 512
_NODES_AT_MOST = 1_500_000_000  # simulated for more than the samples that were asked for

_DOCUMENTS = (
    "documents as they come, {}; who carries the variance is told without them, and smaller jobs "
    "have one document each"
)
_EXPERTS = (
    "experts have the load of {}, drawn for every cell and step; who carries the variance is told "
    "with an even one, and smaller jobs have one"
)
_LEAST_STEPS = 8  # from which interruptions of the host are told apart by their rareness

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How much to sample."""

    num_samples: int = 1000
    seed: int = 0
    budget_s: float | None = None  # stop after the batch that ends later than this
    workers: int | None = None
    engine: SweepEngine = SweepEngine.PROCESSES
    has_shares: bool = True
    has_scales: bool = False
    progress: Progress | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be sampled.

        Raises:
            RiskError: if there are no samples, or the budget is no time.
        """
        if self.num_samples < 1:
            raise RiskError(f"samples must be 1 or more, got {self.num_samples}")
        if self.budget_s is not None and not self.budget_s > 0:
            raise RiskError(f"a budget must be more than 0 s, got {self.budget_s}")

    def batch_seed(self, batch: int) -> int:
        """A seed of its own for every batch."""
        return self.seed * 1_000_003 + batch

    def batches(self, sample: Callable[[int], Float64s]) -> Float64s:
        """All batches, or as many as the budget allows, two at least; float64[batches, ...]."""
        begin = time.monotonic()
        found = []
        # Threads share one process's batch; a cluster does batches beside each other.
        count = NUM_BATCHES if self.engine is SweepEngine.RAY else 1
        with mapped(count, self.engine) as over:
            for batch, one in enumerate(over(sample, range(NUM_BATCHES))):
                found.append(one)
                if self.progress is not None:
                    self.progress(batch + 1, NUM_BATCHES)
                is_over = self.budget_s is not None and time.monotonic() - begin > self.budget_s
                if is_over and batch:
                    break
        return np.stack(found)


def recorded_steps(
    graph: ExecutionGraph,
    models: FittedModels | None = None,
    sampling: Sampling | None = None,
    *,
    title: str = "",
    has_host: bool | None = None,
    keeps_means: bool = False,
) -> StepDistribution:
    """How long the steps of a recorded program take.

    The ranks stay those of the recording, slow ones slow.

    Args:
        graph: of the program.
        models: of another recording, to predict this program's steps; fitted to the graph itself
            if left out.
        sampling: how much.
        title: what it is called.
        has_host: host work varies; if left out, where the models know 8 steps or more. In fewer,
            an interruption of the host cannot be told from what the host always does there.
        keeps_means: operations take as long as the graph says in the mean; the models, of the same
            work in another arrangement, say how that varies.

    Raises:
        RiskError: if no step is recorded.
    """
    chosen = sampling or Sampling()
    known = fit_models([graph], by_place=True) if models is None else models
    varies = known.num_steps >= _LEAST_STEPS if has_host is None else has_host
    mean, matched = draws_of_recording(
        graph, known, num_samples=1, seed=0, own=models is None or keeps_means, has_host=varies
    )
    fixed = simulate(graph, np.rint(mean.duration_ns).astype(np.int64))
    steps = windows(fixed)
    if not len(steps):
        raise RiskError("no step is marked in the recording, so none can be sampled")
    goal, is_before = _goals(graph, steps)
    alike = steps.rows_alike()
    repeats = -(-chosen.num_samples // len(alike))
    jobs = max(1, -(-repeats // NUM_BATCHES))

    still = _fixed_before(mean, graph, is_before)

    def draws(batch: int) -> Draws:
        seed = chosen.batch_seed(batch)
        factor = step_factors_of(known, len(graph.step_names), num_samples=jobs, seed=seed)
        return replace(still, factor=factor, seed=seed)

    def sample(batch: int) -> Float64s:
        ends = simulate_samples(graph, draws(batch), goal, workers=chosen.workers)
        return _lengths(ends, steps)[:, alike]

    step_ns = chosen.batches(sample)
    row, kind = steps.row_of(None), steps.kinds()[alike[0]]
    notes = []
    if len(alike) < len(steps):
        words = f"steps that {kind.words}" if kind is not None else "steps of no marked batch"
        notes.append(
            f"{words} are told, {len(alike)} of {len(steps)}: the others are of other batches, "
            "and how they differ is no chance"
        )
    if not varies:
        notes.append(
            f"host work stays as recorded: {known.num_steps} recorded steps say too little of how "
            "it varies"
        )
    if matched.unknown:
        notes.append(
            f"{1 - matched.known_share:.1%} of the time is in operations that the models do not "
            f"know, which keep what was recorded: {', '.join(matched.unknown[:5])}"
        )
    return StepDistribution(
        title=title or f"{len(graph.ranks)} recorded ranks",
        fixed_ns=float(np.median(steps.duration_ns[alike])),
        step_ns=step_ns,
        num_ranks=len(graph.ranks),
        method="every rank",
        sources={"name": "fitted to a recording", **known.as_json()},
        shares=shares(graph, draws(0), row=row) if chosen.has_shares else Shares(),
        notes=tuple(notes),
    )


def _goals(graph: ExecutionGraph, steps: Windows) -> tuple[Int32s, Bools]:
    """The step whose end a node may be, and which nodes come before the first step."""
    row = np.full(len(graph.step_names) + 1, NO_GOAL, np.int32)
    row[steps.step] = np.arange(len(steps))
    ends = (NodeKind.STEP_BEGIN, NodeKind.STEP_END, NodeKind.KERNEL, NodeKind.MEMCPY)
    closes = graph.is_of(*ends, NodeKind.MEMSET, NodeKind.FINISH) & (graph.rank >= 0)
    goal = np.where(closes & (graph.step != NO_STEP), row[graph.step], NO_GOAL).astype(np.int32)
    first = np.flatnonzero(graph.step == steps.step[0])
    return goal, np.arange(graph.num_nodes) < (first[0] if len(first) else 0)


def _fixed_before(draws: Draws, graph: ExecutionGraph, is_before: Bools) -> Draws:
    """Draws that leave alone what happens before the first step, so that it begins when it did."""
    return replace(
        draws,
        make=np.where(is_before, FIXED, draws.make).astype(np.int32),
        label=np.where(is_before, 0, draws.label).astype(np.int32),
        duration_ns=np.where(is_before, graph.measured_ns, draws.duration_ns).astype(np.float64),
    )


def _lengths(ends_ns: Float64s, steps: Windows) -> Float64s:
    """Lengths of steps from when they end; float64[samples, steps]."""
    follows = steps.begin_ns[1:] == steps.end_ns[:-1]
    begin_ns = np.empty_like(ends_ns)
    begin_ns[:, 0] = steps.begin_ns[0]
    # Where steps are not recorded between two, the later one's begin moves with the earlier end.
    gap_ns = np.where(follows, 0, steps.begin_ns[1:] - steps.end_ns[:-1])
    begin_ns[:, 1:] = ends_ns[:, :-1] + gap_ns
    return np.maximum(ends_ns - begin_ns, 0.0)


@dataclass(frozen=True)
class SampledCell:
    """The part of a job that is simulated rank by rank, with its mean durations."""

    graph: ExecutionGraph
    duration_ns: Float64s
    plan: Plan
    num_replicas: int
    cells: Cells
    machine: Machine

    @property
    def goal(self) -> Int32s:
        """0 of the nodes that end the step."""
        is_end = self.graph.kind == NodeKind.STEP_END
        return np.where(is_end, 0, NO_GOAL).astype(np.int32)

    @property
    def num_ranks(self) -> int:
        """Ranks of one cell."""
        return self.plan.num_ranks // self.cells.num_cells


def cell_of(
    model: Model,
    plan: Plan,
    machine: Machine,
    *,
    costs: CostModel | None = None,
    inflation: Inflation | None = None,
    folded: bool = True,
) -> SampledCell:
    """One cell of a job, or with `folded` false all of it as one."""
    check_plan(plan, model)
    if plan.num_ranks > machine.num_ranks:
        raise RiskError(
            f"the plan needs {plan.num_ranks:,} chips, and machine {machine.name!r} has "
            f"{machine.num_ranks:,}: take a larger machine or fewer ranks"
        )
    count = cell_replicas(plan) if folded else plan.data
    blocks = blocks_of_model(model, plan)
    graph = layout(blocks, plan, schedule_of(plan), num_replicas=count).graph
    done = simulated_step(graph, costs or step_costs(machine), inflation or Inflation())
    return SampledCell(
        graph, done.duration_ns.astype(np.float64), plan, count, cells_of(graph, plan, count),
        machine,
    )  # fmt: skip


def estimated_steps(
    model: Model,
    plan: Plan,
    machine: Machine,
    *,
    variation: Variation,
    sampling: Sampling | None = None,
    costs: CostModel | None = None,
    inflation: Inflation | None = None,
    folded: bool = True,
    documents: Documents | None = None,
    expert_load: ExpertLoad | None = None,
) -> StepDistribution:
    """How long steps of a plan take that has not been run.

    Args:
        model: of any kind that has layers.
        plan: complete.
        machine: with as many chips as the plan has ranks, or more.
        variation: what varies, and how much.
        sampling: how much.
        costs: what predicts mean durations; as in an estimate if left out.
        inflation: how much slower kernels are beside communication; as in an estimate.
        folded: simulate one cell of the job instead of all; see `simulate_cells`.
        documents: of a dataset, as they come; every copy of the model has its own. Without,
            microbatches are one document each.
        expert_load: how tokens are spread over experts, drawn for every cell and step, experts
            in order; even, if left out.

    Raises:
        WorkloadError: if the plan is not legal for the model.
        MachineError: if the machine cannot be costed.
        RiskError: if the machine is too small, or a cell of it has several copies of the model
            with documents of their own.
    """
    chosen = sampling or Sampling()
    if documents is not None and not isinstance(model, Transformer):
        raise RiskError(f"{model.name} is no transformer: it has no documents")
    priced = costs or step_costs(machine)
    cell = cell_of(model, plan, machine, costs=priced, inflation=inflation, folded=folded)
    mix_of = None
    if isinstance(model, Transformer) and (documents or expert_load):
        mix_of = _mixes(cell, model, documents, expert_load, costs=priced)
    fixed = simulate(cell.graph, np.rint(cell.duration_ns).astype(np.int64))
    count = cell.cells.num_cells
    wanted = -(-chosen.num_samples // (NUM_BATCHES * _REPEATS))
    lanes = max(wanted, _lanes(cell, NUM_BATCHES * _REPEATS))
    lanes = -(-lanes // LANES) * LANES

    def sample(batch: int) -> Float64s:
        return cell_samples(
            cell, variation, num_lanes=lanes, seed=chosen.batch_seed(batch),
            mix=None if mix_of is None else mix_of(lanes, chosen.batch_seed(batch)),
            workers=chosen.workers,
        )  # fmt: skip

    step_ns = chosen.batches(sample)
    whole = f"one cell of {cell.num_ranks} ranks for {count}"
    return StepDistribution(
        title=f"{model.name} on {plan.num_ranks:,} x {machine.chip.name}",
        fixed_ns=float(windows(fixed).duration_ns[0]),
        step_ns=step_ns,
        num_ranks=plan.num_ranks,
        method="every rank" if count == 1 else whole,
        sources=variation.as_json(),
        shares=_cell_shares(cell, variation, chosen)
        if chosen.has_shares and mix_of is None
        else Shares(),
        scales=_scales(cell, variation, chosen) if chosen.has_scales else (),
        notes=(
            *_notes(count, chosen),
            *(() if documents is None else (_DOCUMENTS.format(documents.name),)),
            *(() if expert_load is None else (_EXPERTS.format(expert_load.name),)),
            *jitter_notes(machine),
        ),
    )


def _mixes(
    cell: SampledCell,
    model: Transformer,
    documents: Documents | None,
    load: ExpertLoad | None,
    *,
    costs: CostModel,
) -> Callable[[int, int], Mix]:
    """What draws documents and loads of experts for so many lanes, with a seed."""
    if documents is not None and cell.num_replicas > 1:
        raise RiskError(
            f"a cell of this plan has {cell.num_replicas} copies of the model, and documents are "
            "drawn for one: leave expert ranks within one copy, or shard over all copies"
        )
    experts = None
    if load is not None:
        experts = expert_work(
            model, cell.plan, cell.graph, costs=costs,
            laid_out=lambda plan: layout(
                blocks_of_model(model, plan), plan, schedule_of(plan),
                num_replicas=cell.num_replicas,
            ).graph,
        )  # fmt: skip
    follows = Follows.of(cell.graph, experts)
    work = None if documents is None else document_work(model, cell.plan, costs)

    def drawn(num_lanes: int, seed: int) -> Mix:
        tokens = attention = np.ones((num_lanes, follows.num_microbatches))
        if documents is not None and work is not None:
            tokens, attention = drawn_mix(
                cell.plan, work, documents=documents, num_copies=num_lanes, seed=seed
            )
        fullest = None
        if load is not None and experts is not None:
            fullest = load.drawn(
                routing_of(model, cell.plan, len(experts.layers)), ExpertPlacement(),
                num_steps=num_lanes, num_microbatches=follows.num_microbatches, seed=seed,
            ).fullest  # fmt: skip
        return Mix(follows.label, follows.factors(tokens, attention, fullest))

    return drawn


def _lanes(cell: SampledCell, num_runs: int) -> int:
    """Lanes that so many runs should have at least."""
    count = cell.cells.num_cells
    if count == 1:
        return LANES
    wanted = max(_LANES_PER_CELL * count, _LANES_AT_LEAST)
    affordable = _NODES_AT_MOST // (num_runs * cell.graph.num_nodes)
    return max(_LEAST_PER_CELL * count, min(wanted, affordable))


def _notes(count: int, chosen: Sampling) -> tuple[str, ...]:
    if count == 1 or not chosen.has_shares:
        return ()
    return (
        (
            "variance by operation and rank, and the slowest path, are those of one cell that "
            "waits for no other"
        ),
    )


def cell_samples(
    cell: SampledCell,
    variation: Variation,
    *,
    num_lanes: int,
    seed: int,
    cells: Cells | None = None,
    num_repeats: int = _REPEATS,
    mix: Mix | None = None,
    workers: int | None = None,
) -> Float64s:
    """Sampled steps of a job; float64[jobs, steps of each]."""
    draws = draws_of(
        cell.graph, cell.duration_ns, variation, num_samples=num_lanes, seed=seed, mix=mix,
        machine=cell.machine,
    )  # fmt: skip
    found = simulate_cells(
        cell.graph, draws, cells or cell.cells, goal=cell.goal, num_repeats=num_repeats,
        workers=workers,
    )  # fmt: skip
    return (found * step_factors(variation, found.shape, seed)).T


def step_factors(variation: Variation, shape: tuple[int, ...], seed: int) -> Float64s:
    """A factor for each step that everything in it has in common."""
    if not variation.step.variation:
        return np.ones(shape)
    generator = np.random.default_rng([seed, 1])
    return variation.step.quantile(generator.random(shape))


def _cell_shares(cell: SampledCell, variation: Variation, chosen: Sampling) -> Shares:
    draws = draws_of(
        cell.graph, cell.duration_ns, variation, num_samples=256, seed=chosen.batch_seed(0),
        machine=cell.machine,
    )  # fmt: skip
    return shares(cell.graph, draws, is_laid_out=True)


def _scales(cell: SampledCell, variation: Variation, chosen: Sampling) -> tuple[Scale, ...]:
    """Steps of jobs of fewer cells, each doing what it does in the whole one."""
    counts = [1 << power for power in range(cell.cells.num_cells.bit_length())]
    if counts[-1] != cell.cells.num_cells:
        counts.append(cell.cells.num_cells)
    found = []
    for count in counts:
        taking_part = {
            one: tuple(each for each in one if each < count)
            for one in set(cell.cells.by_collective)
        }
        cells = Cells(count, tuple(taking_part[one] for one in cell.cells.by_collective))
        lanes = -(-max(_LANES_AT_LEAST, _LEAST_PER_CELL * count) // LANES) * LANES
        step_ns = cell_samples(
            cell, variation, num_lanes=lanes, seed=chosen.batch_seed(NUM_BATCHES), cells=cells,
            num_repeats=_REPEATS, workers=chosen.workers,
        )  # fmt: skip
        low, middle, high = np.quantile(step_ns, [0.05, 0.5, 0.95]).tolist()
        replicas = count * cell.num_replicas
        found.append(
            Scale(replicas, count * cell.num_ranks, float(step_ns.mean()), low, middle, high)
        )
    return tuple(found)

"""Graphs with varying durations: of recordings, of laid-out plans, and messages' latencies.

A tier's jitter is a law of what one message takes beyond its latency. Messages of a collective
that wait for one another add up, and of ways beside each other the last to end counts, so its
duration is what it takes without jitter, times how collectives vary, and the largest of sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foretrace.answer import duration_text
from foretrace.base import Bools, Float32s, Float64s, Int32s, Int64s, RiskError, check_fits
from foretrace.cost import MessagesOfTier, messages_with_jitter
from foretrace.graph import NO_COLLECTIVE, ExecutionGraph, NodeKind
from foretrace.machine import Machine, Tier
from foretrace.risk.steps.fit import (
    COMMUNICATION,
    WORK,
    FittedModels,
    Timed,
    place_mean_ns,
    timed,
    without_host,
)
from foretrace.risk.steps.models import DurationModel, Family, Variation, stated_model
from foretrace.simulate import (
    FIXED,
    NUM_POINTS,
    Cells,
    Draws,
    probabilities,
    quantile_table,
    table_mean,
)
from foretrace.workload import Group, Plan, group_size, groups_of, replica_of_rank

_KERNEL, _COLLECTIVE = 0, 1  # rows of the table
_MOST_FACTORS = 2**28  # 2 GiB
_BYTES_OF_FACTOR = 48  # its place, its draw and its quantile, and what they are made of


@dataclass(frozen=True)
class JitterDraws:
    """Ends of collectives with such messages, and rows of tables to draw them from."""

    node: Int64s  # int64[ends]
    row: Int64s  # int64[ends]
    mean_ns: Float64s  # float64[rows], of the whole duration
    table: Float32s  # float32[rows, NUM_POINTS], factors with mean 1


def jitter_draws(
    graph: ExecutionGraph, duration_ns: Float64s, machine: Machine, *, varies: DurationModel
) -> JitterDraws | None:
    """How the durations of collectives over tiers with jitter vary; `None`: no tier has any.

    Args:
        graph: laid out; ranks are places of the machine.
        duration_ns: float64[nodes], with the mean of what messages in turn take.
        machine: whose tiers say how latency varies.
        varies: what collectives' durations are drawn from without jitter, its mean 1.
    """
    tiers = {tier.name: tier for tier in machine.tiers if tier.jitter_ns is not None}
    if not tiers:
        return None
    found = [
        messages_with_jitter(one.name, one.ranks, machine=machine)
        for one in graph.collectives.makes
    ]
    ends = np.flatnonzero((graph.kind == NodeKind.FINISH) & (graph.collective != NO_COLLECTIVE))
    make = graph.collectives.make.astype(np.int64)[graph.collective[ends]]
    has_any = np.array([bool(messages) for messages in found], np.bool_)[make]
    ends, make = ends[has_any & (duration_ns[ends] > 0)], make[has_any & (duration_ns[ends] > 0)]
    distinct, row = np.unique(np.stack([make, duration_ns[ends]]), axis=1, return_inverse=True)
    means, tables = np.ones(distinct.shape[1]), np.ones((distinct.shape[1], NUM_POINTS))
    for at, (own, taken_ns) in enumerate(distinct.T.tolist()):
        means[at], tables[at] = _row(found[int(own)], tiers, taken_ns, varies)
    return JitterDraws(ends, row.reshape(-1), means, tables.astype(np.float32))


def jitter_notes(machine: Machine) -> Iterator[str]:
    """A sentence for each tier whose latency varies."""
    for tier in machine.tiers:
        if tier.jitter_ns is not None:
            yield (
                f"a message over tier {tier.name!r} takes {duration_text(round(tier.jitter_ns))} "
                f"beyond its latency in the mean, {tier.law_text}"
            )


def _row(
    messages: tuple[MessagesOfTier, ...],
    tiers: dict[str, Tier],
    taken_ns: float,
    varies: DurationModel,
) -> tuple[float, Float64s]:
    """Mean of a collective's duration, and its quantiles over that."""
    rest_ns = max(taken_ns - sum(one.num_in_turn * one.mean_ns for one in messages), 0.0)
    parts = [rest_ns * quantile_table(varies.quantile, 1.0).astype(np.float64)]
    parts += [_largest_of_sums(one, tiers[one.tier]) for one in messages]
    parts = [one for one in parts if one.any()]
    whole = parts[0]
    for other in parts[1:]:
        whole = _sum_of(whole, other)
    mean = table_mean(whole)
    return mean, whole / max(mean, 1e-9)


def _largest_of_sums(one: MessagesOfTier, tier: Tier) -> Float64s:
    """Quantiles of what messages in turn take, of the slowest of some ways."""
    variation = tier.jitter_variation / math.sqrt(one.num_in_turn)
    # Sums of exponential and gamma variables are gamma; of lognormal ones taken as lognormal.
    family = Family.LOGNORMAL if tier.jitter_law == Family.LOGNORMAL else Family.GAMMA
    model = stated_model(family, variation)
    probability = _inner_probabilities()
    return one.num_in_turn * one.mean_ns * model.maximum(one.num_ways, probability)


def _inner_probabilities() -> Float64s:
    """Where tables have their points, those of 0 and 1 as near to these as the others come."""
    probability = probabilities()
    inside = probability[(probability > 0) & (probability < 1)]
    return np.clip(probability, inside.min(), inside.max())


def _sum_of(one: Float64s, other: Float64s) -> Float64s:
    """Quantiles of a sum of two independent draws."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return one + other
    at = _inner_probabilities()
    order = np.argsort(at, kind="stable")
    inside = np.unique(at)
    edges = np.concatenate([[0.0], (inside[1:] + inside[:-1]) / 2, [1.0]])
    mass = np.diff(edges)
    values = [np.interp(inside, at[order], part[order]) for part in (one, other)]
    sums = (values[0][:, None] + values[1]).ravel()
    masses = (mass[:, None] * mass).ravel()
    rising = np.argsort(sums, kind="stable")
    ends = np.cumsum(masses[rising])
    middle = ends - masses[rising] / 2
    found: Float64s = np.interp(at, middle, sums[rising])
    return found


@dataclass(frozen=True, eq=False)
class Mix:
    """What documents and the load of experts make of each sample's microbatches."""

    label: Int32s  # int32[nodes], of `Follows`
    own: Float64s  # float64[samples, labels], times durations

    def joined(self, label: Int64s, factor: Float64s) -> tuple[Int64s, Float64s]:
        """Labels and factors of GPUs, times those of microbatches.

        Raises:
            RiskError: if the table of factors would not fit.
        """
        count = self.own.shape[1]
        if factor.size * count > _MOST_FACTORS:
            raise RiskError(
                f"{factor.shape[1]:,} GPUs with {count:,} parts of microbatches in {len(factor):,} "
                f"samples need a table of {factor.size * count:,} factors, above "
                f"{_MOST_FACTORS:,}: take fewer samples, or a smaller plan"
            )
        both = (factor[:, :, None] * self.own[:, None, :]).reshape(len(factor), -1)
        return label * count + self.label, both


def draws_of(
    graph: ExecutionGraph,
    duration_ns: Int64s | Float64s,
    variation: Variation,
    *,
    num_samples: int,
    seed: int,
    factor: Float64s | None = None,
    mix: Mix | None = None,
    machine: Machine | None = None,
) -> Draws:
    """How the durations of a laid-out graph vary.

    Args:
        graph: of any ranks of the job.
        duration_ns: of every node, on a GPU as fast as the mean.
        variation: what varies.
        num_samples: rows of `factor`.
        seed: of every draw.
        factor: float64[samples, 1 + ranks of the graph] of each GPU in each sample, column 0 being
            1; drawn if left out.
        mix: documents and load of experts of each sample's microbatches.
        machine: whose tiers' latency varies as they say; not at all, if left out.
    """
    is_kernel = graph.is_device
    is_finish = graph.kind == NodeKind.FINISH
    make = np.full(graph.num_nodes, FIXED, np.int32)
    make[is_kernel] = _KERNEL if variation.kernel.variation else FIXED
    make[is_finish] = _COLLECTIVE if variation.collective.variation else FIXED
    mean_ns: Float64s = np.array(duration_ns, np.float64)
    table = np.stack([variation.kernel.table(), variation.collective.table()])
    jitter = None
    if machine is not None:
        jitter = jitter_draws(graph, mean_ns, machine, varies=variation.collective)
    if jitter is not None:
        make[jitter.node] = jitter.row + len(table)
        mean_ns[jitter.node] = jitter.mean_ns[jitter.row]
        table = np.concatenate([table, jitter.table])
    number = np.arange(graph.num_nodes, dtype=np.int64)
    shared = graph.num_nodes + graph.collective.astype(np.int64)
    ranks = np.array(graph.ranks, np.int64)
    label = np.where(is_kernel, np.searchsorted(ranks, graph.rank) + 1, 0)
    if factor is None:
        own = gpu_factors(variation.gpu, len(ranks), num_samples=num_samples, seed=seed)
        factor = np.hstack([np.ones((num_samples, 1)), own])
    if mix is not None:
        label, factor = mix.joined(label, factor)
    return Draws(
        duration_ns=mean_ns,
        make=make,
        draw=np.where(is_finish & (graph.collective != NO_COLLECTIVE), shared, number),
        table=table,
        label=label.astype(np.int32),
        factor=factor,
        seed=seed,
    )


def gpu_factors(model: DurationModel, num_gpus: int, *, num_samples: int, seed: int) -> Float64s:
    """The factors of GPUs in many samples; float64[samples, gpus].

    Of every GPU each equal share of the distribution is drawn once (a Latin hypercube: McKay,
    Beckman, Conover 1979), since the slowest of many GPUs decides, and a few samples would have
    too many or too few of those.
    """
    check_fits(
        num_samples * num_gpus * _BYTES_OF_FACTOR,
        f"factors of {num_gpus:,} GPUs in {num_samples:,} samples",
        advice="take fewer samples",
    )
    if not model.variation:
        return np.ones((num_samples, num_gpus))
    generator = np.random.default_rng([seed, num_gpus])
    places = np.tile(np.arange(num_samples)[:, None], (1, num_gpus))
    places = generator.permuted(places, axis=0)
    return model.quantile((places + generator.random(places.shape)) / num_samples)


def cell_replicas(plan: Plan) -> int:
    """Copies of the model in one cell: so many that experts and shards are exchanged inside it.

    Shards over all copies are exchanged across cells.
    """
    replica = replica_of_rank(plan)
    groups = []
    if plan.expert > 1:
        groups += [replica[groups_of(plan, one)] for one in (Group.EXPERT, Group.EXPERT_TENSOR)]
    if group_size(plan, Group.REPLICA) > 1:
        groups.append(replica[groups_of(plan, Group.SHARD)])
    for count in range(1, plan.data + 1):
        inside = all(bool((one // count == one[:, :1] // count).all()) for one in groups)
        if plan.data % count == 0 and inside:
            return count
    return plan.data


def cells_of(graph: ExecutionGraph, plan: Plan, num_replicas: int) -> Cells:
    """The job that a graph of the first so many copies of the model is one cell of."""
    cell = replica_of_rank(plan) // num_replicas
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    found = []
    for one in graph.collectives:
        if one.ranks not in known:
            known[one.ranks] = tuple(np.unique(cell[list(one.ranks)]).tolist())
        found.append(known[one.ranks])
    return Cells(plan.data // num_replicas, tuple(found))


@dataclass(frozen=True)
class Matched:
    """How much of a graph's time the models know."""

    known_share: float
    unknown: tuple[str, ...]  # operations that keep their recorded durations, the longest first


def draws_of_recording(
    graph: ExecutionGraph,
    models: FittedModels,
    *,
    num_samples: int,
    seed: int,
    own: bool,
    has_host: bool = True,
) -> tuple[Draws, Matched]:
    """How the durations of a recorded graph vary.

    Args:
        graph: whose program is simulated.
        models: fitted to the same recording, or to another one.
        num_samples: rows of `factor`.
        seed: of every draw.
        own: the models are of this recording: a place in the program keeps its mean, as far as
            repeats show that it has one. Of another recording, an operation has one mean wherever
            it stands.
        has_host: host work varies; else it takes what was recorded.
    """
    found = timed(graph)
    if not has_host:
        found = without_host(found)
    known = [models.by_key.get(key) for key in found.keys]
    mean_ns = np.array([np.nan if one is None else one.mean_ns for one in known])
    expected_ns = mean_ns[found.operation] * _rank_factor(found, models)
    is_known = ~np.isnan(expected_ns)
    if own:
        factor = _rank_factor(found, models)
        expected_ns = place_mean_ns(found, factor) * factor
        is_single = np.array([one is not None and one.model.num_samples == 1 for one in known])
        expected_ns = np.where(is_single[found.operation], found.duration_ns, expected_ns)
    duration_ns = graph.measured_ns.astype(np.float64)
    duration_ns[found.node[is_known]] = expected_ns[is_known]
    make = np.full(graph.num_nodes, FIXED, np.int32)
    varies = np.array([one is not None and one.model.variation > 0 for one in known])
    row_of = np.cumsum(varies) - 1
    drawn = varies[found.operation]
    make[found.node[drawn]] = row_of[found.operation[drawn]]
    tables = [one.model.table() for one in known if one is not None and one.model.variation > 0]
    label = np.zeros(graph.num_nodes, np.int32)
    if models.num_steps > 1:
        chosen = found.node[is_known]
        label[chosen] = 1 + found.step[is_known] * len(WORK) + found.work[is_known]
    number = np.arange(graph.num_nodes, dtype=np.int64)
    is_shared = (graph.kind == NodeKind.FINISH) & (graph.collective != NO_COLLECTIVE)
    shared = graph.num_nodes + graph.collective.astype(np.int64)
    draws = Draws(
        duration_ns=duration_ns,
        make=make,
        draw=np.where(is_shared, shared, number),
        table=np.stack(tables) if tables else np.ones((1, NUM_POINTS), np.float32),
        label=label,
        factor=step_factors_of(models, len(graph.step_names), num_samples=num_samples, seed=seed),
        seed=seed,
    )
    return draws, _matched(found, is_known)


def _rank_factor(found: Timed, models: FittedModels) -> Float64s:
    """Factor of every node's rank; 1 of ranks that were not recorded."""
    place = {rank: at for at, rank in enumerate(models.ranks)}
    table = np.vstack([models.rank_factor, np.ones((1, COMMUNICATION))])
    table = np.hstack([table, np.ones((len(table), 1))])
    ranks, inverse = np.unique(found.rank, return_inverse=True)
    row = np.array([place.get(rank, -1) for rank in ranks.tolist()], np.int64)
    return table[row[inverse.reshape(-1)], found.work]


def step_factors_of(
    models: FittedModels, num_steps: int, *, num_samples: int, seed: int
) -> Float64s:
    """Step factors: runs of consecutive recorded steps; float64[samples, 1 + steps * 3]."""
    factor = np.ones((num_samples, 1 + num_steps * len(WORK)))
    if models.num_steps > 1:
        generator = np.random.default_rng([seed, num_steps])
        first = generator.integers(0, models.num_steps, num_samples)
        rows = (first[:, None] + np.arange(num_steps)) % models.num_steps
        factor[:, 1:] = models.step_factor[rows].reshape(num_samples, -1)
    return factor


def _matched(found: Timed, is_known: Bools) -> Matched:
    total = float(found.duration_ns.sum()) or 1.0
    missing: Int64s = np.flatnonzero(~is_known)
    by_operation = np.bincount(
        found.operation[missing], found.duration_ns[missing], minlength=len(found.keys)
    )
    order = np.argsort(-by_operation, kind="stable")
    names = [
        found.keys[at][3] or found.keys[at][2] for at in order.tolist() if by_operation[at] > 0
    ]
    return Matched(1.0 - float(by_operation.sum()) / total, tuple(dict.fromkeys(names)))

"""Laid-out graphs with varying durations: draws, and the job that a graph is one cell of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s, Int32s, Int64s, RiskError, check_fits
from foretrace.graph import NO_COLLECTIVE, ExecutionGraph, NodeKind
from foretrace.machine import Machine
from foretrace.risk.steps.jitter import jitter_draws
from foretrace.risk.steps.models import DurationModel
from foretrace.risk.steps.variation import Variation
from foretrace.simulate import FIXED, Cells, Draws
from foretrace.workload import Group, Plan, group_size, groups_of, replica_of_rank

_KERNEL, _COLLECTIVE = 0, 1  # rows of the table
_MOST_FACTORS = 2**28  # 2 GiB
_BYTES_OF_FACTOR = 48  # its place, its draw and its quantile, and what they are made of


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

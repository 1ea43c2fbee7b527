"""Recorded graphs with varying durations: draws from fitted models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Float64s, Int64s
from foretrace.graph import NO_COLLECTIVE, ExecutionGraph, NodeKind
from foretrace.risk.steps.fit import (
    COMMUNICATION,
    WORK,
    FittedModels,
    Timed,
    place_mean_ns,
    timed,
    without_host,
)
from foretrace.simulate import FIXED, NUM_POINTS, Draws


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

"""Messages whose latency varies: what they make of a collective's duration, as tables of draws.

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
from foretrace.base import Float32s, Float64s, Int64s
from foretrace.cost import MessagesOfTier, messages_with_jitter
from foretrace.graph import NO_COLLECTIVE, ExecutionGraph, NodeKind
from foretrace.machine import Machine, Tier
from foretrace.risk.steps.models import DurationModel, Family, stated_model
from foretrace.simulate import NUM_POINTS, probabilities, quantile_table, table_mean


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

"""Reachability against a closure kept as bitsets."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings

from tests import strategies
from tests.truth import (
    Dependency,
    Job,
    JobConfig,
    Reachability,
    make_job,
    quiet,
    transitive_closure_contains,
)
from tests.truth.records import Ref
from tests.truth.small import Launch, Synchronize, small_job


def closure(job: Job) -> dict[tuple[Ref, Ref], bool]:
    """Every ordered pair of operations, by brute force."""
    structure = job.structure
    bits = [0] * structure.num_nodes
    bit_of = {
        each.node: index
        for index, each in enumerate(each for rank in structure.ranks for each in rank.operations)
    }
    for node in structure.order.tolist():
        for edge in range(structure.first_edge[node], structure.first_edge[node + 1]):
            before = int(structure.predecessor[edge])
            bits[node] |= bits[before]
            if before in bit_of:
                bits[node] |= 1 << bit_of[before]
    named = [
        ((rank.rank, each.correlation), each)
        for rank in structure.ranks
        for each in rank.operations
    ]
    return {
        (before, after): bool(bits[late.arrive] >> bit_of[early.node] & 1)
        for before, early in named
        for after, late in named
    }


@given(strategies.small_jobs() | strategies.small_jobs(is_quiet=True))
@settings(max_examples=25, deadline=None)
def test_queries_agree_with_the_closure(job: Job) -> None:
    queries = Reachability(job)
    correlations = [
        (rank, each.correlation) for rank in range(job.num_ranks) for each in job.operations(rank)
    ]
    if len(set(correlations)) < len(correlations):
        return  # a graph launch: its kernels have no name of their own

    for (before, after), expected in closure(job).items():
        assert queries.contains(before, after) == expected


def test_queries_agree_with_the_closure_on_a_training_job() -> None:
    job = make_job(
        JobConfig(
            tp=2, dp=2, pp=2, num_layers=1, num_steps=1, num_microbatches=2, ring_exchange=True
        )
    )
    truth = closure(job)
    pairs = random.Random(1).sample(sorted(truth), 20_000)

    answers = transitive_closure_contains(job, pairs)

    assert answers == [truth[pair] for pair in pairs]
    assert 0.1 < sum(answers) / len(answers) < 0.9


def test_every_true_edge_is_in_the_closure() -> None:
    job = make_job(JobConfig(tp=2, dp=2, num_layers=1, num_steps=1))
    kinds = (Dependency.STREAM, Dependency.INTER_STREAM)
    edges = [(edge.source, edge.target) for rank in range(4) for edge in job.edges(rank, kinds)]

    assert len(edges) > 100
    assert all(transitive_closure_contains(job, edges))
    assert not any(transitive_closure_contains(job, [(b, a) for a, b in edges]))


def test_an_unknown_operation_is_refused() -> None:
    job = make_job(JobConfig(num_layers=1, num_steps=1))

    with pytest.raises(KeyError):
        Reachability(job).contains((0, 1), (0, 2))


def test_a_path_over_the_host_counts_though_it_takes_no_time() -> None:
    config = quiet(JobConfig(num_steps=1, noise=False))
    job = small_job([(Launch(100, 9), Launch(70, 13), Synchronize(9), Launch(5, 7))], config)
    waited, beside, after = ((0, each.correlation) for each in job.operations(0))

    assert transitive_closure_contains(job, [(waited, after), (beside, after)]) == [True, False]

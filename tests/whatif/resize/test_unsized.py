"""Collectives whose bytes nobody recorded: on other groups, in other buckets."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from foretrace.base import ScenarioError
from foretrace.cost import CollectiveRequests, step_costs
from foretrace.graph import Collectives, ExecutionGraph, NodeKind, Part
from foretrace.machine import load_machine
from foretrace.whatif import (
    Baseline,
    Batch,
    Edit,
    Layers,
    Parallelism,
    PlanKeys,
    baseline_of,
    predict,
    program_of,
)
from foretrace.whatif.arrange.arranged import unchanged
from foretrace.whatif.baseline import base_scenario
from foretrace.whatif.resize.resized import resizing
from tests.graph.recorded import recording_of
from tests.truth import JobConfig, make_job

CONFIG = JobConfig(dp=2, num_layers=4)


@cache
def baseline() -> Baseline:
    """A job of two data-parallel ranks, as older profilers record it: without sizes."""
    recording = recording_of(make_job(CONFIG))
    collectives = tuple(replace(one, num_bytes=-1) for one in recording.graph.collectives)
    return baseline_of(
        replace(recording, graph=replace(recording.graph, collectives=Collectives.of(collectives)))
    )


def buckets(graph: ExecutionGraph) -> int:
    """How many buckets are reduced."""
    return int(((graph.kind == NodeKind.HUB) & (graph.part == Part.BUCKET)).sum())


def test_among_more_ranks_they_take_as_large_ones_do_and_perhaps_as_small_ones() -> None:
    found = predict(baseline(), (Parallelism(dp=4),))

    graph = found.graph
    ends = np.flatnonzero((graph.kind == NodeKind.FINISH) & (graph.part == Part.BUCKET))
    assert len(ends)
    ratios = [
        np.median(column[ends] / graph.measured_ns[ends])
        for column in (found.costs.low_ns, found.costs.duration_ns, found.costs.high_ns)
    ]
    # 2 (n - 1) / n of the bytes, or 2 (n - 1) turns, of 4 ranks over those of 2.
    assert ratios == pytest.approx([1, 1.5, 3], rel=1e-3)
    assert any("no recorded sizes" in note for note in found.notes)


def test_twice_the_layers_fill_twice_the_buckets() -> None:
    found = predict(baseline(), (Layers(8),))

    # That of what is no layer stays one.
    of_layers = buckets(baseline().program.graph) - CONFIG.num_steps
    assert buckets(found.graph) == pytest.approx(2 * of_layers, abs=2 * CONFIG.num_steps)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (PlanKeys({"sharding.bucket_bytes": 10_000_000}), "how many bytes its buckets"),
        (PlanKeys({"sharding.level": "zero1"}), "no sizes of its collectives"),
    ],
    ids=["buckets of another size", "divided states"],
)
def test_what_needs_sizes_is_refused(edit: Edit, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        predict(baseline(), (edit,))


def test_a_machine_says_how_large_and_small_ones_change() -> None:
    machine = load_machine("dgx-h100")
    model = step_costs(machine)
    known = replace(baseline(), before=replace(baseline().before, machine=machine), costs=model)
    asked = CollectiveRequests(
        collective=np.zeros(2, np.int32),
        num_bytes=np.full(2, 1 << 30),
        dtype=np.zeros(2, np.int32),
        group=np.arange(2, dtype=np.int32),
        collectives=("all_reduce",),
        dtypes=("float",),
        groups=((0, 1), (0, 1, 2, 3)),
    )
    of_two, of_four = model.collective_costs(asked).duration_ns.tolist()

    found = predict(known, (Parallelism(dp=4),))

    graph = found.graph
    ends = np.flatnonzero((graph.kind == NodeKind.FINISH) & (graph.part == Part.BUCKET))
    low, middle, high = (
        float(np.median(column[ends] / graph.measured_ns[ends]))
        for column in (found.costs.low_ns, found.costs.duration_ns, found.costs.high_ns)
    )
    assert low <= middle < high
    assert middle == pytest.approx(of_four / of_two, rel=1e-3)


def test_a_group_of_which_one_rank_is_known_takes_what_it_took() -> None:
    program = program_of(recording_of(make_job(JobConfig(tp=2, num_layers=2))))
    alone = tuple(replace(one, ranks=(0,)) for one in program.graph.collectives)
    program = replace(program, graph=replace(program.graph, collectives=Collectives.of(alone)))
    before = base_scenario(program)
    after = Batch(micro_batch=2 * before.plan.micro_batch).applied(before)

    found = resizing(unchanged(program.graph), program, before, after)

    assert (found.exchanged.ratio == 1).all()

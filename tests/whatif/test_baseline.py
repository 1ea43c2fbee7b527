"""Recordings that edits start from: what is kept of them, and which keys they cannot show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.base import ScenarioError
from foretrace.simulate import simulate
from foretrace.whatif import (
    Batch,
    Edit,
    Layers,
    Parallelism,
    PlanKeys,
    Speed,
    baseline_of,
    predict,
)
from foretrace.whatif.outcome import check_arrangeable
from foretrace.workload import Plan
from tests.whatif.made import recording_of_layers


def test_a_recording_without_times_has_nothing_to_scale() -> None:
    recording = recording_of_layers(2)
    graph = replace(
        recording.graph,
        measured_ns=np.zeros_like(recording.graph.measured_ns),
        lag_ns=np.zeros_like(recording.graph.lag_ns),
    )
    empty = replace(recording, graph=graph, measured=simulate(graph))

    with pytest.raises(ScenarioError, match="steps take no time"):
        baseline_of(empty)


def test_the_ground_keeps_what_was_measured_beside_the_replay() -> None:
    recording = recording_of_layers(2)

    baseline = baseline_of(recording)

    assert baseline.replayed_step_ns == pytest.approx(baseline.measured_step_ns, rel=0.001)
    assert baseline.before.plan.tensor == 2
    assert baseline.before.sizes.layers == 2


def test_predictions_on_one_ground_are_those_on_grounds_of_their_own() -> None:
    recording = recording_of_layers(2)
    shared = baseline_of(recording)
    edits = (Layers(4), Parallelism(tp=4), Batch(sequence=64), Speed(2.0))

    for edit in (*edits, *reversed(edits)):
        found, alone = predict(shared, [edit]), predict(baseline_of(recording), [edit])
        assert found.step_ns == alone.step_ns
        assert np.array_equal(found.timeline.end_ns, alone.timeline.end_ns)
        assert np.array_equal(found.costs.high_ns, alone.costs.high_ns)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("precision.products", "fp8"),
        ("implementation.launch", "graph"),
        ("overlap.tensor", True),
        ("overlap.pipeline", False),
        ("sharding.prefetch", 3),
    ],
)
def test_a_key_that_no_recorded_work_shows_is_refused(key: str, value: object) -> None:
    baseline = baseline_of(recording_of_layers(2))

    with pytest.raises(ScenarioError, match=f"{key} .* -> {str(value).lower()}: the recording"):
        predict(baseline, [PlanKeys({key: value})])


@pytest.mark.parametrize(
    "edit",
    [
        Parallelism(tp=4, pp=2, dp=3, schedule="gpipe", sequence_parallel=True),
        Batch(num_microbatches=4, sequence=64),
        PlanKeys({"sharding.level": "zero1", "bucket_bytes": 9, "recompute": "full"}),
        PlanKeys({"overlap.gradients": False}),
    ],
)
def test_what_is_arranged_passes(edit: Edit) -> None:
    before = baseline_of(recording_of_layers(2)).before

    check_arrangeable(before.plan, edit.applied(before).plan)


def test_a_plan_is_itself() -> None:
    check_arrangeable(Plan(), Plan())

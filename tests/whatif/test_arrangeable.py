from __future__ import annotations

import pytest

from foretrace.base import ScenarioError
from foretrace.whatif import Batch, Edit, Parallelism, PlanKeys, baseline_of, predict
from foretrace.whatif.outcome import check_arrangeable
from foretrace.workload import Plan
from tests.whatif.made import recording_of_layers


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

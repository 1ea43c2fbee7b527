"""What a user states of a plan, beside what the recording shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.base import ScenarioError
from foretrace.whatif import program_of
from foretrace.workload import PlanDraft, Sharding
from tests.truth import acceptance_config
from tests.whatif.recorded.recordings import recording_of

EIGHT = replace(acceptance_config(8), num_steps=1)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"tp": 4}, r"tp is stated as 4, and the recorded groups show 2"),
        ({"pp": 4}, r"pp is stated as 4, and the recorded groups show 2"),
        ({"schedule": "gpipe"}, r"schedule is stated as gpipe, and the recording shows 1f1b"),
        ({"recompute": "full"}, r"recompute is stated as full, and the recording shows none"),
        ({"sequence_parallel": True}, r"sequence_parallel is stated as True"),
        ({"global_batch": 7}, r"7 is not whole in the recorded 4 microbatches"),
        ({"global_batch": 16, "micro_batch": 1}, r"makes 8 microbatches, and 4 were recorded"),
        ({"cp": 3}, r"cp is stated as 3, and the recorded ranks reduce gradients over 2"),
    ],
)
def test_what_is_stated_may_not_contradict_the_recording(
    keys: dict[str, object], expected: str
) -> None:
    stated = PlanDraft().with_keys(keys)

    with pytest.raises(ScenarioError, match=expected):
        program_of(recording_of(EIGHT), stated=stated)


def test_what_is_stated_and_cannot_be_seen_is_taken() -> None:
    stated = PlanDraft().with_keys(
        {"micro_batch": 4, "sequence": 2048, "sharding.level": "zero1", "bucket_bytes": 5}
    )

    plan = program_of(recording_of(EIGHT), stated=stated).plan

    assert (plan.micro_batch, plan.sequence, plan.global_batch) == (4, 2048, 4 * 4 * 2)
    assert plan.sharding is Sharding.ZERO1
    assert plan.bucket_bytes == 5

"""Rearranged jobs against what generated ones truly take; acceptance holds them to more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.whatif import Batch, Edit, Layers, Parallelism, PlanKeys
from tests.truth import JobConfig, acceptance_config
from tests.whatif.rearrange.jobs import predicted_step_ns, true_step_ns, with_layers

EIGHT = acceptance_config(8)
PIPELINE = JobConfig(pp=4, num_layers=2, num_microbatches=4, schedule="gpipe")
REDUCING = JobConfig(dp=4, num_layers=6, num_microbatches=2, layer_parameter_bytes=200_000_000)
IN_PAIRS = replace(REDUCING, layers_per_bucket=2)
UNEVEN = replace(REDUCING, num_layers=6, merged_buckets=(0, 1))
IN_STAGES = replace(REDUCING, dp=2, pp=2, num_layers=4, num_microbatches=4, layers_per_bucket=4)


def named(value: JobConfig | Edit) -> str:
    """Of a job its degrees, tensor first, and layers of a stage."""
    if isinstance(value, JobConfig):
        return f"{value.tp}x{value.dp}x{value.pp} {value.num_layers}"
    return str(value)


@pytest.mark.parametrize(
    ("recorded", "edit", "true"),
    [
        (EIGHT, Layers(12), with_layers(EIGHT, 6)),
        (EIGHT, Batch(num_microbatches=6), replace(EIGHT, num_microbatches=6)),
        (EIGHT, Batch(num_microbatches=1), replace(EIGHT, num_microbatches=1)),
        (EIGHT, Parallelism(schedule="gpipe"), replace(EIGHT, schedule="gpipe")),
        (EIGHT, Parallelism(dp=1), replace(EIGHT, dp=1)),
        (EIGHT, Parallelism(tp=1), replace(EIGHT, tp=1)),
        (EIGHT, Parallelism(pp=1), with_layers(EIGHT, 6, pp=1)),
        (PIPELINE, Layers(4), with_layers(PIPELINE, 1)),
        (PIPELINE, Parallelism(pp=8), with_layers(PIPELINE, 1, pp=8)),
        (PIPELINE, Parallelism(pp=2), with_layers(PIPELINE, 4, pp=2)),
        (PIPELINE, Parallelism(schedule="1f1b"), replace(PIPELINE, schedule="1f1b")),
        (REDUCING, PlanKeys({"bucket_bytes": 400_000_000}), IN_PAIRS),
        (IN_PAIRS, PlanKeys({"bucket_bytes": 200_000_000}), REDUCING),
        (
            UNEVEN,
            PlanKeys({"bucket_bytes": 600_000_000}),
            replace(REDUCING, num_layers=6, layers_per_bucket=3),
        ),
        (IN_PAIRS, Layers(3), with_layers(IN_PAIRS, 3)),
        (IN_PAIRS, Layers(10), with_layers(IN_PAIRS, 10)),
        (IN_STAGES, Parallelism(pp=4), with_layers(IN_STAGES, 2, pp=4)),
    ],
    ids=named,
)
def test_an_edited_job_takes_what_it_truly_takes(
    recorded: JobConfig, edit: Edit, true: JobConfig
) -> None:
    predicted_ns = predicted_step_ns(recorded, edit)

    assert predicted_ns / true_step_ns(true) == pytest.approx(1, abs=0.005)

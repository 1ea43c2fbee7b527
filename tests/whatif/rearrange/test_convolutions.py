"""A recorded job of convolutions that exchanged nothing, run by several ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace
from foretrace.whatif import Parallelism
from foretrace.whatif.arrange.arrange import arranged
from foretrace.whatif.baseline import base_scenario
from foretrace.whatif.rearrange.rearranged import rearranged
from foretrace.whatif.recorded.read import program_of
from foretrace.workload import DDP_BUCKET_BYTES

RESNET_50 = 25_557_032  # parameters; torchvision, resnet50
STEPS = 6


def test_gradients_of_convolutions_are_reduced_in_buckets_of_ddp(data_dir: Path) -> None:
    folder = data_dir / "traces" / "v100-resnet50-dataloader"
    recorded = foretrace.load(min(folder.glob("*.json.gz"))).recording
    program = program_of(recorded)
    before = base_scenario(program)

    job = rearranged(program, before, Parallelism(dp=8).applied(before))
    assert job is not None
    made = arranged(program, job).graph.collectives.each(lambda one: one.num_bytes)

    assert not len(program.graph.collectives)
    # Norms and biases, 0.25 % of the parameters, are none of what products show.
    assert sum(made) / STEPS == pytest.approx(4 * RESNET_50, rel=0.005)
    assert len(made) == 4 * STEPS
    assert max(made) == DDP_BUCKET_BYTES

"""Ranks that were not recorded, and come late: in a larger group they still do."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from foretrace.graph import ExecutionGraph, NodeKind, build_recording
from foretrace.trace import load_traces
from foretrace.whatif import Baseline, Parallelism, baseline_of, predict
from tests.truth import JobConfig, make_job, write

# The second rank takes a third longer than the first, which alone is loaded.
CONFIG = JobConfig(dp=2, num_layers=4, slow_ranks=((1, 1.3),))


@cache
def baseline() -> Baseline:
    """What is known of the first rank."""
    with TemporaryDirectory() as folder:
        first, _ = write(make_job(CONFIG), Path(folder))
        return baseline_of(build_recording(load_traces([first])))


def ghosts(graph: ExecutionGraph) -> int:
    """How many times somebody is late whom nobody recorded."""
    return int((graph.kind == NodeKind.GHOST).sum())


def test_in_a_larger_group_they_come_as_late() -> None:
    found = predict(baseline(), (Parallelism(dp=4),))

    assert ghosts(found.graph) == ghosts(baseline().program.graph) > 0
    assert found.step_ns >= baseline().replayed_step_ns


def test_alone_a_rank_waits_for_nobody() -> None:
    found = predict(baseline(), (Parallelism(dp=1),))

    assert ghosts(found.graph) == 0
    assert found.step_ns < baseline().replayed_step_ns / 1.1


@pytest.mark.parametrize("dp", [4, 8])
def test_nothing_is_said_to_be_lost(dp: int) -> None:
    found = predict(baseline(), (Parallelism(dp=dp),))

    assert not any("does not show" in note for note in found.notes)

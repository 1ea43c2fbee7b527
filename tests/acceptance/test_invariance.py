"""What must not matter to a replay does not: to the nanosecond, for every node.

And what must matter, matters by as much as was worked out beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foretrace.graph import NodeKind, Recording, Timeline, build_recording
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from tests.acceptance.recovery import Recovered, recording_of_job
from tests.truth import (
    FileStyle,
    Job,
    LongerSegment,
    Ref,
    acceptance_config,
    make_job,
    mutate,
    write,
)

pytestmark = pytest.mark.slow

HOURS_NS = 9_876_543_210_123_000
EARLIER_NS = 137_000
LONGER_NS = 5_000_000
TOLERANCE_NS = 60_000  # two engines, two graphs: starts differ by jitter that one of them averages

Mutation = Callable[[mutate.Trace], mutate.Trace]


def recorded_with(paths: list[Path], rank: int, change: Mutation, folder: Path) -> Recording:
    """The recording of these files, one rank's changed."""
    changed = list(paths)
    changed[rank] = mutate.save(change(mutate.read(paths[rank])), folder / f"rank{rank}.json")
    return build_recording(load_traces(changed))


def assert_same(one: Timeline, other: Timeline) -> None:
    np.testing.assert_array_equal(one.graph.kind, other.graph.kind)
    np.testing.assert_array_equal(one.start_ns, other.start_ns)
    np.testing.assert_array_equal(one.end_ns, other.end_ns)


@pytest.fixture(scope="module", params=[True, False], ids=["sync events", "no sync events"])
def job(request: pytest.FixtureRequest) -> Job:
    return make_job(acceptance_config(8, seed=3, style=FileStyle(sync_events=request.param)))


@pytest.fixture(scope="module")
def paths(job: Job, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return list(write(job, tmp_path_factory.mktemp("invariance"), compress=False))


@pytest.fixture(scope="module")
def recovered(job: Job, paths: list[Path]) -> Recovered:
    return Recovered(job, build_recording(load_traces(paths)))


@pytest.mark.parametrize("rank", [0, 5])
def test_a_constant_on_one_ranks_clock_changes_nothing(
    recovered: Recovered, paths: list[Path], tmp_path: Path, rank: int
) -> None:
    shifted = recorded_with(
        paths, rank, lambda trace: mutate.shift_clock(trace, HOURS_NS), tmp_path
    )

    assert_same(simulate(shifted.graph), recovered.replayed)
    before = [clock.offset_ns for clock in recovered.recording.clocks]
    moved_ns = [clock.offset_ns - was for clock, was in zip(shifted.clocks, before, strict=True)]
    # Offsets are from the first rank's clock.
    expected_ns = [HOURS_NS if at == rank else 0 for at in range(8)]
    assert moved_ns == [each - expected_ns[0] for each in expected_ns]


def test_the_order_of_events_in_a_file_changes_nothing(
    recovered: Recovered, paths: list[Path], tmp_path: Path
) -> None:
    shuffled = recorded_with(paths, 2, lambda trace: mutate.shuffle_events(trace, 11), tmp_path)

    assert_same(simulate(shuffled.graph), recovered.replayed)


def test_having_waited_longer_changes_nothing(
    recovered: Recovered, paths: list[Path], tmp_path: Path
) -> None:
    parsed = mutate.read(paths[1])
    # Members of one group that came neither first nor last, with room before them.
    waits = sorted(
        (
            (member.wait_ns, member.correlation)
            for each in recovered.job.collectives
            if each.name == "allreduce"
            for member in each.members
            if member.rank == 1 and member.wait_ns > 50_000
        ),
        reverse=True,
    )
    moved = 0
    for _, correlation in waits[:40]:
        room_ns = min(mutate.room_before_ns(parsed, correlation), EARLIER_NS)
        if room_ns > 5_000:
            parsed = mutate.start_collective_earlier(parsed, correlation, room_ns - room_ns % 1_000)
            moved += 1

    earlier = recorded_with(paths, 1, lambda _: parsed, tmp_path)

    assert moved >= 3
    changed = earlier.recorded_ns != recovered.recording.recorded_ns
    assert int(changed.sum()) == moved
    assert_same(simulate(earlier.graph), recovered.replayed)


def test_a_longer_host_segment_moves_every_rank_as_the_truth_says(recovered: Recovered) -> None:
    job, rank = recovered.job, 1
    first = next(call for call in job.calls(rank) if call.name == "cudaLaunchKernel")
    changed = job.after(LongerSegment(rank, first.correlation, LONGER_NS))
    expected_ns = changed.step_ns - job.step_ns

    longer_ns = recovered.graph.measured_ns.copy()
    longer_ns[segment_before(recovered, (rank, first.correlation))] += LONGER_NS
    edited_ns = recovered.step_ns(simulate(recovered.graph, longer_ns))
    rewritten = Recovered(changed, recording_of_job(changed))

    assert (np.abs(expected_ns[:, 0]) > LONGER_NS // 5).all(), "the change must reach every rank"
    moved_ns = edited_ns - recovered.step_ns(recovered.replayed)
    assert np.abs(moved_ns - expected_ns).max() < TOLERANCE_NS
    recorded_ns = rewritten.step_ns(rewritten.replayed)
    assert np.abs(recorded_ns - edited_ns).max() < TOLERANCE_NS


def segment_before(recovered: Recovered, ref: Ref) -> int:
    """The host time right before the call that launched an operation."""
    launch = predecessor(recovered, recovered.entered[ref], NodeKind.LAUNCH)
    return predecessor(recovered, launch, NodeKind.HOST_SEGMENT)


def predecessor(recovered: Recovered, node: int, kind: NodeKind) -> int:
    """The one predecessor of a kind."""
    graph = recovered.graph
    before = graph.predecessor[graph.first_edge[node] : graph.first_edge[node + 1]]
    (found,) = before[graph.kind[before] == kind].tolist()
    return int(found)

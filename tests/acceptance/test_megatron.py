"""Invariances on a public trace of eight ranks: nothing absolute, and no waiting, enters a replay.

How close the replay is stands in tests/validate/test_public_traces.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretrace.graph import NodeKind, Recording, Timeline, build_recording, verify
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from tests.acceptance.test_invariance import assert_same
from tests.truth import mutate

pytestmark = pytest.mark.slow

EARLIER_NS = 150_000


@pytest.fixture(scope="module")
def paths(data_dir: Path) -> list[Path]:
    return sorted((data_dir / "traces" / "megatron-tp8").glob("kineto_rank*.json.gz"))


@pytest.fixture(scope="module")
def recording(paths: list[Path]) -> Recording:
    built = build_recording(load_traces(paths))
    verify(built.graph)
    return built


@pytest.fixture(scope="module")
def replayed(recording: Recording) -> Timeline:
    return simulate(recording.graph)


def replay_with(paths: list[Path], rank: int, changed: mutate.Trace, folder: Path) -> Recording:
    """The recording with one rank's file changed."""
    listed = list(paths)
    listed[rank] = mutate.save(changed, folder / f"kineto_rank{rank}.json")
    return build_recording(load_traces(listed))


@pytest.mark.parametrize("rank", [0, 3])
def test_a_constant_on_one_ranks_clock_changes_nothing(
    paths: list[Path], replayed: Timeline, tmp_path: Path, rank: int
) -> None:
    shifted = mutate.shift_clock(mutate.read(paths[rank]), -3_600_000_000_000)

    assert_same(simulate(replay_with(paths, rank, shifted, tmp_path).graph), replayed)


def test_the_order_of_events_in_a_file_changes_nothing(
    paths: list[Path], replayed: Timeline, tmp_path: Path
) -> None:
    shuffled = mutate.shuffle_events(mutate.read(paths[6]), 5)

    assert_same(simulate(replay_with(paths, 6, shuffled, tmp_path).graph), replayed)


def longest_waits(recording: Recording, rank: int) -> dict[int, int]:
    """How long each NCCL kernel of a rank waited, by its place among the rank's NCCL kernels."""
    graph = recording.graph
    finishes = np.flatnonzero((graph.kind == NodeKind.FINISH) & (graph.rank == rank))
    finishes = finishes[np.argsort(recording.measured.end_ns[finishes], kind="stable")]
    waited_ns = recording.recorded_ns[finishes] - graph.measured_ns[finishes]
    return dict(enumerate(waited_ns.tolist()))


@pytest.mark.parametrize("rank", [0, 3, 5])
def test_having_waited_longer_changes_nothing(
    paths: list[Path], recording: Recording, replayed: Timeline, tmp_path: Path, rank: int
) -> None:
    parsed = mutate.read(paths[rank])
    kernels = sorted(
        (event for event in parsed["traceEvents"] if is_nccl_kernel(event)),
        key=lambda event: mutate.nanoseconds(event["ts"]),
    )
    waited_ns = longest_waits(recording, rank)
    assert len(kernels) == len(waited_ns) == 84
    num_moved = 0
    for place, kernel in enumerate(kernels):
        correlation = kernel["args"]["correlation"]
        room_ns = min(mutate.room_before_ns(parsed, correlation), EARLIER_NS) // 1_000 * 1_000
        if waited_ns[place] > 100_000 and room_ns >= 2_000:
            parsed = mutate.start_collective_earlier(parsed, correlation, room_ns)
            num_moved += 1

    changed = replay_with(paths, rank, parsed, tmp_path)

    assert num_moved > 10
    assert_same(simulate(changed.graph), replayed)


def is_nccl_kernel(event: mutate.Record) -> bool:
    return event.get("cat") == "kernel" and event["name"].startswith("nccl")

"""The recording that lies in the repository is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.trace import step_times_beside
from tests.capture.kineto_files import contents, spans, step_marks

RANKS = range(4)


@pytest.fixture
def traces(repository: Path) -> Path:
    """The example's recorded files."""
    return repository / "examples" / "cpu-llama-tp2-dp2" / "traces"


def test_it_is_small_and_complete(traces: Path) -> None:
    names = {path.name for path in traces.iterdir()}

    kinds = ("kineto.json.gz", "steps.json")
    assert names == {f"rank{rank}.{kind}" for rank in RANKS for kind in kinds} | {
        "rank0.et.json.gz"
    }
    assert sum(path.stat().st_size for path in traces.iterdir()) < 2_000_000


@pytest.mark.parametrize("rank", RANKS)
def test_every_rank_has_four_steps_and_names_all_collectives(traces: Path, rank: int) -> None:
    path = traces / f"rank{rank}.kineto.json.gz"
    trace = contents(path)
    times = step_times_beside(path)

    calls = [event for event in spans(trace) if event["name"].startswith("c10d::")]

    assert times is not None
    assert (times.rank, times.world_size, len(times.profiled_step_ns)) == (rank, 4, 4)
    assert len(times.unprofiled_step_ns) == 10
    assert len(step_marks(trace)) == 4
    assert len(calls) == 4 * 16
    assert all("Seq" in event["args"] for event in calls)
    groups = {group.description: group.ranks for group in times.process_groups}
    first = rank - rank % 2
    assert groups["tensor"] == (first, first + 1)
    assert groups["data"] == (rank % 2, rank % 2 + 2)


def test_its_traces_call_themselves_by_their_own_names(traces: Path) -> None:
    for rank in RANKS:
        trace = contents(traces / f"rank{rank}.kineto.json.gz")
        assert trace["traceName"] == f"rank{rank}.kineto.json.gz"

"""The recordings that lie in the repository are whole."""

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


PLANTS = ("nothing", "slow-forward", "slow-loader", "large-bucket")


@pytest.fixture
def planted(repository: Path) -> Path:
    """Recordings of the same script with something made slow on purpose."""
    return repository / "examples" / "planted"


def test_every_plant_of_the_script_was_recorded(planted: Path, repository: Path) -> None:
    script = (repository / "examples" / "cpu-llama-tp2-dp2" / "train.py").read_text()

    folders = {path.name for path in planted.iterdir() if path.is_dir()}

    assert folders == set(PLANTS)
    assert f"PLANTS = {PLANTS!r}".replace("'", '"') in script


@pytest.mark.parametrize("plant", PLANTS)
def test_every_planted_recording_is_small_and_whole(planted: Path, plant: str) -> None:
    folder = planted / plant
    names = {path.name for path in folder.iterdir()}
    num_collectives = 8 + (4 if plant != "large-bucket" else 2)

    assert names == {f"rank{rank}.{kind}" for rank in RANKS
                     for kind in ("kineto.json.gz", "steps.json")}  # fmt: skip
    assert sum(path.stat().st_size for path in folder.iterdir()) < 400_000
    for rank in RANKS:
        trace = contents(folder / f"rank{rank}.kineto.json.gz")
        calls = [event for event in spans(trace) if event["name"].startswith("c10d::")]
        loads = [event for event in spans(trace) if event["name"].startswith("enumerate(Data")]
        assert trace["traceName"] == f"rank{rank}.kineto.json.gz"
        assert len(step_marks(trace)) == len(loads) == 2
        assert len(calls) == 2 * num_collectives
        assert all("Seq" in event["args"] for event in calls)


@pytest.mark.parametrize(("plant", "slow_rank"), [("slow-forward", None), ("slow-loader", 2)])
def test_only_the_planted_rank_loads_slowly(
    planted: Path, plant: str, slow_rank: int | None
) -> None:
    for rank in RANKS:
        trace = contents(planted / plant / f"rank{rank}.kineto.json.gz")
        loads_us = [e["dur"] for e in spans(trace) if e["name"].startswith("enumerate(Data")]
        if rank == slow_rank:
            assert min(loads_us) > 150_000
        else:
            assert max(loads_us) < 15_000

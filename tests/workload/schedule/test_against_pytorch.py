"""PyTorch's own schedules, made without its stages, are ours; and its files can be read."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

from foretrace.workload import Pass, Plan, schedule_of
from tests.workload.schedule.running import Durations, run

pytestmark = pytest.mark.slow  # PyTorch takes seconds to import

LETTERS = {Pass.FORWARD: "F", Pass.BACKWARD: "B", Pass.INPUT: "I", Pass.WEIGHT: "W"}


@pytest.fixture(scope="module")
def pytorch() -> ModuleType:
    schedules: ModuleType = pytest.importorskip("torch.distributed.pipelining.schedules")
    return schedules


def orders(
    pytorch: ModuleType, name: str, *, ranks: int, microbatches: int, chunks: int
) -> list[list[str]]:
    """What PyTorch would write into a file, rank by rank; an empty cell is an idle moment."""
    kind = getattr(pytorch, name)
    # Its constructor wants live modules on devices; the order needs these numbers alone.
    schedule = object.__new__(kind)
    schedule.pp_group_size = ranks
    schedule.n_local_stages = chunks
    schedule._n_microbatches = microbatches
    schedule.number_of_rounds = max(1, microbatches // ranks)
    schedule.microbatches_per_round = microbatches // schedule.number_of_rounds
    found = (schedule._calculate_single_rank_operations(rank) for rank in range(ranks))
    return [["" if one is None else str(one) for one in order] for order in found]


def written(rows: Iterable[Iterable[str]], path: Path) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


@pytest.mark.parametrize(
    ("kind", "name", "chunks"),
    [("ScheduleInterleaved1F1B", "interleaved", 3), ("ScheduleInterleavedZeroBubble", "zb-h1", 1)],
)
@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 2), (2, 6), (4, 4), (4, 12), (4, 10)])
def test_orders_are_those_of_pytorch(
    pytorch: ModuleType, *, kind: str, name: str, chunks: int, ranks: int, microbatches: int
) -> None:
    ours = schedule_of(
        Plan(
            pipeline=ranks,
            global_batch=microbatches,
            schedule=name,
            num_chunks=chunks,
            # PyTorch makes rounds of equal size where Megatron-LM makes a shorter one.
            contiguous=microbatches // max(1, microbatches // ranks) if chunks > 1 else None,
        )
    )

    theirs = orders(pytorch, kind, ranks=ranks, microbatches=microbatches, chunks=chunks)

    assert [
        [f"{unit.chunk}{LETTERS[unit.kind]}{unit.microbatch}" for unit in order]
        for order in ours.units
    ] == [[cell for cell in order if cell] for order in theirs]


@pytest.mark.parametrize("kind", ["ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble"])
def test_a_file_of_pytorch_runs_as_if_it_were_ours(
    pytorch: ModuleType, tmp_path: Path, kind: str
) -> None:
    rows = orders(pytorch, kind, ranks=4, microbatches=8, chunks=2)

    path = written(rows, tmp_path / "order.csv")
    schedule = schedule_of(Plan(pipeline=4, num_chunks=2, global_batch=8, schedule=str(path)))

    assert sum(run(schedule, Durations(1, 1, 1)).work) == 4 * 2 * 8 * 3


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_pytorchs_dualpipe_in_the_shape_of_a_v_leaves_the_bubble_of_its_table(
    pytorch: ModuleType, tmp_path: Path, ranks: int
) -> None:
    """Of as many stages as it has chunks: (ranks - 1) (F&B + B - 3 W) on the last rank."""
    rows = orders(pytorch, "ScheduleDualPipeV", ranks=ranks, microbatches=3 * ranks, chunks=2)

    path = written(rows, tmp_path / "v.csv")
    schedule = schedule_of(
        Plan(pipeline=ranks, num_chunks=2, global_batch=3 * ranks, schedule=str(path))
    )
    done = run(schedule, Durations(10, 10, 10, 25))

    assert schedule.stage_of_chunk == (*range(ranks), *reversed(range(ranks)))
    assert done.total - done.work[-1] == (ranks - 1) * (25 + 20 - 30)

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.workload import Pass, Plan, Schedule, ScheduleUnit, schedule_of

LETTERS = {Pass.FORWARD: "F", Pass.BACKWARD: "B", Pass.INPUT: "I", Pass.WEIGHT: "W"}


def toml_of(schedule: Schedule) -> str:
    """A schedule as a user would write it, chunks and routes stated."""
    lines = []
    for stage, order in enumerate(schedule.units):
        own = [chunk for chunk, at in enumerate(schedule.stage_of_chunk) if at == stage]
        words = []
        for unit in order:
            word = f"{LETTERS[unit.kind]}{unit.microbatch}.{own.index(unit.chunk)}"
            words.append(word + ("+" if unit.is_joined else " "))
        lines.append(f'"{"".join(words).strip()}"')
    return (
        f"stages = [{', '.join(lines)}]\n"
        f"stage_of_chunk = {list(schedule.stage_of_chunk)}\n"
        f"routes = {[list(route) for route in schedule.routes]}\n"
        f"route_of_microbatch = {list(schedule.route_of_microbatch)}\n"
    )


def csv_of(schedule: Schedule) -> str:
    """As PyTorch's `_dump_csv` writes it."""
    rows = (
        ",".join(f"{unit.chunk}{LETTERS[unit.kind]}{unit.microbatch}" for unit in order)
        for order in schedule.units
    )
    return "\n".join(rows) + "\n"


def planned(path: Path, schedule: Schedule) -> Plan:
    return Plan(
        pipeline=schedule.num_stages,
        num_chunks=len(schedule.routes[0]) // schedule.num_stages,
        global_batch=schedule.num_microbatches,
        schedule=str(path),
    )


@pytest.mark.parametrize(
    ("name", "stages", "microbatches", "chunks"),
    [("1f1b", 3, 4, 1), ("zb-h1", 3, 5, 1), ("interleaved", 2, 4, 3), ("dualpipe", 4, 10, 1)],
)
def test_an_order_written_down_is_read_back(
    tmp_path: Path, *, name: str, stages: int, microbatches: int, chunks: int
) -> None:
    known = schedule_of(
        Plan(pipeline=stages, global_batch=microbatches, schedule=name, num_chunks=chunks)
    )
    path = tmp_path / f"{name}.toml"
    path.write_text(toml_of(known))

    read = schedule_of(planned(path, known))

    assert read == known


@pytest.mark.parametrize(("name", "chunks"), [("1f1b", 1), ("zb-h1", 1), ("interleaved", 2)])
def test_a_schedule_that_pytorch_wrote_is_read(tmp_path: Path, name: str, chunks: int) -> None:
    known = schedule_of(Plan(pipeline=2, global_batch=4, schedule=name, num_chunks=chunks))
    path = tmp_path / f"{name}.csv"
    path.write_text(csv_of(known))

    read = schedule_of(planned(path, known))

    assert read == known


def test_chunks_of_pytorch_stand_where_their_row_is(tmp_path: Path) -> None:
    """Two stages in the shape of a V: the second one holds the two chunks in the middle."""
    path = tmp_path / "v.csv"
    path.write_text("0F0,,,3F0,3B0,,,0B0\n,1F0,2F0,0RECV_F0,,2I0,1I0,2W0,1W0\n")

    read = schedule_of(Plan(pipeline=2, num_chunks=2, global_batch=1, schedule=str(path)))

    assert read.stage_of_chunk == (0, 1, 1, 0)
    assert read.units[1][-1] == ScheduleUnit(Pass.WEIGHT, 0, 1)


def test_woven_pairs_of_pytorch_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n")

    read = schedule_of(Plan(global_batch=2, schedule=str(path)))

    assert [unit.is_joined for unit in read.units[0]] == [False, True, False, False]


def test_a_file_is_looked_for_beside_the_plan_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('stages = ["F0 B0"]\n')

    read = schedule_of(Plan(schedule="mine.toml", path=tmp_path / "plan.toml"))

    assert read.name == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stages = []", "one text for each stage"),
        ("stages = [1]", "one text for each stage"),
        ('stages = ["F0 G0"]', "'G0', which is no unit"),
        ('stages = ["F0 B0"]\nunits = 3', "'units', which means nothing there"),
        ('stages = ["F0 B0"]\nkind = "plan"', "where 'schedule' is expected"),
        ('stages = ["F0.1 B0.1"]\nstage_of_chunk = [0]', "chunk 1 of its own, but has 1"),
        ('stages = ["F0 B0"]\nstage_of_chunk = ["a"]', "a list of whole numbers is expected"),
        ('stages = ["F0 B0"]\nroutes = 3', "a list of lists of chunks is expected"),
        ('stages = ["F0 B0"]\nroutes = [3]', "a list of lists of chunks is expected"),
        ('stages = ["B0 F0"]', "never ends"),
        ("stages = [", "is not a TOML file"),
        ('stages = ["F0 F9000000000000000000"]', "microbatch 9000000000000000000, but has 2 units"),
        ('stages = ["F0 F0.9000000000000000000"]', "chunk 9000000000000000000, but has 2 units"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "order.toml"
    path.write_text(text)

    with pytest.raises(WorkloadError, match=message) as caught:
        schedule_of(Plan(schedule=str(path)))
    assert "order.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,0X0", "'0X0', which is no unit of PyTorch"),
        ("0F0,2F0,2B0,0B0", "no unit of chunk 1"),
        ("", "no unit of chunk 0"),
        ("0F0,9223372036854775808F0", "chunk 9223372036854775808, but has 2 units in all"),
        ("0F0,0F9223372036854775808", "microbatch 9223372036854775808, but has 2 units in all"),
    ],
)
def test_what_is_wrong_in_a_table_of_pytorch_is_named(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "order.csv"
    path.write_text(text)

    with pytest.raises(WorkloadError, match=message):
        schedule_of(Plan(schedule=str(path)))


def test_a_file_for_other_numbers_than_the_plans_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "order.toml"
    path.write_text('stages = ["F0 B0"]\n')

    with pytest.raises(WorkloadError, match="is for 1 stages, 1 microbatches") as caught:
        schedule_of(Plan(schedule=str(path), global_batch=2))
    assert "2 microbatches" in str(caught.value)


def test_a_file_that_does_not_exist_is_named() -> None:
    with pytest.raises(WorkloadError, match=r"'nowhere\.toml' does not exist"):
        schedule_of(Plan(schedule="nowhere.toml"))


def test_a_table_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "order.csv"
    path.write_bytes(b"0F0,\xff,0B0\n")

    with pytest.raises(WorkloadError, match="it is no table of text"):
        schedule_of(Plan(global_batch=1, schedule=str(path)))

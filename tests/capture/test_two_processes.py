"""A real recording of two gloo processes under torchrun; all tests read the same one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foretrace.trace import StepTimes, step_times_beside
from tests.capture.kineto_files import contents, spans, step_marks

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("two_processes.py")
RANKS = (0, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording's folder."""
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("two") / "traces"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(PROGRAM), str(out)]
    source = str(Path(__file__).parents[2] / "src")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return out


def times_of(folder: Path, rank: int) -> StepTimes:
    times = step_times_beside(folder / f"rank{rank}.kineto.json.gz")
    assert times is not None
    return times


def test_every_rank_leaves_its_three_files_and_nothing_else(folder: Path) -> None:
    found = sorted(path.name for path in folder.iterdir())

    kinds = ("et.json.gz", "kineto.json.gz", "steps.json")
    assert found == [f"rank{rank}.{kind}" for rank in RANKS for kind in kinds]


def test_a_rank_that_is_not_asked_for_writes_nothing(folder: Path) -> None:
    found = sorted(path.name for path in folder.with_name("traces-of-1").iterdir())

    assert found == ["rank1.et.json.gz", "rank1.kineto.json.gz", "rank1.steps.json"]


@pytest.mark.parametrize("rank", RANKS)
def test_step_times_say_what_ran(folder: Path, rank: int) -> None:
    times = times_of(folder, rank)

    assert (times.rank, times.world_size, times.backend) == (rank, 2, "gloo")
    assert len(times.profiled_step_ns) == times.requested_steps
    assert len(times.unprofiled_step_ns) == 3
    assert min(times.unprofiled_step_ns + times.profiled_step_ns) > 0
    assert [(group.description, group.ranks) for group in times.process_groups] == [
        ("default_pg", (0, 1)),
        ("pair", (0, 1)),
    ]


@pytest.mark.parametrize("rank", RANKS)
def test_marks_carry_the_loops_step_numbers_and_times(folder: Path, rank: int) -> None:
    trace = contents(folder / f"rank{rank}.kineto.json.gz")
    times = times_of(folder, rank)

    marks = step_marks(trace)

    first = times.first_profiled_step
    assert [mark["name"] for mark in marks] == [f"ProfilerStep#{first + i}" for i in range(2)]
    began_ns = trace["baseTimeNanoseconds"] + float(marks[0]["ts"]) * 1000
    # The same moment on the wall clock and in the trace; 20 ms leave room for a busy machine.
    assert abs(began_ns - times.profiled_at_ns) < 20_000_000
    for mark, recorded_ns in zip(marks, times.profiled_step_ns, strict=True):
        assert abs(mark["dur"] * 1000 - recorded_ns) < 20_000_000


@pytest.mark.parametrize("rank", RANKS)
def test_every_collective_names_its_group_and_place(folder: Path, rank: int) -> None:
    trace = contents(folder / f"rank{rank}.kineto.json.gz")
    names = {group.name: group.description for group in times_of(folder, rank).process_groups}

    calls = [event["args"] for event in spans(trace) if event["name"].startswith("c10d::")]
    named = [args for args in calls if "Collective name" in args]

    step = [
        ("pair", "allreduce", 100, 100),
        ("default_pg", "allreduce", 200, 200),
        ("pair", "_allgather_base", 30, 60),
        ("default_pg", "broadcast", 7, 7),
        ("default_pg", "barrier", 0, 0),
    ]
    assert [
        (
            names[args["Process Group Name"]],
            args["Collective name"],
            args["In msg nelems"],
            args["Out msg nelems"],
        )
        for args in named
    ] == step * 2
    assert len(calls) - len(named) == 2  # the two sends or receives
    assert times_of(folder, rank).num_named_collectives == len(named)
    assert all(args["Process Group Ranks"] == "[0, 1]" for args in named)


def test_both_ranks_give_a_collective_the_same_number(folder: Path) -> None:
    def numbers(rank: int) -> list[tuple[str, int, str]]:
        trace = contents(folder / f"rank{rank}.kineto.json.gz")
        return [
            (event["args"]["Process Group Name"], event["args"]["Seq"], event["name"])
            for event in spans(trace)
            if "Seq" in event["args"]
        ]

    first, second = numbers(0), numbers(1)

    assert first == second
    assert len(set(first)) == len(first) == 10
    by_group: dict[str, list[int]] = {}
    for group, number, _ in first:
        by_group.setdefault(group, []).append(number)
    for found in by_group.values():
        assert found == list(range(found[0], found[0] + len(found)))


@pytest.mark.parametrize("rank", RANKS)
def test_the_execution_trace_holds_one_step_of_the_same_operators(folder: Path, rank: int) -> None:
    trace = contents(folder / f"rank{rank}.kineto.json.gz")
    nodes = contents(folder / f"rank{rank}.et.json.gz")["nodes"]
    mark = step_marks(trace)[-1]

    profiled = [
        event["name"]
        for event in spans(trace)
        if event["name"].startswith(("aten::", "c10d::"))
        and mark["ts"] <= event["ts"] < mark["ts"] + mark["dur"]
    ]
    traced = [node["name"] for node in nodes if node["name"].startswith(("aten::", "c10d::"))]

    assert "aten::mm" in traced
    assert sorted(traced) == sorted(profiled)


@pytest.mark.parametrize("rank", RANKS)
def test_operators_have_shapes(folder: Path, rank: int) -> None:
    trace = contents(folder / f"rank{rank}.kineto.json.gz")

    shapes = [event["args"]["Input Dims"] for event in spans(trace) if event["name"] == "aten::mm"]

    assert [[8, 64], [64, 64]] in shapes

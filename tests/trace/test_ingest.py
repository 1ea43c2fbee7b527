"""Many files: which are read, of which rank they are, and whether they belong together."""

from __future__ import annotations

import ast
import os
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from foretrace import trace as trace_module
from foretrace.base import TraceError
from foretrace.trace import ProcessGroup, discover, load_traces
from foretrace.trace.ranks import ranked
from tests.trace.kineto_json import assert_same, file_text, trace_from

OP = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 1}


def put(path: Path, info: dict[str, Any] | None = None, **event: object) -> Path:
    """Write a trace of one event."""
    members = {"schemaVersion": 1} | ({} if info is None else {"distributedInfo": info})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file_text([{**OP, **event}], members=members))
    return path


def test_a_folder_gives_its_traces_and_counts_the_rest(tmp_path: Path) -> None:
    paths = [put(tmp_path / f"rank{rank}.json") for rank in (0, 1)]
    (tmp_path / "et.json").write_text('{"schema": "1.0.2", "nodes": []}')
    (tmp_path / "rank0.steps.json").write_text('{"format": "foretrace-steps-1"}')  # read with it
    (tmp_path / "rank9.steps.json").write_text('{"format": "foretrace-steps-1"}')
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "broken.json").write_text("")
    (tmp_path / "README.md").write_text("not looked at")

    found = discover(tmp_path)

    assert found.paths == tuple(paths)
    assert found.note == (
        "beside the traces, not read: 1 execution trace file, 1 file of step times, "
        "1 other JSON file, 1 unreadable file"
    )


def test_a_glob_gives_what_a_folder_gives(tmp_path: Path) -> None:
    paths = [put(tmp_path / f"rank{rank}.json") for rank in (0, 1)]
    (tmp_path / "et.json").write_text('{"schema": "1.0.2", "nodes": []}')

    assert discover(str(tmp_path / "*.json")).paths == tuple(paths)
    assert discover([*paths, tmp_path]).paths == tuple(paths)


def test_a_folder_of_folders_gives_the_traces_inside(tmp_path: Path) -> None:
    paths = [put(tmp_path / f"host{host}" / f"rank{host}.json") for host in (0, 1)]

    assert discover(tmp_path).paths == tuple(paths)


def test_a_named_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "et.json"
    path.write_text('{"schema": "1.0.2", "nodes": []}')

    with pytest.raises(TraceError, match="'execution trace file', expected one of: Kineto"):
        load_traces([path])


@pytest.mark.parametrize("named", ["absent.json", "absent*.json"])
def test_what_is_not_there_is_named(tmp_path: Path, named: str) -> None:
    with pytest.raises(TraceError, match=r"absent.*no such file or folder"):
        load_traces([tmp_path / named])


def test_a_folder_without_traces_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "et.json").write_text('{"schema": "1.0.2", "nodes": []}')

    with pytest.raises(TraceError, match=r"no traces found.*1 execution trace file"):
        load_traces(tmp_path)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json", 34),
        ("kineto_rank_3.json", 3),
        ("worker7.1623143089861.pt.trace.json", 7),
        ("run_12.json", 12),
        ("5.pt.trace.json", 5),
        ("host_1623143089861.json", 0),
        ("x1016002.json", 0),
    ],
)
def test_a_rank_is_taken_from_the_name_where_the_file_has_none(
    tmp_path: Path, name: str, rank: int
) -> None:
    (trace,) = load_traces(put(tmp_path / name))

    assert trace.meta.rank == rank


def test_of_several_files_is_said_which_do_not_state_their_rank(tmp_path: Path) -> None:
    traces = load_traces([put(tmp_path / f"rank{rank}.json") for rank in range(2)])

    assert [trace.meta.rank for trace in traces] == [0, 1]
    assert all("does not state its rank" in trace.meta.notes[-1] for trace in traces)


def test_the_file_is_believed_before_its_name(tmp_path: Path) -> None:
    (trace,) = load_traces(put(tmp_path / "rank3.json", {"rank": 5}))

    assert trace.meta.rank == 5
    assert trace.meta.notes == ()


def test_files_without_any_rank_take_the_free_ones_in_order(tmp_path: Path) -> None:
    put(tmp_path / "a.json", name="first")
    put(tmp_path / "b.json", {"rank": 0})
    put(tmp_path / "c.json", name="last")

    traces = load_traces(tmp_path)

    assert [trace.meta.rank for trace in traces] == [0, 1, 2]
    assert [trace.strings for trace in traces] == [("op",), ("first",), ("last",)]


def test_two_files_of_one_rank_are_named(tmp_path: Path) -> None:
    put(tmp_path / "one.json", {"rank": 2})
    put(tmp_path / "two.json", {"rank": 2})

    with pytest.raises(TraceError, match=r"of rank 2: .*one\.json and .*two\.json"):
        load_traces(tmp_path)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"world_size": 8}, {"world_size": 4}, "states world_size 8, .* states 4"),
        ({"backend": "nccl"}, {"backend": "gloo"}, "states backend nccl, .* states gloo"),
        (
            {"pg_config": [{"pg_name": "1", "ranks": [0, 1]}]},
            {"pg_config": [{"pg_name": "1", "ranks": [0, 1, 2]}]},
            r"ranks of process group '1' \(0, 1\)",
        ),
    ],
)
def test_files_of_two_runs_are_refused(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], words: str
) -> None:
    put(tmp_path / "a.json", {"rank": 0, **first})
    put(tmp_path / "b.json", {"rank": 1, **second})

    with pytest.raises(TraceError, match=words):
        load_traces(tmp_path)


def test_groups_that_ranks_name_for_themselves_do_not_clash(tmp_path: Path) -> None:
    for rank in range(4):
        ranks = [rank // 2 * 2, rank // 2 * 2 + 1]
        put(
            tmp_path / f"{rank}.json",
            {"rank": rank, "pg_config": [{"pg_name": "1", "ranks": ranks}]},
        )

    assert len(load_traces(tmp_path)) == 4


def test_a_rank_beyond_the_number_of_ranks_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "a.json", {"rank": 8, "world_size": 8})

    with pytest.raises(TraceError, match="of rank 8 of a run of 8 ranks"):
        load_traces(tmp_path)


def test_some_ranks_can_be_asked_for(tmp_path: Path) -> None:
    for rank in range(5):
        put(tmp_path / f"rank{rank}.json", {"rank": rank})
    seen: list[tuple[int, int]] = []

    traces = load_traces(tmp_path, ranks={1, 3}, progress=lambda *done: seen.append(done))

    assert [trace.meta.rank for trace in traces] == [1, 3]
    assert seen[-1] == (2, 2)
    with pytest.raises(TraceError, match="no trace of rank 7"):
        load_traces(tmp_path, ranks={1, 7})
    with pytest.raises(TraceError, match="no trace of rank 7: found 0, 1, 2, 3, 4"):
        load_traces(tmp_path, ranks={7})


@pytest.mark.parametrize("workers", [1, 3])
def test_progress_rises_to_all_files(tmp_path: Path, workers: int) -> None:
    for rank in range(6):
        put(tmp_path / f"rank{rank}.json", {"rank": rank})
    seen: list[tuple[int, int]] = []

    load_traces(tmp_path, workers=workers, progress=lambda *done: seen.append(done))

    assert seen == sorted(seen)
    assert seen[-1] == (6, 6)


@pytest.mark.parametrize("workers", [1, 3])
def test_one_bad_file_among_many_is_the_one_that_is_named(tmp_path: Path, workers: int) -> None:
    for rank in range(6):
        put(tmp_path / f"rank{rank}.json", {"rank": rank})
    (tmp_path / "rank4.json").write_bytes(b'{"traceEvents": [}')

    with pytest.raises(TraceError, match=r"rank4\.json: not JSON at byte 17"):
        load_traces(sorted(tmp_path.iterdir()), workers=workers)


def test_how_many_are_read_at_once_does_not_matter(tmp_path: Path) -> None:
    for rank in range(4):
        put(tmp_path / f"rank{rank}.json", {"rank": rank}, name=f"op{rank}")

    for one, other in zip(
        load_traces(tmp_path, workers=1), load_traces(tmp_path, workers=4), strict=True
    ):
        assert_same(one, other)


def test_no_files_at_once_is_a_wrong_argument(tmp_path: Path) -> None:
    put(tmp_path / "rank0.json")

    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        load_traces(tmp_path, workers=0)


def test_groups_of_many_ranks_are_compared_in_linear_time() -> None:
    """Every rank lists everybody: 4,096 of them took longer than anyone waited."""
    num_ranks, world = 1024, tuple(range(1024))
    trace = trace_from([file_text([OP])])
    traces = [
        replace(
            trace,
            meta=replace(
                trace.meta,
                rank=rank,
                world_size=num_ranks,
                process_groups=(
                    ProcessGroup("0", "", world),
                    ProcessGroup("1", "", (rank // 2 * 2, rank // 2 * 2 + 1)),
                ),
            ),
        )
        for rank in range(num_ranks)
    ]
    began = perf_counter()

    assert len(ranked(traces)) == num_ranks

    assert perf_counter() - began < 2.0  # was 7 s on an idle machine, and is 0.05 s


def test_groups_that_contradict_each_other_only_through_a_third_are_refused(
    tmp_path: Path,
) -> None:
    for rank, ranks in enumerate(([0, 1, 2], [1, 2], [0, 1, 2])):
        put(
            tmp_path / f"{rank}.json",
            {"rank": rank, "pg_config": [{"pg_name": "1", "ranks": ranks}]},
        )

    with pytest.raises(TraceError, match=r"\(0, 1, 2\), .*1\.json states \(1, 2\)"):
        load_traces(tmp_path)


@pytest.mark.parametrize(
    ("info", "note"),
    [
        ({"rank": 0, "world_size": 10**9}, "world_size is 1000000000, expected 0 to 1048576"),
        ({"rank": 10**9}, "rank is 1000000000, expected 0 to 1048576"),
        ({"rank": -1}, "rank is -1, expected 0 to 1048576"),
    ],
)
def test_more_ranks_than_any_job_has_are_not_believed(
    tmp_path: Path, info: dict[str, Any], note: str
) -> None:
    (trace,) = load_traces(put(tmp_path / "rank0.json", info))

    assert note in trace.meta.notes[0]
    assert trace.meta.world_size is None
    assert trace.meta.rank == 0


def test_a_name_that_is_no_utf8_is_read_and_kept(tmp_path: Path) -> None:
    path = put(tmp_path / os.fsdecode(b"rank0-\xff.json"), {"rank": 0})
    folder = tmp_path / "cache"

    first, second = (load_traces(path, cache_folder=folder)[0] for _ in range(2))

    assert first.meta.notes == second.meta.notes == ()
    assert first.meta.path == second.meta.path == path


def test_readers_in_threads_share_decoders_made_at_import() -> None:
    """Msgspec describes a type to itself without a lock: threads that all do it end the process."""
    sources = sorted(Path(trace_module.__file__).parent.rglob("*.py"))

    calls = [
        f"{path.name}:{node.lineno}"
        for path in sources
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).startswith("msgspec.")
        and (
            ast.unparse(node.func).endswith(".Decoder")
            or any(keyword.arg == "type" for keyword in node.keywords)
        )
    ]

    assert len(sources) > 20
    assert calls == []

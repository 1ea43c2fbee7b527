"""Many files: which are read, of which rank they are, and whether they belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretrace.base import TraceError
from foretrace.trace import discover, load_traces
from tests.trace.kineto_json import assert_same, file_text

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
    (tmp_path / "rank0.steps.json").write_text('{"format": "foretrace-steps-1"}')
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

    with pytest.raises(TraceError, match="an execution trace"):
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
    assert "does not state its rank" in trace.meta.notes[-1]


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

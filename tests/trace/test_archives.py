"""Traces in archives, and packed in other ways than gzip."""

from __future__ import annotations

import bz2
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from foretrace.base import TraceError
from foretrace.trace import Trace, discover, execution_traces_beside, load_traces
from foretrace.trace.read import read_trace
from tests.trace.kineto_json import file_text


def text_of(rank: int) -> bytes:
    event = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 1 + rank}
    return file_text([event], members={"distributedInfo": {"rank": rank, "world_size": 2}})


def tar_of(path: Path, mode: str) -> None:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for rank in (1, 0):
            member = tarfile.TarInfo(f"./run/rank{rank}.json")
            member.size = len(text_of(rank))
            archive.addfile(member, io.BytesIO(text_of(rank)))
        archive.addfile(tarfile.TarInfo("./run/._rank0.json"))


def zip_of(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for rank in (1, 0):
            archive.writestr(f"run/rank{rank}.json", text_of(rank))


MAKERS: dict[str, Callable[[Path], None]] = {
    "run.tar": lambda path: tar_of(path, "w"),
    "run.tgz": lambda path: tar_of(path, "w:gz"),
    "run.tar.xz": lambda path: tar_of(path, "w:xz"),
    "run.zip": zip_of,
}


@pytest.mark.parametrize("name", MAKERS)
def test_an_archive_of_ranks_is_a_run(tmp_path: Path, name: str) -> None:
    MAKERS[name](tmp_path / name)

    traces = load_traces(tmp_path / name)

    assert [trace.meta.rank for trace in traces] == [0, 1]
    assert [trace.duration_ns.tolist() for trace in traces] == [[1_000], [2_000]]
    assert [trace.meta.path for trace in traces] == [
        tmp_path / name / "run" / f"rank{rank}.json" for rank in (0, 1)
    ]


def test_a_member_can_be_named_alone_and_again(tmp_path: Path) -> None:
    MAKERS["run.tar"](tmp_path / "run.tar")

    (trace,) = load_traces(tmp_path / "run.tar" / "run" / "rank1.json")

    assert trace.meta.rank == 1
    assert execution_traces_beside([trace.meta.path]) == {}
    with pytest.raises(TraceError, match="rank9"):
        load_traces(tmp_path / "run.tar" / "run" / "rank9.json")


@pytest.mark.parametrize(
    ("name", "pack"), [("a.json.bz2", bz2.compress), ("a.json.xz", lzma.compress)]
)
def test_other_compressions_are_read(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    (tmp_path / name).write_bytes(pack(text_of(0)))

    trace: Trace = read_trace(tmp_path / name)

    assert trace.duration_ns.tolist() == [1_000]


def test_zstd_is_read_where_something_can(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard", reason="nothing here writes zstd")
    (tmp_path / "a.json.zst").write_bytes(zstandard.compress(text_of(0)))

    assert read_trace(tmp_path / "a.json.zst").duration_ns.tolist() == [1_000]


def test_a_zip_of_one_trace_is_that_trace(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.writestr("trace.json", text_of(0))
        archive.writestr("notes.txt", "none")

    assert discover(tmp_path / "one.zip").paths == (tmp_path / "one.zip",)
    assert read_trace(tmp_path / "one.zip").duration_ns.tolist() == [1_000]


def test_names_that_lead_out_of_an_archive_are_left_alone(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "out.zip", "w") as archive:
        archive.writestr("../rank0.json", text_of(0))
        archive.writestr("/rank1.json", text_of(1))
        archive.writestr("rank2.json", text_of(0))

    paths = discover(tmp_path / "out.zip").paths

    assert paths == tuple(tmp_path / "out.zip" / f"rank{rank}.json" for rank in (1, 2))

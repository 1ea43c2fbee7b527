"""Reports of Nsight Systems as small SQLite files with the tables that NVIDIA documents."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.base import TraceError
from foretrace.trace import inspect
from foretrace.trace.others import read_nsight

PROCESS = 42 << 24
THREAD = PROCESS | 7
TEXTS = {
    1: "cudaLaunchKernel_v7000",
    2: "void gemm<float>(int)",
    3: "cudaStreamWaitEvent_v3020",
    4: "cudaEventRecord_v3020",
    5: "cudaDeviceSynchronize_v3020",
    6: "ProfilerStep#3",
}
DEVICE = "deviceId INT, streamId INT, correlationId INT, start INT, end INT, globalPid INT"
SIZES = "gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT"
TABLES = f"""
CREATE TABLE StringIds (id INT, value TEXT);
CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT);
CREATE TABLE OSRT_API (start INT, end INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({DEVICE}, demangledName INT, shortName INT, {SIZES});
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY
    ({DEVICE}, bytes INT, copyKind INT, srcKind INT, dstKind INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION ({DEVICE}, syncType INT, eventId INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (correlationId INT, streamId INT, eventId INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
    (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
CREATE TABLE NVTX_EVENTS
    (start INT, end INT, eventType INT, globalTid INT, text TEXT, textId INT);
"""


def write_report(path: Path, *, processes: tuple[int, ...] = (PROCESS,)) -> Path:
    """A product on one stream, a copy on another that waits for it, and the end.

    Other processes than the first have the product and the step alone.
    """
    with closing(sqlite3.connect(path)) as file:
        file.executescript(TABLES)
        file.executemany("INSERT INTO StringIds VALUES (?, ?)", TEXTS.items())
        file.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100')")
        file.execute("INSERT INTO OSRT_API VALUES (1, 2)")
        for process in processes:
            file.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0,7,11,?,?,?,2,2,8,1,1,128,1,1)",
                (2_000, 52_000, process),
            )
        file.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (0,9,15,52500,60500,?,4096,1,1,2)",
            (PROCESS,),
        )
        calls = [
            (1_000, 1_900, 11, 1),
            (2_000, 2_100, 12, 4),
            (2_200, 2_300, 13, 3),
            (3_000, 61_000, 16, 5),
        ]
        for start, end, number, name in calls:
            file.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)",
                (start, end, THREAD, number, name),
            )
        file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (12, 7, 99)")
        file.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (0,9,13,2200,2300,?,2,99)",
            (PROCESS,),
        )
        ranges = [
            (500, 62_000, None, 6),
            (900, 1_950, "aten::mm, seq = 4, op_id = 8, sizes = [[8, 16], [16, 4]]", None),
        ]
        for start, end, text, at in ranges:
            file.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?,?,59,?,?,?)", (start, end, THREAD, text, at)
            )
        for process in processes[1:]:
            file.execute("INSERT INTO NVTX_EVENTS VALUES (500,62000,59,?,NULL,6)", (process | 7,))
        file.commit()
    return path


def test_a_report_becomes_a_trace(tmp_path: Path) -> None:
    trace = read_nsight(write_report(tmp_path / "report.sqlite"))
    names = [trace.strings[one] for one in trace.name.tolist()]

    assert trace.meta.device_names == ("NVIDIA H100",)
    assert trace.meta.dropped["calls into the operating system"] == 1
    assert trace.start_ns[names.index("void gemm<float>(int)")] == 2_000
    assert trace.duration_ns[names.index("void gemm<float>(int)")] == 50_000
    assert "cudaLaunchKernel" in names  # without its version
    assert "aten::mm" in names  # an operator, not a mark
    assert [int(one) for one in trace.syncs.record_correlation] == [12]
    assert [int(one) for one in trace.syncs.wait_on_stream] == [7]


def test_only_devices_that_were_used_are_named(tmp_path: Path) -> None:
    report = write_report(tmp_path / "report.sqlite")
    with closing(sqlite3.connect(report)) as file:
        others = ((1, "Intel(R) UHD Graphics"), (2, "NVIDIA RTX 5090"))
        file.executemany("INSERT INTO TARGET_INFO_GPU VALUES (?, ?)", others)
        file.commit()

        assert read_nsight(report).meta.device_names == ("NVIDIA H100",)

        file.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INT, cudaId INT, pid INT)")
        numbered = ((2, 0, PROCESS >> 24 & 0xFFFFFF), (0, 0, 1))  # CUDA_VISIBLE_DEVICES=2
        file.executemany("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, ?)", numbered)
        file.commit()

        assert read_nsight(report).meta.device_names == ("NVIDIA RTX 5090",)


def test_it_replays_and_is_asked_as_any_other(tmp_path: Path) -> None:
    job = ft.load(write_report(tmp_path / "report.sqlite"), cache=tmp_path / "cache")

    found = ft.replay(job)

    assert job.graph.step_names == ("ProfilerStep#3",)
    assert found.replayed_step_time_ns == found.step_time_ns == 61_500
    assert "aten::mm" in ft.operators(job).to_polars()["operator"].to_list()


def test_a_packed_report_is_the_same(tmp_path: Path) -> None:
    plain = write_report(tmp_path / "report.sqlite")
    packed = tmp_path / "report.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))

    one, other = read_nsight(plain), read_nsight(packed)

    assert one.start_ns.tolist() == other.start_ns.tolist()
    assert one.strings == other.strings


def test_pages_of_managed_memory_that_move_are_copies_that_nothing_launched(tmp_path: Path) -> None:
    path = write_report(tmp_path / "report.sqlite")
    with closing(sqlite3.connect(path)) as file:
        file.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (0,0,0,?,?,?,65536,?,7,7)",
            [(40_000, 41_000, PROCESS, 11), (60_600, 60_700, PROCESS, 12)],
        )
        file.commit()

    (found,) = inspect(path, cache_folder=tmp_path / "cache")
    names = set(read_nsight(path).strings)

    assert names >= {"Memcpy HtoD (Managed -> Managed)", "Memcpy DtoH (Managed -> Managed)"}
    assert any(note.startswith("2 copies are pages of managed memory") for note in found.notes)


def test_what_to_record_better_is_said_of_its_own_profiler(tmp_path: Path) -> None:
    path = write_report(tmp_path / "report.sqlite")
    with closing(sqlite3.connect(path)) as file:
        file.execute("DELETE FROM NVTX_EVENTS")
        file.commit()

    (found,) = inspect(path, cache_folder=tmp_path / "cache")

    assert any("NVTX range" in one for one in found.advice)
    assert any("emit_nvtx" in one for one in found.advice)
    assert not any("ProfilerActivity" in one or "step()" in one for one in found.advice)
    assert not any("backward" in one for one in found.lacks)  # without operators nobody knows


def test_processes_of_one_report_are_ranks_of_one_run(tmp_path: Path) -> None:
    path = write_report(tmp_path / "report.sqlite", processes=(PROCESS, 43 << 24))

    job = ft.load(path, cache=tmp_path / "cache")
    again = ft.load(tmp_path, cache=tmp_path / "cache")

    assert job.graph.ranks == again.graph.ranks == (0, 1)
    assert sorted(job.graph.rank[job.graph.is_device].tolist()) == [0, 0, 1]


def test_one_process_is_named_as_if_the_report_were_a_folder(tmp_path: Path) -> None:
    path = write_report(tmp_path / "report.sqlite", processes=(PROCESS, 43 << 24))

    job = ft.load(path / "43", cache=tmp_path / "cache")

    assert int(job.graph.is_device.sum()) == 1
    with pytest.raises(TraceError, match=r"holds no process '44' with device work, but 42, 43"):
        ft.load(path / "44", cache=tmp_path / "cache")
    with pytest.raises(TraceError, match=r"2 processes used devices in it: 42 .*43 .*FILE/PROCESS"):
        read_nsight(path)


def test_another_sqlite_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE notes (text TEXT)")

    with pytest.raises(TraceError, match=r"the tables notes, expected CUPTI_ACTIVITY_KIND_KERNEL"):
        ft.load(path, cache=tmp_path / "cache")


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_damaged_report_is_refused(tmp_path: Path, part: float) -> None:
    whole = write_report(tmp_path / "report.sqlite").read_bytes()
    path = tmp_path / "cut.sqlite"
    path.write_bytes(whole[: int(len(whole) * part)])

    with pytest.raises(TraceError, match="damaged"):
        read_nsight(path)


def test_a_packed_report_that_was_cut_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(write_report(tmp_path / "report.sqlite").read_bytes())
    path = tmp_path / "cut.sqlite.gz"
    path.write_bytes(packed[: len(packed) // 2])

    with pytest.raises(TraceError, match="the compressed data ends early; record or copy"):
        read_nsight(path)

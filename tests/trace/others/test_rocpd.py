"""Databases of rocprofv3, small, with the tables that its tool makes."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.base import TraceError
from foretrace.trace.others import read_rocpd

ID = "_0c1d_77"
SIZES = ", ".join(f"{what}_size_{axis} INT" for what in ("workgroup", "grid") for axis in "xyz")
TABLES = {
    "string": "id INT, string TEXT",
    "info_process": "id INT, pid INT",
    "info_thread": "id INT, pid INT, tid INT",
    "info_agent": "id INT, pid INT, type TEXT, name TEXT, product_name TEXT",
    "info_kernel_symbol": "id INT, kernel_name TEXT, display_name TEXT",
    "event": "id INT, category_id INT, stack_id INT, extdata TEXT",
    "region": "id INT, pid INT, tid INT, start INT, end INT, name_id INT, event_id INT",
    "kernel_dispatch": (
        "pid INT, agent_id INT, kernel_id INT, queue_id INT, stream_id INT, start INT, end INT, "
        f"{SIZES}, event_id INT"
    ),
    "memory_copy": (
        "pid INT, start INT, end INT, name_id INT, dst_agent_id INT, src_agent_id INT, size INT, "
        "stream_id INT, event_id INT"
    ),
    "memory_allocate": "pid INT, start INT, end INT",
}
TEXTS = {
    1: "HIP_RUNTIME_API", 2: "MARKER_CORE_API", 3: "HSA_CORE_API", 4: "hipLaunchKernel",
    5: "hipMemcpyAsync", 6: "roctxRangePushA", 7: "MEMORY_COPY_HOST_TO_DEVICE",
}  # fmt: skip


def write(
    path: Path,
    *,
    processes: tuple[int, ...] = (1,),
    with_views: bool = True,
    copies_on: int = 6,
) -> Path:
    """A product and a copy that calls started, within a range that is a step."""
    with closing(sqlite3.connect(path)) as file:
        for name, columns in TABLES.items():
            file.execute(f"CREATE TABLE rocpd_{name}{ID} ({columns})")
            if with_views:
                file.execute(f"CREATE VIEW rocpd_{name} AS SELECT * FROM rocpd_{name}{ID}")  # noqa: S608

        def add(name: str, *values: object) -> None:
            marks = ",".join("?" * len(values))
            file.execute(f"INSERT INTO rocpd_{name}{ID} VALUES ({marks})", values)  # noqa: S608

        for pair in TEXTS.items():
            add("string", *pair)
        add("info_kernel_symbol", 3, "Cijk_Ailk.kd", "Cijk_Ailk.kd")
        for event in ((1, 1, 11, "{}"), (2, 1, 12, "{}"), (4, 3, 14, "{}")):
            add("event", *event)
        add("event", 3, 2, 13, '{"message": "ProfilerStep#1"}')
        add("memory_allocate", 1, 0, 1)
        for process in processes:
            cpu, gpu = 10 * process, 10 * process + 1
            add("info_process", process, 76 + process)
            add("info_thread", process, process, 500 + process)
            add("info_agent", cpu, process, "CPU", "EPYC", "")
            add("info_agent", gpu, process, "GPU", "gfx942", "MI300X")
            add(
                "kernel_dispatch", process, gpu, 3, 2, 5, 3_000, 9_000,
                256, 1, 1, 1024, 1, 1, 1,
            )  # fmt: skip
            add("memory_copy", process, 9_000, 9_500, 7, gpu, cpu, 64, copies_on, 2)
            for number, (start, end, text) in enumerate(
                ((1_000, 2_000, 4), (2_100, 2_500, 5), (900, 9_600, 6), (950, 960, 4)), 1
            ):
                add("region", number, process, process, start, end, text, number)
        file.commit()
    return path


@pytest.mark.parametrize("with_views", [True, False])
def test_dispatches_copies_calls_and_marks(tmp_path: Path, *, with_views: bool) -> None:
    path = write(tmp_path / "77_results.db", with_views=with_views)

    trace = read_rocpd(path)
    job = ft.load(tmp_path, cache=tmp_path / "cache")

    names = {trace.strings[one] for one in trace.name.tolist()}
    assert names == {
        "Cijk_Ailk", "Memcpy HtoD", "hipLaunchKernel",
        "hipMemcpyAsync", "ProfilerStep#1",
    }  # fmt: skip
    assert trace.meta.device_names == ("MI300X",)
    assert trace.meta.dropped == {
        "allocations of memory": 1, "calls into the runtime of the driver (HSA)": 1,
    }  # fmt: skip
    assert job.graph.step_names == ("ProfilerStep#1",)
    assert ft.replay(job).replayed_step_time_ns == 9_600 - 900


def test_processes_of_one_database_are_ranks_of_one_run(tmp_path: Path) -> None:
    path = write(tmp_path / "merged.db", processes=(1, 2))

    assert ft.load(path, cache=tmp_path / "cache").graph.ranks == (0, 1)
    assert ft.load(path / "2", cache=tmp_path / "cache").graph.ranks == (1,)
    with pytest.raises(TraceError, match=r"2 processes used devices in it: 1 \(2 operations\), 2"):
        read_rocpd(path)


def test_a_database_without_device_work_says_how_to_record_it(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="without device work; record with `rocprofv3 --kernel"):
        read_rocpd(write(tmp_path / "77_results.db", processes=()))


def test_a_database_that_mentions_rocprofv3_alone_says_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "compute.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE compute_kernel (id INT, retain_rocpd_output INT)")
        file.commit()

    with pytest.raises(
        TraceError, match=r"no table of rocprofv3 \(rocpd_...\), but compute_kernel"
    ):
        read_rocpd(path)


@pytest.mark.parametrize("stream", [5, 6])
def test_a_copy_behind_a_kernel_is_replayed_when_it_ran(tmp_path: Path, stream: int) -> None:
    path = write(tmp_path / "77_results.db", copies_on=stream)

    found = ft.replay(ft.load(path, cache=tmp_path / "cache"))

    assert found.replayed_step_time_ns == found.step_time_ns == 9_600 - 900


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE rocpd_kernel_dispatch{0} SET start = 'soon'",
        "UPDATE rocpd_kernel_dispatch{0} SET end = NULL",
        "UPDATE rocpd_kernel_dispatch{0} SET grid_size_x = x'00', kernel_id = 'k'",
        "UPDATE rocpd_event{0} SET extdata = '[[[', stack_id = 'x'",
        "UPDATE rocpd_region{0} SET tid = 1.5, name_id = NULL",
        "UPDATE rocpd_info_thread{0} SET tid = 'main'",
        "UPDATE rocpd_memory_copy{0} SET size = 1e300, stream_id = 'x'",
    ],
)
def test_hostile_rows_end_in_an_answer_or_a_sentence(damage: str, tmp_path: Path) -> None:
    path = write(tmp_path / "77_results.db")
    with closing(sqlite3.connect(path)) as file:
        file.execute(damage.format(ID))
        file.commit()

    with suppress(TraceError):
        assert ft.replay(ft.load(path, cache=tmp_path / "cache")).replayed_step_time_ns > 0


def test_a_damaged_schema_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """SQLite quotes it in its error, which Python then cannot read."""
    path = write(tmp_path / "77_results.db")
    text = b"CREATE TABLE rocpd_event"
    path.write_bytes(path.read_bytes().replace(text, b"CREATE TABEL \xff\xffcpd_event"))

    with pytest.raises(TraceError, match="the SQLite file is damaged"):
        read_rocpd(path)

"""Files of rocprofv3, small, with the members that its tool writes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import foretrace as ft
from foretrace.base import TraceError
from foretrace.trace.others import read_rocprof


def record(start: int, end: int, number: int, **more: Any) -> dict[str, Any]:
    return {
        "start_timestamp": start,
        "end_timestamp": end,
        "correlation_id": {"internal": number, "external": 0},
        "thread_id": 77,
        **more,
    }


def a_process(**records: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "metadata": {"pid": 77},
        "agents": [
            {"id": {"handle": 1}, "type": 1, "name": "EPYC"},
            {"id": {"handle": 5}, "type": 2, "name": "gfx942", "product_name": "MI300X"},
        ],
        "kernel_symbols": [{"kernel_id": 3, "formatted_kernel_name": "Cijk_Ailk.kd"}],
        "strings": {
            "buffer_records": [
                {"kind": "NONE", "operations": []},
                {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel", "hipMemcpyAsync"]},
            ],
            "marker_api": [{"key": 9, "value": "ProfilerStep#1"}],
        },
        "buffer_records": records,
    }


def write(path: Path, *processes: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(processes)}))
    return path


def whole() -> dict[str, Any]:
    work = {
        "agent_id": {"handle": 5},
        "queue_id": {"handle": 16},
        "kernel_id": 3,
        "workgroup_size": {"x": 256, "y": 1, "z": 1},
        "grid_size": {"x": 1024, "y": 1, "z": 1},
    }
    ends = {"src_agent_id": {"handle": 1}, "dst_agent_id": {"handle": 5}, "bytes": 64}
    return a_process(
        kernel_dispatch=[record(3_000, 9_000, 1, dispatch_info=work)],
        memory_copy=[record(9_000, 9_500, 2, **ends)],
        hip_api=[
            record(1_000, 2_000, 1, kind=1, operation=0),
            record(2_100, 2_500, 2, kind=1, operation=1),
        ],
        marker_api=[record(900, 9_600, 9)],
        hsa_api=[record(0, 1, 5)],
    )


def test_dispatches_copies_calls_and_marks(tmp_path: Path) -> None:
    path = write(tmp_path / "77_results.json", whole())

    trace = read_rocprof(path)
    job = ft.load(path, cache=tmp_path / "cache")

    names = {trace.strings[one] for one in trace.name.tolist()}
    assert names == {
        "Cijk_Ailk", "Memcpy HtoD", "hipLaunchKernel", "hipMemcpyAsync", "ProfilerStep#1",
    }  # fmt: skip
    assert trace.meta.device_names == ("MI300X",)
    assert sum(trace.meta.dropped.values()) == 1
    assert job.graph.step_names == ("ProfilerStep#1",)
    assert ft.replay(job).replayed_step_time_ns == 9_600 - 900


def test_kernels_alone_take_as_long_as_they_took(tmp_path: Path) -> None:
    alone = whole()
    alone["buffer_records"] = {"kernel_dispatch": alone["buffer_records"]["kernel_dispatch"] * 2}
    second = dict(alone["buffer_records"]["kernel_dispatch"][1])
    alone["buffer_records"]["kernel_dispatch"][1] = {
        **second, "start_timestamp": 20_000, "end_timestamp": 21_000,
    }  # fmt: skip

    job = ft.load(write(tmp_path / "77_results.json", alone), cache=tmp_path / "cache")

    assert ft.replay(job).step_time_ns == 21_000 - 3_000


@pytest.mark.parametrize("number", [0, 2])
def test_one_process_a_file(tmp_path: Path, number: int) -> None:
    path = write(tmp_path / "77_results.json", *[whole()] * number)

    with pytest.raises(TraceError, match=f"holds {number} processes"):
        read_rocprof(path)


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "77_results.json", whole())
    path.write_text(path.read_text()[:-40])

    with pytest.raises(TraceError, match="begins as a file of rocprofv3 and is none"):
        ft.load(path, cache=tmp_path / "cache")


def test_a_packed_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(write(tmp_path / "77_results.json", whole()).read_bytes())
    path = tmp_path / "cut_results.json.gz"
    path.write_bytes(packed[:-20])

    with pytest.raises(TraceError, match="the compressed data ends early"):
        ft.load(path, cache=tmp_path / "cache")

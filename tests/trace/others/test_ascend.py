"""What is read of the exports of Ascend's profiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import foretrace as ft
from foretrace.base import TraceError
from foretrace.graph import NodeKind
from foretrace.trace import RuntimeRole, format_of
from foretrace.trace.others import read_ascend
from foretrace.trace.runtime import role_of
from tests.trace.npu_exports import HCCL, event, export, named


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(events))
    return path


def test_operations_of_an_npu_follow_the_calls_that_launched_them(tmp_path: Path) -> None:
    path = write(tmp_path / "trace_view.json", export())
    job = ft.load(path, cache=False)

    found = format_of(path)
    assert found is not None
    assert found.name == "export of the Ascend profiler"
    graph, measured = job.graph, job.measured
    kernels = graph.nodes_of(NodeKind.KERNEL)
    assert [graph.names[at] for at in graph.name[kernels]] == [
        "aclnnMm_MatMulCommon_MatMulV2", "trans_TransData_1",
    ]  # fmt: skip
    assert [graph.names[at] for at in graph.operator[kernels]] == ["aclnnMm", "aclnnMm"]
    assert measured.duration_ns[kernels].tolist() == [20_000, 30_000]
    begins_ns = measured.start_ns[kernels]
    launches = graph.nodes_of(NodeKind.LAUNCH)
    assert (begins_ns - measured.start_ns[launches]).tolist() == [0, 18_000]  # clocks: 8 us
    assert ft.breakdown(job).overall.exposed_compute_ns == 50_000


def test_what_is_not_read_is_counted_and_collectives_are_told(tmp_path: Path) -> None:
    events = [*export(), named(HCCL, "Communication"), event(HCCL, 1, "hcom_allReduce_", 300, 9)]

    trace = read_ascend(write(tmp_path / "trace_view.json", events))

    assert trace.meta.dropped["waits of streams"] == 1
    assert trace.meta.dropped["calls inside calls"] == 1
    assert trace.meta.dropped["enqueue"] == 1
    assert any("1 records of HCCL" in note for note in trace.meta.notes)
    assert trace.num_accounted == trace.meta.num_events


def test_an_export_that_is_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(export())[:-30])

    with pytest.raises(TraceError, match="begins as an export of the Ascend profiler"):
        read_ascend(path)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("AscendCL@aclnnAdd", RuntimeRole.LAUNCH),
        ("AscendCL@aclnnAddGetWorkspaceSize", RuntimeRole.OTHER),
        ("AscendCL@aclopCompileAndExecute (preparing)", RuntimeRole.OTHER),
        ("AscendCL@aclrtMemcpyAsync", RuntimeRole.LAUNCH),
        ("AscendCL@aclrtMemcpy", RuntimeRole.BLOCKING_COPY),
        ("AscendCL@aclrtSynchronizeStreamWithTimeout", RuntimeRole.SYNC_STREAM),
        ("AscendCL@aclCreateTensorDesc", RuntimeRole.OTHER),
    ],
)
def test_calls_of_ascends_runtime_have_roles(name: str, role: RuntimeRole) -> None:
    assert role_of(name) is role

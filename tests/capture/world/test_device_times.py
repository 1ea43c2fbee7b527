"""Kernels belong to the operator in whose mark they were launched."""

from __future__ import annotations

import json
from pathlib import Path

from foretrace.capture.world.device_times import MARK, NO_MARK, started_by_mark
from foretrace.trace import Category, load_traces

_KERNEL, _COPY, _FILL = map(int, (Category.KERNEL, Category.MEMCPY, Category.MEMSET))


def _event(kind: str, name: str, start_us: float, length_us: float, **more: object) -> object:
    on_device = kind in {"kernel", "gpu_memcpy", "gpu_memset"}
    thread = more.pop("thread", 11)
    return {
        "ph": "X", "cat": kind, "name": name, "ts": start_us, "dur": length_us,
        "pid": 0 if on_device else 10, "tid": 7 if on_device else thread,
        "args": {"device": 0, "stream": 7, **more} if on_device else more,
    }  # fmt: skip


def test_kernels_are_of_the_mark_around_their_launch_on_its_thread(tmp_path: Path) -> None:
    """Wherever they run: the device is behind the host, and threads do not hold each other's."""
    path = tmp_path / "rank0.json"
    events = [
        _event("user_annotation", f"{MARK}1", 0.0, 10.0),
        _event("cpu_op", "aten::mm", 1.0, 8.0),
        _event("cuda_runtime", "cudaMemsetAsync", 2.0, 1.0, correlation=1),
        _event("cuda_runtime", "cudaLaunchKernel", 4.0, 1.0, correlation=2),
        _event("user_annotation", f"{MARK}2", 5.0, 10.0, thread=12),
        _event("cuda_runtime", "cudaLaunchKernel", 6.0, 1.0, correlation=3, thread=12),
        _event("cuda_runtime", "cudaMemcpyAsync", 20.0, 1.0, correlation=4),
        _event("cuda_runtime", "cudaLaunchKernel", 10.5, 1.0, correlation=5),
        _event("gpu_memset", "Memset (Device)", 100.0, 1.5, correlation=1),
        _event("kernel", "gemm", 102.0, 30.25, correlation=2),
        _event("kernel", "norm", 140.0, 5.0, correlation=3),
        _event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 150.0, 2.0, correlation=4),
        _event("kernel", "between", 160.0, 3.0, correlation=5),
        _event("kernel", "of no call", 170.0, 4.0, correlation=99),
    ]
    path.write_text(json.dumps({"traceEvents": events}))

    (trace,) = load_traces(path)

    assert started_by_mark(trace) == {
        1: [("Memset (Device)", _FILL, 1_500), ("gemm", _KERNEL, 30_250)],
        2: [("norm", _KERNEL, 5_000)],
        NO_MARK: [
            ("Memcpy DtoH (Device -> Pageable)", _COPY, 2_000),
            ("between", _KERNEL, 3_000),
            ("of no call", _KERNEL, 4_000),
        ],
    }

"""Exports of Ascend's profiler, small, as its `trace_view.json` writes them."""

from __future__ import annotations

from typing import Any

PYTHON, NPU, CANN, HCCL, MAIN, QUEUE = 10, 800, 1002, 77, 1, 2
BASE = 1_704_161_511_420_000


def named(pid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def event(pid: int, tid: int, name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    at = f"{BASE + ts:.3f}"
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": at, "dur": dur, **more}


def arrow(category: str, number: str, source: dict[str, Any], to: dict[str, Any]) -> list[Any]:
    ends = []
    for phase, one in (("s", source), ("f", to)):
        place = {"pid": one["pid"], "tid": one["tid"], "ts": one["ts"]}
        ends.append({"ph": phase, "name": category, "cat": category, "id": number, **place})
    return ends


def export() -> list[dict[str, Any]]:
    """An operator whose call, of another thread, compiles for 100 us and then launches two."""
    step = event(PYTHON, MAIN, "ProfilerStep#1", 0, 400, cat="cpu_op")
    operator = event(PYTHON, MAIN, "aclnnMm", 10, 5, cat="cpu_op", args={"Sequence number": 3})
    call = event(CANN, QUEUE, "AscendCL@aclopCompileAndExecute", 50, 120)
    inner = event(CANN, QUEUE, "AscendCL@opCompile", 55, 90)
    wait = event(CANN, MAIN, "AscendCL@aclrtSynchronizeStream", 200, 60)
    first = event(NPU, 3, "aclnnMm_MatMulCommon_MatMulV2", 142, 20)
    second = event(NPU, 3, "trans_TransData_1", 170, 30)
    moments = [event(CANN, QUEUE, "", ts, 0) for ts in (150, 160)]
    return [
        named(PYTHON, "Python"), named(CANN, "CANN"), named(NPU, "Ascend Hardware"),
        step, operator, call, inner, wait, first, second,
        event(NPU, 3, "Notify_Wait", 210, 5),
        *arrow("HostToDevice", "1", moments[0], first),
        *arrow("HostToDevice", "2", moments[1], second),
        *arrow("async_npu", "3", operator, first),
        *arrow("async_npu", "4", operator, second),
        event(PYTHON, QUEUE, "Enqueue", 12, 1, cat="enqueue"),
    ]  # fmt: skip

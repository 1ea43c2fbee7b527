from __future__ import annotations

from typing import Any

from foretrace.graph import Recording
from tests.graph.recorded import PROCESS, file_text, kernel, launch, recording_of_files

Event = dict[str, Any]
BACKWARD_THREAD = 101


def _memory(at: int, num_bytes: int, total: int, *, device: int = 0, kind: int = 1) -> Event:
    args = {
        "Device Type": kind,
        "Device Id": device,
        "Bytes": num_bytes,
        "Total Allocated": total,
        "Total Reserved": 1000,
    }
    name = "[memory]"
    return {
        "ph": "i",
        "s": "t",
        "name": name,
        "pid": PROCESS,
        "tid": PROCESS,
        "ts": at,
        "args": args,
    }


def _operator(name: str, at: int, takes: int, *, thread: int = PROCESS) -> Event:
    shape = {"Input Dims": [[4]], "Input type": ["float"]}
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": PROCESS,
        "tid": thread,
        "ts": at,
        "dur": takes,
        "args": shape,
    }


def _recording(*events: Event) -> Recording:
    work = [launch(50, 5, correlation=1), kernel("k", 60, 20, correlation=1)]
    return recording_of_files([file_text([*work, *events])])


def test_events_stand_on_the_timelines_clock_by_memory() -> None:
    recording = _recording(
        _memory(55, 512, 512),
        _memory(70, -512, 0),
        _memory(58, 64, 64, kind=0, device=-1),
    )

    host, device = recording.memory
    first_us = 50  # of the launch, where the timeline begins
    assert (host.is_device, host.device, host.at_ns.tolist()) == (False, -1, [8_000])
    assert (device.is_device, device.device) == (True, 0)
    assert device.at_ns.tolist() == [(55 - first_us) * 1000, (70 - first_us) * 1000]
    assert device.change_bytes.tolist() == [512, -512]
    assert device.allocated_bytes.tolist() == [512, 0]
    assert device.reserved_bytes.tolist() == [1000, 1000]


def test_allocation_belongs_to_the_operator_that_does_more_than_allocate() -> None:
    (device,) = _recording(
        _operator("aten::mul", 50, 20),
        _operator("aten::empty", 52, 2),
        _memory(53, 512, 512),
        _memory(69, 64, 576),
        _memory(90, -512, 64),
    ).memory

    assert device.operator is not None
    named = [(*device.operators, "")[at] for at in device.operator.tolist()]
    assert named == ["aten::mul", "aten::mul", ""]


def test_of_several_threads_the_operator_begun_last_allocates() -> None:
    (device,) = _recording(
        _operator("outer", 40, 100),
        _operator("AddBackward0", 60, 20, thread=BACKWARD_THREAD),
        launch(61, 1, correlation=2, thread=BACKWARD_THREAD),
        kernel("k", 85, 2, correlation=2),
        _memory(65, 512, 512),
        _memory(100, -512, 0),
    ).memory

    assert device.operator is not None
    named = [(*device.operators, "")[at] for at in device.operator.tolist()]
    assert named == ["AddBackward0", "outer"]


def test_file_without_memory_events_has_none() -> None:
    assert _recording().memory == ()

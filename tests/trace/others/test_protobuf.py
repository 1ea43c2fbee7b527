"""Profiles of XLA and Perfetto's traces, written here with protobuf's own library."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import foretrace as ft
from foretrace.base import GraphError, TraceError
from foretrace.trace.others import read_perfetto, read_xplane
from foretrace.trace.others.messages import message_classes
from foretrace.trace.others.perfetto import MESSAGES as TRACE
from foretrace.trace.others.xplane import MESSAGES as SPACE


class XlaProfile:
    """A profile that names its events and stats as they come."""

    def __init__(self) -> None:
        self.space = message_classes("xplane", SPACE)["xplane.XSpace"]()

    def plane(self, name: str) -> Any:
        return self.space.planes.add(name=name.encode())

    def event(self, plane: Any, line: Any, name: str, times: tuple[int, int], **said: Any) -> None:
        number = len(plane.event_metadata) + 1
        plane.event_metadata.add(key=number).value.name = name.encode()
        event = line.events.add(
            metadata_id=number, offset_ps=times[0] * 1000, duration_ps=(times[1] - times[0]) * 1000
        )
        for key, value in said.items():
            at = len(plane.stat_metadata) + 1
            plane.stat_metadata.add(key=at).value.name = key.encode()
            stat = event.stats.add(metadata_id=at)
            if isinstance(value, int):
                stat.uint64_value = value
            else:
                stat.str_value = value.encode()


def gpu_profile() -> bytes:
    made = XlaProfile()
    gpu = made.plane("/device:GPU:1")
    stream = gpu.lines.add(id=7, name=b"Stream #7(Compute)", timestamp_ns=1000)
    made.event(gpu, stream, "fusion.kd", (2_000, 7_000), correlation_id=5)
    made.event(gpu, stream, "MemcpyH2D", (7_000, 8_000), memcpy_details="kind:1 size:64 async:1")
    again = gpu.lines.add(id=8, name=b"XLA Ops", timestamp_ns=1000)
    made.event(gpu, again, "fusion", (2_000, 7_000))
    host = made.plane("/host:CPU")
    thread = host.lines.add(id=-3, name=b"python", timestamp_ns=1000)
    made.event(host, thread, "train", (500, 9_000), step_num=4)
    made.event(host, thread, "cuLaunchKernel", (1_000, 1_500), correlation_id=5)
    made.event(host, thread, "$train.py:3 step", (600, 8_900))
    text: bytes = made.space.SerializeToString()
    return text


def tpu_profile() -> bytes:
    made = XlaProfile()
    tpu = made.plane("/device:TPU:0")
    line = tpu.lines.add(id=1, name=b"XLA Ops", timestamp_ns=0)
    made.event(tpu, line, "while.1", (0, 10_000))
    made.event(tpu, line, "fusion.1", (0, 4_000))
    made.event(tpu, line, "fusion.2", (4_000, 10_000))
    made.event(tpu, line, "copy.3", (12_000, 13_000))
    text: bytes = made.space.SerializeToString()
    return text


def saved(path: Path, text: bytes) -> Path:
    path.write_bytes(text)
    return path


def test_streams_of_a_gpu_and_threads_of_its_host(tmp_path: Path) -> None:
    path = saved(tmp_path / "host.xplane.pb", gpu_profile())

    trace = read_xplane(path)
    job = ft.load(path, cache=tmp_path / "cache")

    names = {trace.strings[one] for one in trace.name.tolist()}
    assert {"fusion", "MemcpyH2D", "cuLaunchKernel", "train.py:3 step", "ProfilerStep#4"} == names
    assert trace.meta.dropped == {"lines that tell a device's work again": 1}
    assert job.graph.step_names == ("ProfilerStep#4",)
    assert ft.replay(job).replayed_step_time_ns == 8_500


def test_operations_of_a_tpu_without_those_that_hold_them(tmp_path: Path) -> None:
    path = saved(tmp_path / "host.xplane.pb", tpu_profile())

    trace = read_xplane(path)
    job = ft.load(path, cache=tmp_path / "cache")

    names = [trace.strings[one] for one in trace.name.tolist()]
    assert names == ["fusion.1", "fusion.2", "copy.3"]
    assert trace.meta.dropped == {"operations whose parts are told": 1}
    assert ft.replay(job).step_time_ns == 13_000


def test_a_profile_of_nothing_is_refused(tmp_path: Path) -> None:
    made = XlaProfile()
    made.plane("/host:metadata")

    with pytest.raises(TraceError, match="hold no event of a device or a host"):
        read_xplane(saved(tmp_path / "x.xplane.pb", made.space.SerializeToString()))


def perfetto_trace() -> bytes:
    """As rocprofv3 names its tracks: threads, and queues of agents."""
    trace = message_classes("perfetto", TRACE)["perfetto.Trace"]()
    tracks = {1: "THREAD 1 (M)", 2: "COMPUTE AGENT [2] QUEUE [0] (GPU)", 3: "COPY to AGENT [2]"}
    for uuid, title in tracks.items():
        packet = trace.packet.add(sequence=1, timestamp=0)
        packet.track.uuid, packet.track.name = uuid, title.encode()
    slices = [
        (1, b"hip_api", b"hipLaunchKernel", 1_000, 2_000, 5),
        (2, b"kernel_dispatch", b"Cijk.kd", 2_500, 9_000, 5),
        (3, b"memory_copy", b"MEMORY_COPY_HOST_TO_DEVICE", 9_000, 9_500, 6),
    ]
    interned = trace.packet.add(sequence=1, cleared=True).interned
    interned.names.add(iid=1, text=b"hipLaunchKernel")
    for track, category, name, start, end, number in slices:
        begin = trace.packet.add(sequence=1, timestamp=start).event
        begin.type, begin.track = 1, track
        begin.categories.append(category)
        if track == 1:
            begin.name_iid = 1
        else:
            begin.name = name
        said = begin.annotations.add(name=b"corr_id")
        said.uint = number
        stop = trace.packet.add(sequence=1, timestamp=end).event
        stop.type, stop.track = 2, track
    text: bytes = trace.SerializeToString()
    return text


def test_tracks_of_queues_are_devices(tmp_path: Path) -> None:
    path = saved(tmp_path / "run.pftrace", perfetto_trace())

    trace = read_perfetto(path)
    job = ft.load(path, cache=tmp_path / "cache")

    names = [trace.strings[one] for one in trace.name.tolist()]
    assert names == ["hipLaunchKernel", "Cijk", "MEMORY_COPY_HOST_TO_DEVICE"]
    assert sorted(trace.lanes.device.tolist()) == [-1, 2, 2]
    assert ft.replay(job).replayed_step_time_ns == 9_500 - 1_000


def test_what_was_written_for_perfetto_is_read_again(tmp_path: Path) -> None:
    job = ft.load(saved(tmp_path / "run.pftrace", perfetto_trace()), cache=tmp_path / "cache")
    ft.convert(job, tmp_path / "again.pftrace", to="perfetto")

    again = read_perfetto(tmp_path / "again.pftrace")

    assert "Cijk" in {again.strings[one] for one in again.name.tolist()}


@pytest.mark.parametrize(
    ("name", "whole"),
    [("host.xplane.pb", gpu_profile()), ("run.pftrace", perfetto_trace())],
    ids=["xla", "perfetto"],
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_bytes_end_in_a_sentence(
    tmp_path: Path, name: str, whole: bytes, data: st.DataObject
) -> None:
    text = bytearray(whole[: data.draw(st.integers(1, len(whole)))])
    for at in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=6)):
        text[at] = data.draw(st.integers(0, 255))
    path = saved(tmp_path / name, bytes(text))

    with suppress(TraceError, GraphError):  # nothing else may leave
        ft.load(path, cache=tmp_path / "cache")

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretrace as ft
from foretrace.analyze import MemoryUse, memory, snapshot_memory
from foretrace.base import GraphError
from foretrace.graph import MemoryEvents, NodeKind, Part, Phase, Recording
from foretrace.simulate import simulate
from foretrace.trace import load_snapshot
from tests.graphs import Block, GraphBuilder, recording_of
from tests.trace.snapshots import entry, frames, segment, written

MB = 1_000_000


def _events(
    rows: Sequence[tuple[int, int, str]], *, first_bytes: int = 0, has_totals: bool = True
) -> MemoryEvents:
    """Events of one device: moment, change, operator."""
    change = np.array([row[1] for row in rows], np.int64)
    operators = tuple(sorted({row[2] for row in rows if row[2]}))
    place = {name: at for at, name in enumerate(operators)}
    unknown = np.full(len(rows), -1, np.int64)
    return MemoryEvents(
        rank=0,
        is_device=True,
        device=0,
        at_ns=np.array([row[0] for row in rows], np.int64),
        change_bytes=change,
        allocated_bytes=first_bytes + np.cumsum(change) if has_totals else unknown,
        reserved_bytes=np.full(len(rows), 100 * MB) if has_totals else unknown,
        operators=operators,
        operator=np.array([place.get(row[2], -1) for row in rows], np.int32),
    )


def _recording(*series: MemoryEvents) -> Recording:
    """Two steps of 100 ns; in the second a forward block, then a backward block of layer 3."""
    build = GraphBuilder()
    before: list[int] = []
    for number in (1, 2):
        name = f"ProfilerStep#{number}"
        before = [build.add(NodeKind.STEP_BEGIN, step=name, after=before)]
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            node = build.add(
                NodeKind.LAUNCH,
                step=name,
                takes_ns=50,
                after=before,
                block=Block(Part.LAYER, phase, 3),
            )
            before = [node]
        before = [build.add(NodeKind.STEP_END, step=name, after=before)]
    recording = recording_of(build.graph(), simulate(build.graph()))
    return replace(recording, memory=series)


def test_peak_begin_and_end_of_a_step() -> None:
    events = _events(
        [(10, 90 * MB, "aten::mm"), (90, -80 * MB, ""), (110, 20 * MB, "aten::mm"),
         (160, 30 * MB, "aten::add"), (190, -45 * MB, "")],
        first_bytes=5 * MB,
    )  # fmt: skip

    use = memory(_recording(events), step="ProfilerStep#2")

    (place,) = use.places
    assert (place.begin_bytes, place.peak_bytes, place.end_bytes) == (15 * MB, 65 * MB, 20 * MB)
    assert place.peak_reserved_bytes == 100 * MB
    assert (place.peak.at_ns, place.peak.operator) == (160, "aten::add")
    assert place.peak.block == "layer 3 backward"
    assert [(one.what, one.num_bytes) for one in place.allocated_by] == [
        ("aten::add", 30 * MB),
        ("aten::mm", 20 * MB),
    ]
    assert place.label == "rank 0 device 0"


def test_step_that_only_frees_peaks_at_its_begin() -> None:
    events = _events([(10, 90 * MB, "aten::mm"), (150, -10 * MB, "")])

    (place,) = memory(_recording(events), step="ProfilerStep#2").places

    assert (place.peak_bytes, place.peak.at_ns, place.peak.operator) == (90 * MB, 100, "")


def test_without_totals_bytes_count_from_the_least_in_use() -> None:
    events = _events([(10, -30, ""), (120, 50, "aten::mm"), (150, -10, "")], has_totals=False)

    (place,) = memory(_recording(events), step="ProfilerStep#2").places

    assert place.is_relative
    assert (place.begin_bytes, place.peak_bytes, place.end_bytes) == (0, 50, 40)


def test_recording_without_events_has_no_rows() -> None:
    use = memory(_recording())

    assert len(use) == 0
    assert use.to_polars().height == 0


def test_step_that_does_not_exist_is_named() -> None:
    with pytest.raises(GraphError, match="no step 'x'"):
        memory(_recording(), step="x")


@given(
    changes=st.lists(st.tuples(st.integers(0, 99), st.integers(-50, 50)), max_size=40),
    first_bytes=st.integers(2000, 3000),  # never below 0
)
def test_no_bin_of_a_curve_hides_a_minimum_or_a_maximum(
    changes: list[tuple[int, int]], first_bytes: int
) -> None:
    rows = [(at + 100, change, "") for at, change in sorted(changes)]
    events = _events(rows, first_bytes=first_bytes)

    (place,) = memory(_recording(events), step="ProfilerStep#2").places

    curve = place.curve
    used = [place.begin_bytes, *events.allocated_bytes.tolist()]
    assert curve.low_bytes.min() == min(used)
    assert curve.high_bytes.max() == max(used) == place.peak_bytes
    for begin_ns, low, high in zip(
        curve.begin_ns.tolist(), curve.low_bytes.tolist(), curve.high_bytes.tolist(), strict=True
    ):  # a bin here is one ns wide
        before = [place.begin_bytes, *(events.allocated_bytes[events.at_ns < begin_ns].tolist())]
        inside = [before[-1], *events.allocated_bytes[events.at_ns == begin_ns].tolist()]
        assert (low, high) == (min(inside), max(inside))


def _snapshot(tmp_path: Path, entries: list[object], *, blocks: list[object]) -> MemoryUse:
    content = {"segments": [segment(blocks=blocks)], "device_traces": [entries]}
    return snapshot_memory(load_snapshot(written(tmp_path, content)))


def test_what_was_alive_at_a_snapshots_peak_is_named_by_place(tmp_path: Path) -> None:
    old = {"address": 7, "size": 10, "state": "active_allocated", "frames": frames("load")}
    kept = {"address": 300, "size": 5, "state": "active_allocated", "frames": frames("model")}
    use = _snapshot(
        tmp_path,
        [
            entry("alloc", 100, 40, "forward", at_us=1),
            entry("alloc", 200, 60, "loss", at_us=2),
            entry("free_completed", 500, 25, "earlier", at_us=3),  # allocated before the history
            entry("free_completed", 100, 40, "forward", at_us=4),
            entry("alloc", 100, 15, "backward", at_us=5),  # the address is used again
            entry("free_completed", 200, 60, "loss", at_us=6),
            entry("free_completed", 100, 15, "backward", at_us=7),
            entry("alloc", 300, 5, "model", at_us=8),
        ],
        blocks=[old, kept],
    )

    (place,) = use.places

    assert (place.begin_bytes, place.peak_bytes, place.end_bytes) == (35, 135, 15)
    assert place.peak.at_ns == 1_000
    assert {one.what.split(" ")[0]: one.num_bytes for one in place.alive_at_peak} == {
        "loss": 60,
        "forward": 40,
        "earlier": 25,
        "load": 10,
    }
    assert sum(one.num_bytes for one in place.alive_at_peak) == place.peak_bytes
    assert place.label == "device 0"


def test_segments_of_a_snapshot_are_what_is_reserved(tmp_path: Path) -> None:
    use = _snapshot(
        tmp_path,
        [
            entry("segment_alloc", 1000, 4096, "forward", at_us=1),
            entry("alloc", 1000, 512, "forward", at_us=2),
            entry("free_completed", 1000, 512, "forward", at_us=3),
            entry("segment_free", 1000, 4096, "forward", at_us=4),
        ],
        blocks=[],
    )

    (place,) = use.places

    assert place.peak_reserved_bytes == 2048 + 4096
    assert place.peak_bytes == 512


def test_snapshot_without_history_holds_what_its_blocks_hold(tmp_path: Path) -> None:
    held = {"address": 7, "size": 10, "state": "active_allocated", "frames": frames("load")}

    (place,) = _snapshot(tmp_path, [], blocks=[held]).places

    assert (place.peak_bytes, place.num_events) == (10, 0)
    assert [one.num_bytes for one in place.alive_at_peak] == [10]
    json.dumps(place.as_json())


@given(data=st.data())
def test_what_is_alive_at_the_peak_sums_to_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    live: dict[int, int] = {}
    old = {address: 10 + address for address in range(data.draw(st.integers(0, 3)))}
    live.update(old)
    entries: list[object] = []
    for _ in range(data.draw(st.integers(0, 15))):
        address = data.draw(st.integers(0, 5))
        if address in live:
            entries.append(entry("free_completed", address, live.pop(address), "free"))
        else:
            live[address] = data.draw(st.integers(1, 99))
            entries.append(entry("alloc", address, live[address], "alloc"))
    blocks: list[object] = [
        {"address": address, "size": size, "state": "active_allocated", "frames": []}
        for address, size in live.items()
    ]

    (place,) = _snapshot(tmp_path_factory.mktemp("snapshot"), entries, blocks=blocks).places

    assert sum(one.num_bytes for one in place.alive_at_peak) == place.peak_bytes
    assert place.begin_bytes == sum(old.values())


@pytest.mark.slow
def test_traces_memory_peaks_inside_a_step_and_returns(data_dir: Path) -> None:
    path = data_dir / "traces" / "h100-inference" / "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"

    use = memory(ft.load(path).recording)

    device, host = use.places
    assert (device.is_device, host.is_device) == (True, False)
    assert device.begin_bytes == device.end_bytes  # inference keeps nothing
    # weights of 0.46 G parameters in bf16, beside a kv cache and logits of 16 x 559 x 151,936
    assert 0.9e9 < device.begin_bytes < device.peak_bytes < device.peak_reserved_bytes
    named = [one for one in device.allocated_by if one.what]
    assert sum(one.num_bytes for one in named) > 0.9 * sum(
        one.num_bytes for one in device.allocated_by
    )

"""A file into which the traces of several ranks were merged is a trace for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foretrace as ft
from foretrace.base import TraceError
from foretrace.trace import load_traces
from foretrace.trace.merged import OF_NO_RANK, ranks_within
from tests.trace.kineto_json import Event, file_text, trace_from


def of_rank(rank: int, *, device: int, first_id: int) -> list[Event]:
    """One rank's step: two kernels that its process launches, one on a stream of its own."""
    pid, begin = 4000 + rank, 10 * rank

    def event(cat: str, name: str, ts: int, dur: int, **args: object) -> Event:
        on_device = cat == "kernel"
        args |= {"device": device, "stream": 7} if on_device else {}
        place: dict[str, Any] = {"pid": device if on_device else pid, "tid": 7 if on_device else 1}
        return {"ph": "X", "cat": cat, "name": name, "ts": begin + ts, "dur": dur, "args": args} | (
            place
        )

    return [
        event("user_annotation", "ProfilerStep#3", 0, 100),
        event("cpu_op", f"operator {rank}", 10, 30),
        event("cuda_runtime", "cudaLaunchKernel", 12, 2, correlation=first_id),
        event("kernel", f"kernel {rank}", 20, 40 + rank, correlation=first_id),
        event("kernel", f"unlaunched {rank}", 70, 5, correlation=first_id + 900),
        {"ph": "s", "cat": "fwdbwd", "name": "f", "id": first_id, "ts": begin + 10, "pid": pid,
         "tid": 1},
        {"ph": "f", "cat": "fwdbwd", "name": "f", "id": first_id, "ts": begin + 12, "pid": pid,
         "tid": 1},
        {"ph": "i", "name": "[memory]", "ts": begin + 11,
         "args": {"Bytes": 512, "Device Type": 1, "Device Id": device}},
        {"ph": "i", "name": "[memory]", "ts": begin + 11, "args": {"Bytes": 64, "Device Type": 0}},
    ]  # fmt: skip


MERGED = [*of_rank(0, device=5, first_id=20), *of_rank(1, device=2, first_id=50)]


def test_each_process_is_a_rank_in_the_order_of_devices() -> None:
    whole = trace_from([file_text(MERGED)])

    parts = ranks_within(whole)

    assert [part.meta.rank for part in parts] == [0, 1]
    for part, rank in zip(parts, (1, 0), strict=True):  # the second has the lower device
        names = {part.strings[at] for at in part.name.tolist()}
        assert names == {
            "ProfilerStep#3", "cudaLaunchKernel", f"operator {rank}", f"kernel {rank}",
            f"unlaunched {rank}",
        }  # fmt: skip
        assert len(part.flows.from_ns) == 1
        assert part.memory.change_bytes.tolist() == [512]
        assert len(part.lanes) == 2
        assert set(part.lanes.process.tolist()) == {4000 + rank, -1}


def test_every_record_is_one_rank_s_or_counted() -> None:
    whole = trace_from([file_text(MERGED)])

    parts = ranks_within(whole)

    assert sum(part.num_accounted for part in parts) == whole.num_accounted
    assert all(part.num_accounted == part.meta.num_events for part in parts)
    assert parts[0].meta.dropped[OF_NO_RANK] == 2  # the host's memory does not say whose it is


def test_a_merged_file_replays_as_the_ranks_files_do(tmp_path: Path) -> None:
    merged, apart = tmp_path / "merged.json", tmp_path / "apart"
    merged.write_bytes(file_text(MERGED))
    apart.mkdir()
    files = (of_rank(1, device=2, first_id=50), of_rank(0, device=5, first_id=20))
    for rank, events in enumerate(files):
        members: Event = {"distributedInfo": {"rank": rank, "world_size": 2}}
        (apart / f"rank{rank}.json").write_bytes(file_text(events, members=members))

    one, two = ft.load(merged, cache=False), ft.load(apart, cache=False)

    assert one.title == "merged.json"
    assert len(one.metas) == 2
    assert np.array_equal(one.replayed.end_ns, two.replayed.end_ns)


def test_ranks_without_devices_are_told_by_their_marks() -> None:
    on_host = [event for event in MERGED if event.get("cat") != "kernel"]

    parts = ranks_within(trace_from([file_text(on_host)]))

    assert [part.lanes.process.tolist() for part in parts] == [[4000], [4001]]


def test_equal_correlation_ids_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "merged.json"
    path.write_bytes(
        file_text([*of_rank(0, device=5, first_id=20), *of_rank(1, device=2, first_id=20)])
    )

    with pytest.raises(TraceError, match="under one correlation id"):
        load_traces(path)


def test_a_process_beside_the_one_that_launches_is_no_rank() -> None:
    beside = {"ph": "X", "cat": "cpu_op", "name": "loader", "ts": 1, "dur": 2, "pid": 9, "tid": 9}
    whole = trace_from([file_text([*of_rank(0, device=0, first_id=20), beside])])

    assert ranks_within(whole) == (whole,)


def test_a_merged_file_is_one_file_of_several_ranks(tmp_path: Path) -> None:
    path = tmp_path / "merged.json"
    path.write_bytes(file_text(MERGED))

    told = ft.inspect(path, cache=False)

    assert told.headline.startswith("1 file: 2 ranks of 2")
    assert [one.num_kept for one in told.files] == [8, 8]

"""The mutators do what they say to a parsed file."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.truth import FileStyle, Job, JobConfig, LongerSegment, make_job, mutate, text, write


@pytest.fixture(scope="module")
def job() -> Job:
    return make_job(JobConfig(tp=2, num_layers=1, num_steps=1, style=FileStyle(sync_events=True)))


@pytest.fixture(scope="module")
def trace(job: Job) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text(job, 1), parse_float=Decimal)
    return loaded


def find(trace: dict[str, Any], category: str, correlation: int) -> dict[str, Any]:
    return next(
        event
        for event in trace["traceEvents"]
        if event.get("cat") == category and event["args"].get("correlation") == correlation
    )


def waiting_member(job: Job) -> int:
    """Correlation of rank 1's collective kernel with the most room before it."""
    trace = json.loads(text(job, 1), parse_float=Decimal)
    members = [member for each in job.collectives for member in each.members if member.rank == 1]
    return max(
        (member.correlation for member in members),
        key=lambda correlation: mutate.room_before_ns(trace, correlation),
    )


def test_saving_and_reading_keeps_every_digit(job: Job, tmp_path: Path) -> None:
    path = write(job, tmp_path, ranks=(1,))[0]

    trace = mutate.read(path)
    copy = mutate.save(trace, tmp_path / "copy.json")

    assert mutate.read(copy) == trace
    assert isinstance(trace["traceEvents"][0]["ts"], Decimal)


def test_a_clock_shift_moves_every_timestamp_exactly(trace: dict[str, Any]) -> None:
    hours_ns = 36_000_000_000_000 + 7

    shifted = mutate.shift_clock(trace, hours_ns)

    assert len(shifted["traceEvents"]) == len(trace["traceEvents"])
    for before, after in zip(trace["traceEvents"], shifted["traceEvents"], strict=True):
        assert mutate.nanoseconds(after["ts"]) - mutate.nanoseconds(before["ts"]) == hours_ns
        assert after.get("dur") == before.get("dur")


def test_whole_microseconds_shift_by_whole_microseconds() -> None:
    whole = JobConfig(num_layers=1, num_steps=1, style=FileStyle(whole_microseconds=True))
    trace = json.loads(text(make_job(whole), 0), parse_float=Decimal)

    assert isinstance(mutate.shift_clock(trace, 5_000)["traceEvents"][0]["ts"], int)
    with pytest.raises(ValueError, match="not a multiple of 1000"):
        mutate.shift_clock(trace, 5)


def test_shuffling_keeps_the_events(trace: dict[str, Any]) -> None:
    shuffled = mutate.shuffle_events(trace, 5)["traceEvents"]

    def texts(events: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(event, default=str) for event in events)

    assert shuffled != trace["traceEvents"]
    assert texts(shuffled) == texts(trace["traceEvents"])


def test_a_collective_that_began_earlier_ends_as_before(job: Job, trace: dict[str, Any]) -> None:
    correlation = waiting_member(job)
    room = mutate.room_before_ns(trace, correlation)

    moved = mutate.start_collective_earlier(trace, correlation, room)

    before, after = (find(each, "kernel", correlation) for each in (trace, moved))
    assert room > 1_000
    assert after["ts"] == before["ts"] - Decimal(room) / 1000
    assert after["ts"] + after["dur"] == before["ts"] + before["dur"]
    changed = [
        old["cat"]
        for old, new in zip(trace["traceEvents"], moved["traceEvents"], strict=True)
        if old != new
    ]
    assert sorted(changed) == ["ac2g", "gpu_user_annotation", "kernel"]
    with pytest.raises(ValueError, match="cannot begin"):
        mutate.start_collective_earlier(trace, correlation, room + 1)


def test_a_dropped_collective_leaves_no_mark(job: Job, trace: dict[str, Any]) -> None:
    correlation = waiting_member(job)

    dropped = mutate.drop_collective(trace, correlation)

    gone = [event for event in trace["traceEvents"] if event not in dropped["traceEvents"]]
    kinds = sorted((event["cat"], event["name"]) for event in gone)
    assert [name for category, name in kinds if category == "cpu_op"] == [
        "c10d::allreduce_",
        "record_param_comms",
    ]
    assert [category for category, _ in kinds] == [
        "ac2g",
        "ac2g",
        "cpu_op",
        "cpu_op",
        "cuda_runtime",
        "gpu_user_annotation",
        "kernel",
        "user_annotation",
    ]


def test_stretching_an_idle_moment_is_what_a_longer_segment_does() -> None:
    job = make_job(JobConfig(num_layers=1, num_steps=2, clock_drift_ppm=0.0))
    sync = next(call for call in job.calls(0) if call.name == "cudaStreamSynchronize")
    after = next(call for call in job.calls(0) if call.correlation == sync.correlation + 1)
    trace = json.loads(text(job, 0), parse_float=Decimal)

    stretched = mutate.stretch_host_segment(trace, after.correlation, 5_000_000)

    truth = json.loads(
        text(job.after(LongerSegment(0, after.correlation, 5_000_000)), 0), parse_float=Decimal
    )
    kinds = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime")
    for mine, true in zip(stretched["traceEvents"], truth["traceEvents"], strict=True):
        if mine.get("cat") in kinds:
            assert mine == true


def test_truncation_keeps_a_prefix() -> None:
    assert mutate.truncate_bytes(b"abcdef", 2) == b"ab"
    with pytest.raises(ValueError, match="below the 6 bytes"):
        mutate.truncate_bytes(b"abcdef", 6)


def test_a_stopped_rank_keeps_what_it_began_and_nothing_later(trace: dict[str, Any]) -> None:
    timed = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    begins = sorted(mutate.nanoseconds(event["ts"]) for event in timed)
    host_ns, until_ns = begins[len(begins) // 2], begins[-1] + 9_000_000_000

    stopped = mutate.stopped(trace, host_ns=host_ns, device_ns=host_ns, until_ns=until_ns)

    kept = [event for event in stopped["traceEvents"] if event.get("ph") == "X"]
    assert 0 < len(kept) < len(timed)
    assert max(mutate.nanoseconds(event["ts"]) for event in kept) < host_ns
    ends = {mutate.nanoseconds(each["ts"]) + mutate.nanoseconds(each["dur"]) for each in kept}
    assert until_ns in ends  # what stood around the moment is open to the end
    correlations = {event["args"].get("correlation") for event in kept if "args" in event}
    arrows = {event["id"] for event in stopped["traceEvents"] if event.get("cat") == "ac2g"}
    assert arrows <= correlations


def test_a_hung_rank_stops_before_the_collective_and_the_others_inside_it(job: Job) -> None:
    ranks = range(job.num_ranks)
    traces = {rank: json.loads(text(job, rank), parse_float=Decimal) for rank in ranks}
    collectives = [{each.rank: each.correlation for each in one.members} for one in job.collectives]
    at = len(collectives) // 2

    hung = mutate.hung(traces, collectives, missing=1, at=at)

    def has(rank: int, category: str) -> bool:
        return any(
            event.get("cat") == category
            and event["args"].get("correlation") == collectives[at][rank]
            for event in hung[rank]["traceEvents"]
        )

    assert (has(0, "cuda_runtime"), has(0, "kernel")) == (True, False)
    assert (has(1, "cuda_runtime"), has(1, "kernel")) == (False, False)
    for earlier in collectives[:at]:
        find(hung[0], "kernel", earlier[0])
        find(hung[1], "kernel", earlier[1])

"""The files say what happened: every time in them is the true one by the rank's clock."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests import strategies
from tests.truth import (
    FileStyle,
    Job,
    JobConfig,
    TrueCall,
    TrueOperation,
    make_job,
    mutate,
    text,
    write,
)
from tests.truth.kineto import BASE_TIME_NS
from tests.truth.replicas import write_replicas

CONFIG = JobConfig(
    tp=2,
    dp=2,
    pp=2,
    num_layers=2,
    num_steps=2,
    num_microbatches=3,
    ring_exchange=True,
    queue_depth=64,
    contention=1.3,
    clock_offset_ns=7_200_000_000_000,
    style=FileStyle(sync_events=True),
)
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@pytest.fixture(scope="module")
def job() -> Job:
    return make_job(CONFIG)


def parsed(job: Job, rank: int) -> dict[str, Any]:
    return parse(text(job, rank))


def parse(content: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(content, parse_float=Decimal)
    return loaded


def spans_ns(trace: dict[str, Any], *categories: str) -> dict[tuple[str, int], tuple[int, int]]:
    """(name, correlation) -> begin and end as written, in ns."""
    return {
        (event["name"], event["args"]["correlation"]): (
            mutate.nanoseconds(event["ts"]),
            mutate.nanoseconds(event["ts"]) + mutate.nanoseconds(event["dur"]),
        )
        for event in trace["traceEvents"]
        if event.get("cat") in categories
    }


@given(strategies.job_configs())
@settings(max_examples=15, deadline=None)
def test_operations_and_calls_are_where_the_clock_says(config: JobConfig) -> None:
    job = make_job(config)
    whole = config.style.whole_microseconds

    for rank in range(job.num_ranks):
        clock = job.clocks[rank]
        written = spans_ns(parsed(job, rank), "cuda_runtime", *DEVICE)
        true: list[TrueCall | TrueOperation] = [*job.calls(rank), *job.operations(rank)]
        shared = Counter((each.name, each.correlation) for each in true)
        for each in true:
            if shared[each.name, each.correlation] > 1:
                continue  # kernels of one graph launch are told apart by time alone
            moments = clock.written_ns(each.start_ns), clock.written_ns(each.end_ns)
            if whole:
                begin, end = (BASE_TIME_NS + moment for moment in moments)
                moments = begin // 1000 * 1000, end // 1000 * 1000
            assert written[each.name, each.correlation] == moments


def test_steps_in_the_file_are_the_host_steps_by_the_clock(job: Job) -> None:
    for rank in range(job.num_ranks):
        marks = [
            event
            for event in parsed(job, rank)["traceEvents"]
            if event.get("name", "").startswith("ProfilerStep#")
        ]
        lengths = [mutate.nanoseconds(event["dur"]) for event in marks]
        for length, true in zip(lengths, job.host_step_ns[rank].tolist(), strict=True):
            assert abs(length - true) <= true * 11 // 1_000_000 + 1  # drift of 10 ppm
        ends = [mutate.nanoseconds(mark["ts"]) + mutate.nanoseconds(mark["dur"]) for mark in marks]
        assert ends[0] == mutate.nanoseconds(marks[1]["ts"])


def test_operators_nest_on_their_threads(job: Job) -> None:
    for rank in (0, 5):
        by_thread: dict[int, list[tuple[int, int]]] = {}
        for event in parsed(job, rank)["traceEvents"]:
            if event.get("cat") in ("cpu_op", "user_annotation", "cuda_runtime"):
                begin = mutate.nanoseconds(event["ts"])
                end = begin + mutate.nanoseconds(event["dur"])
                by_thread.setdefault(event["tid"], []).append((begin, -end))
        assert len(by_thread) == 2
        for spans in by_thread.values():
            open_ends: list[int] = []
            for begin, negative_end in sorted(spans):
                while open_ends and open_ends[-1] <= begin:
                    open_ends.pop()
                assert not open_ends or -negative_end <= open_ends[-1]
                open_ends.append(-negative_end)


def test_a_call_lies_inside_the_operator_that_its_external_id_names(job: Job) -> None:
    events = parsed(job, 3)["traceEvents"]
    operators = {
        event["args"]["External id"]: event for event in events if event.get("cat") == "cpu_op"
    }
    calls = [event for event in events if event.get("cat") == "cuda_runtime"]
    inside = [call for call in calls if call["args"]["External id"] in operators]

    assert len(inside) > len(calls) // 2
    for call in inside:
        around = operators[call["args"]["External id"]]
        assert around["ts"] <= call["ts"]
        assert around["ts"] + around["dur"] >= call["ts"] + call["dur"]
        assert around["tid"] == call["tid"]


def test_streams_run_one_operation_at_a_time(job: Job) -> None:
    for rank in range(job.num_ranks):
        by_stream: dict[int, list[tuple[int, int]]] = {}
        for each in job.operations(rank):
            by_stream.setdefault(each.stream, []).append((each.start_ns, each.end_ns))
        for spans in by_stream.values():
            assert spans == sorted(spans)
            assert all(a[1] <= b[0] for a, b in pairwise(spans))


def test_wait_and_transfer_make_up_a_collective_kernel(job: Job) -> None:
    for collective in job.collectives:
        assert min(member.wait_ns for member in collective.members) == 0
        for member in collective.members:
            written = spans_ns_of(job, member.rank)[member.correlation]
            assert member.wait_ns + member.transfer_ns == written[1] - written[0]


def spans_ns_of(job: Job, rank: int) -> dict[int, tuple[int, int]]:
    return {each.correlation: (each.start_ns, each.end_ns) for each in job.operations(rank)}


def test_a_wait_event_names_the_latest_record_of_its_event(job: Job) -> None:
    events = parsed(job, 4)["traceEvents"]
    records = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("name") == "cudaEventRecord"
    }
    waits = [event for event in events if event.get("name") == "Stream Wait Event"]
    calls = [event for event in events if event.get("name") == "cudaStreamWaitEvent"]

    assert len(waits) == len(calls) > 0
    for wait in waits:
        record = records[wait["args"]["wait_on_cuda_event_record_corr_id"]]
        assert record["ts"] < wait["ts"]
        assert wait["args"]["stream"] == wait["tid"]
    latest: dict[int, int] = {}  # event id -> correlation of its last record
    for call in job.structure.ranks[4].calls:
        if call.name == "cudaEventRecord":
            latest[call.event] = call.correlation
        elif call.name == "cudaStreamWaitEvent":
            assert latest[call.event] == call.record_correlation
    ids = {wait["args"]["wait_on_cuda_event_id"] for wait in waits}
    assert len(ids) < len(waits) // 2  # ids are used again, as by the framework


def test_without_sync_events_no_id_is_left(job: Job) -> None:
    plain = make_job(replace(CONFIG, style=FileStyle()))

    content = text(plain, 0)

    assert "cuda_sync" not in content
    assert "wait_on" not in content
    assert text(job, 0).count('"cuda_sync"') > 100


def test_collective_metadata_is_there_or_not() -> None:
    small = replace(CONFIG, num_steps=1, num_layers=1, ring_exchange=False)
    rich = parsed(make_job(small), 0)
    bare = parsed(make_job(replace(small, style=FileStyle(collective_arguments=False))), 0)

    def described(trace: dict[str, Any]) -> Counter[str]:
        return Counter(
            event["cat"]
            for event in trace["traceEvents"]
            if "Process Group Name" in event.get("args", {})
        )

    assert described(rich)["cpu_op"] == described(rich)["kernel"] > 0
    assert not described(bare)
    assert "pg_config" in rich["distributedInfo"]
    assert "pg_config" not in bare["distributedInfo"]


def test_shuffled_files_hold_the_same_events(job: Job) -> None:
    ordered, mixed = parse(text(job, 1)), parse(text(job, 1, shuffle_seed=3))

    def multiset(trace: dict[str, Any]) -> Counter[str]:
        return Counter(json.dumps(event, default=str) for event in trace["traceEvents"])

    assert multiset(ordered) == multiset(mixed)
    assert ordered["traceEvents"] != mixed["traceEvents"]


def test_written_files_are_read_back(job: Job, tmp_path: Path) -> None:
    compressed = write(job, tmp_path, ranks=(0, 3))
    plain = write(job, tmp_path, ranks=(3,), compress=False)

    assert [path.name for path in compressed] == ["rank0.json.gz", "rank3.json.gz"]
    assert gzip.decompress(compressed[1].read_bytes()) == plain[0].read_bytes()
    assert json.loads(plain[0].read_text())["distributedInfo"]["rank"] == 3


def test_events_look_like_those_of_a_real_file(job: Job, data_dir: Path) -> None:
    real = mutate.read(data_dir / "traces/a100-resnet-ddp2-rank0/nccl_data.json.gz")
    ours = parsed(job, 0)

    def keys(trace: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
        found: dict[tuple[str, str], set[str]] = {}
        for event in trace["traceEvents"]:
            place = (event["ph"], event.get("cat", ""))
            found.setdefault(place, set()).update(event, event.get("args", {}))
        return found

    real_keys, our_keys = keys(real), keys(ours)
    assert set(real_keys) <= set(our_keys)
    for place in [("X", "cpu_op"), ("X", "cuda_runtime"), ("s", "ac2g"), ("f", "fwdbwd")]:
        assert our_keys[place] >= real_keys[place] - {"Global rank start", "Global rank stride"}
    assert our_keys["X", "kernel"] >= real_keys["X", "kernel"] - {"warps per SM"}


def test_replicas_differ_in_rank_process_and_clock_only(tmp_path: Path) -> None:
    job = make_job(replace(CONFIG, num_steps=1, num_layers=1))

    paths = write_replicas(job, tmp_path, num_ranks=5, min_bytes=1_500_000)

    traces = [mutate.read(path) for path in paths]
    assert [trace["distributedInfo"]["rank"] for trace in traces] == list(range(5))
    assert {trace["distributedInfo"]["world_size"] for trace in traces} == {5}
    assert len({trace["baseTimeNanoseconds"] for trace in traces}) == 5
    assert all(len(gzip.decompress(path.read_bytes())) >= 1_500_000 for path in paths)
    first, last = traces[0]["traceEvents"], traces[4]["traceEvents"]
    strip = [{**event, "pid": 0, "tid": 0} for event in first]
    other = [{**event, "pid": 0, "tid": 0} for event in last]
    assert [event for event in strip if event.get("ph") == "X"] == [
        event for event in other if event.get("ph") == "X"
    ]
    steps = [event["name"] for event in first if event.get("name", "").startswith("Profiler")]
    assert len(steps) == len(set(steps)) > 1


def test_replicas_of_whole_microseconds_are_refused(tmp_path: Path) -> None:
    job = make_job(replace(CONFIG, style=FileStyle(whole_microseconds=True), num_steps=1))

    with pytest.raises(ValueError, match="baseTimeNanoseconds"):
        write_replicas(job, tmp_path, num_ranks=2)


def test_sync_events_look_like_those_of_real_files(job: Job, data_dir: Path) -> None:
    folder = data_dir / "traces/cuda-sync-events"
    real = [mutate.read(path) for path in sorted(folder.glob("*/*.json.gz"))]

    def shapes(traces: list[dict[str, Any]]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for trace in traces:
            for event in trace["traceEvents"]:
                if event.get("cat") == "cuda_sync":
                    found.setdefault(event["name"], set()).update(event, event["args"])
        return found

    assert shapes([parsed(job, 0)]) == shapes(real)

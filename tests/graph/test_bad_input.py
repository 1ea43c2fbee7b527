"""Files that are damaged, odd or do not belong together: a sentence or a legal graph."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.base import GraphError, ModelError, TraceError
from foretrace.graph import EdgeKind, NodeKind, Recording, build_recording, verify
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from tests.graph.recorded import (
    EXACT,
    Event,
    call,
    edges_of,
    exact_job,
    file_text,
    kernel,
    launch,
    nodes_of,
    recording_of_files,
    replayed_step_ns,
    step,
)
from tests.truth import JobConfig, make_job, mutate, text, write
from tests.truth.small import Depend, Launch, Reduce, SwitchThread, Synchronize, Think

SMALL = (
    *(Launch(300_000), Depend(7, 9), Launch(90_000, 9), Reduce(1_000)),
    *(SwitchThread(), Launch(50_000), Depend(9, 7), SwitchThread()),
    *(Launch(70_000), Synchronize(), Think(20_000), Reduce(2_000), Launch(10_000)),
)


def small_texts(num_ranks: int = 2, *, seed: int = 0) -> list[str]:
    """The files of a small job."""
    job = exact_job(*([SMALL] * num_ranks), config=replace(EXACT, seed=seed, noise=True))
    return ["".join(text(job, rank)) for rank in range(num_ranks)]


@cache
def small_traces() -> tuple[mutate.Trace, mutate.Trace]:
    one, other = (json.loads(each) for each in small_texts())
    return one, other


def build_from(folder: str | Path, contents: list[bytes], name: str = "rank{}.json") -> Recording:
    paths = [Path(folder) / name.format(rank) for rank in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return build_recording(load_traces(paths))


def check(recording: Recording) -> None:
    """The graph is legal and can be simulated."""
    verify(recording.graph)
    replayed = simulate(recording.graph)
    assert (replayed.end_ns >= replayed.start_ns).all()


@pytest.mark.parametrize("share", [0.35, 0.6, 0.9, 0.999])
def test_a_file_cut_off_in_the_middle_is_replayed_as_far_as_it_goes(
    tmp_path: Path, share: float
) -> None:
    contents = [each.encode() for each in small_texts()]
    contents[1] = mutate.truncate_bytes(contents[1], int(len(contents[1]) * share))

    recording = build_from(tmp_path, contents)

    check(recording)
    assert recording.graph.ranks == (0, 1)


@pytest.mark.parametrize("content", [b"", b"step 17 took 3 seconds\n", b"{}", b"[]", b'{"a": 1}'])
def test_files_that_are_no_trace_are_refused_by_name(tmp_path: Path, content: bytes) -> None:
    good = small_texts()[0].encode()

    with pytest.raises(ModelError, match=r"rank1\.json"):
        build_from(tmp_path, [good, content])


def test_a_file_without_anything_to_replay_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"nothing to replay in .*rank0\.json"):
        build_from(tmp_path, [file_text([step(1, 0, 100)]).encode()])


def test_records_without_a_category_are_counted_where_nothing_is_left(tmp_path: Path) -> None:
    event = {"ph": "X", "name": "kernel", "pid": 0, "tid": 0, "ts": 1, "dur": 1}

    with pytest.raises(GraphError, match=r"of 2 records \(not read, no category: 2\) none is"):
        build_from(tmp_path, [file_text([event, event]).encode()])


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    content = small_texts()[0].encode()

    with pytest.raises(TraceError, match="rank 0"):
        build_from(tmp_path, [content, content])


def test_ranks_of_different_runs_are_refused_or_named(tmp_path: Path) -> None:
    two = small_texts(2)
    three = small_texts(3)

    with pytest.raises(ModelError):
        build_from(tmp_path, [two[0].encode(), three[1].encode()])


def test_ranks_of_runs_that_look_alike_still_replay(tmp_path: Path) -> None:
    # The same program, recorded in another run hours later: nothing in the files tells.
    one, other = small_texts(seed=1)[0], small_texts(seed=2)[1]

    check(build_from(tmp_path, [one.encode(), other.encode()]))


def test_clocks_hours_apart_are_aligned(tmp_path: Path) -> None:
    one, other = small_traces()
    shifted = mutate.shift_clock(mutate.read(as_file(tmp_path, other)), 7 * 3_600_000_000_000)
    texts = [json.dumps(one), mutate.dumped(shifted)]

    aligned = recording_of_files(texts)
    straight = recording_of_files([json.dumps(one), json.dumps(other)])

    assert replayed_step_ns(aligned) == replayed_step_ns(straight)
    assert aligned.clocks[1].offset_ns - straight.clocks[1].offset_ns == 7 * 3_600_000_000_000


def as_file(folder: Path, trace: mutate.Trace) -> Path:
    path = folder / "one.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    return path


def test_a_missing_collective_is_named_by_rank_group_and_position(tmp_path: Path) -> None:
    job = make_job(JobConfig(tp=2, num_layers=1, num_steps=1, num_microbatches=1))
    paths = write(job, tmp_path, compress=False)
    lost = [each for each in job.collectives if each.link == "tp"][2]
    correlation = next(each.correlation for each in lost.members if each.rank == 1)
    mutate.save(mutate.drop_collective(mutate.read(paths[1]), correlation), paths[1])

    recording = build_recording(load_traces(paths))

    check(recording)
    (finding,) = [each for each in recording.findings if each.topic == "collectives"]
    assert "rank 1" in finding.text
    assert f"position {lost.position}" in finding.text
    assert repr(lost.group) in finding.text
    of_group = [each for each in recording.graph.collectives if each.group == lost.group]
    assert [each.position for each in of_group if each.recorded_ranks == (0,)] == [lost.position]


def test_a_rank_that_stopped_early_is_named(tmp_path: Path) -> None:
    job = make_job(JobConfig(tp=2, num_layers=1, num_steps=1, num_microbatches=1))
    paths = write(job, tmp_path, compress=False)
    listed = [each for each in job.collectives if each.link == "tp"]
    trace = mutate.read(paths[1])
    for each in listed[-3:]:
        correlation = next(member.correlation for member in each.members if member.rank == 1)
        trace = mutate.drop_collective(trace, correlation)
    mutate.save(trace, paths[1])

    recording = build_recording(load_traces(paths))

    check(recording)
    first = min(each.position for each in listed[-3:])
    assert any(
        "rank 1" in finding.text and f"position {first}" in finding.text
        for finding in recording.findings
    )


def test_repeated_correlation_ids_go_to_the_launch_before_them() -> None:
    events = [
        *(step(1, 0, 1_000), launch(10, 5, correlation=7), launch(500, 5, correlation=7)),
        kernel("one", 20, 100, correlation=7),
        kernel("other", 520, 100, correlation=7),
    ]

    recording = recording_of_files([file_text(events)])

    graph = recording.graph
    owners = [
        (int(recording.measured.end_ns[source]), graph.names[graph.name[target]])
        for source, target in edges_of(graph, EdgeKind.LAUNCH)
    ]
    assert sorted(owners) == [(15_000, "one"), (505_000, "other")]


@pytest.mark.parametrize(
    ("start_us", "told"),
    [(300, "launched before the recording began"), (800, "have no recorded launch")],
)
def test_operations_without_a_launch_start_when_they_did(start_us: int, told: str) -> None:
    events = [
        *(step(1, 0, 1_100), launch(10, 5, correlation=7), kernel("known", 700, 50, correlation=7)),
        kernel("orphan", start_us, 200, correlation=99),
    ]

    recording = recording_of_files([file_text(events)])

    replayed = simulate(recording.graph)
    (orphan,) = nodes_of(recording.graph, NodeKind.KERNEL, name="orphan")
    assert replayed.start_ns[orphan] == recording.measured.start_ns[orphan] == 1_000 * start_us
    assert any(told in finding.text for finding in recording.findings)


def test_device_events_alone_keep_their_order_and_times() -> None:
    events = [
        kernel(f"k{index}", 100 + 60 * index, 50, correlation=index + 1) for index in range(5)
    ]

    recording = recording_of_files([file_text(events)])

    replayed = simulate(recording.graph)
    nodes = nodes_of(recording.graph, NodeKind.KERNEL)
    assert (replayed.start_ns[nodes] == recording.measured.start_ns[nodes]).all()


def test_an_unlaunched_operation_that_follows_its_stream_at_once_moves_with_it() -> None:
    events = [
        *(step(1, 0, 1_000), launch(10, 5, correlation=7), kernel("known", 700, 50, correlation=7)),
        *(kernel("first", 100, 200, correlation=98), kernel("next", 302, 90, correlation=99)),
    ]

    graph = recording_of_files([file_text(events)]).graph

    (first,) = nodes_of(graph, NodeKind.KERNEL, name="first")
    (following,) = nodes_of(graph, NodeKind.KERNEL, name="next")
    assert len(nodes_of(graph, NodeKind.GHOST)) == 1
    longer_ns = graph.measured_ns.copy()
    longer_ns[first] += 70_000
    before, after = (
        simulate(graph).start_ns[following],
        simulate(graph, longer_ns).start_ns[following],
    )
    assert after - before == 70_000


def test_host_events_alone_become_one_chain() -> None:
    events: list[Event] = [step(1, 0, 1_000)]
    events += [
        {**call("aten::mm", 100 * index, 60), "cat": "cpu_op", "args": {}} for index in range(10)
    ]

    recording = recording_of_files([file_text(events)])

    assert replayed_step_ns(recording) == [1_000_000]
    assert len(nodes_of(recording.graph, NodeKind.OPERATOR)) == 10


def test_negative_durations_are_dropped_or_refused() -> None:
    events = [
        *(step(1, 0, 1_000), launch(10, 5, correlation=7), kernel("good", 20, 100, correlation=7)),
        *(launch(30, -5, correlation=8), kernel("bad", 200, -100, correlation=8)),
    ]

    check(recording_of_files([file_text(events)]))


def test_operations_that_overlap_on_one_stream_do_not_wait_for_each_other() -> None:
    # Two kernels of one launch side by side, as in a CUDA graph, then one after both.
    events = [
        *(step(1, 0, 1_000), launch(10, 5, correlation=7), launch(20, 5, correlation=8)),
        *(kernel("a", 20, 200, correlation=7), kernel("b", 60, 300, correlation=7)),
        kernel("c", 361, 50, correlation=8),
    ]

    recording = recording_of_files([file_text(events)])

    graph = recording.graph
    name = [graph.names[index] for index in graph.name]
    pairs = {(name[one], name[other]) for one, other in edges_of(graph, EdgeKind.STREAM)}
    assert pairs == {("a", "c"), ("b", "c")}


@pytest.mark.slow
def test_a_hundred_thousand_lanes_take_seconds() -> None:
    number = 100_000
    events: list[Event] = [step(1, 0, 10 * number)]
    events += [launch(10 * index, 2, correlation=index + 1) for index in range(number)]
    events += [
        kernel("k", 10 * index + 5, 20, correlation=index + 1, stream=index + 7)
        for index in range(number)
    ]
    content = file_text(events)

    began = time.process_time()
    recording = recording_of_files([content])
    took_s = time.process_time() - began

    assert len(nodes_of(recording.graph, NodeKind.KERNEL)) == number
    assert took_s < 20


@pytest.mark.slow
def test_a_hundred_thousand_host_threads_take_seconds() -> None:
    number = 100_000
    events: list[Event] = [step(1, 0, 10 * number)]
    events += [
        launch(10 * index, 2, correlation=index + 1, thread=1_000 + index)
        for index in range(number)
    ]
    events += [kernel("k", 10 * index + 5, 4, correlation=index + 1) for index in range(number)]
    content = file_text(events)

    began = time.process_time()
    recording = recording_of_files([content])
    took_s = time.process_time() - began

    assert len(nodes_of(recording.graph, NodeKind.LAUNCH)) == number
    assert took_s < 20


# -- anything at all ---------------------------------------------------------------------------

Damage = Callable[[mutate.Trace], mutate.Trace]
_places = st.integers(0, 10_000)
_fields = st.sampled_from(["ts", "dur", "tid", "pid", "name", "cat", "args", "ph"])
_values: st.SearchStrategy[object] = st.one_of(
    st.integers(-(10**6), 10**6),
    st.sampled_from(["", "x", "kernel", "cudaStreamWaitEvent", "ncclDevKernel_AllReduce", None]),
    st.just({}),
)
_arguments = st.sampled_from(
    ["correlation", "stream", "device", "Seq", "Group size", "Process Group Ranks", "In msg nelems"]
)


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[str, int, str, object]]:
    """Some changes to some events."""
    kinds = st.sampled_from(["drop", "repeat", "field", "argument", "negate"])
    changes = []
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(kinds)
        key = draw(_arguments if kind == "argument" else _fields)
        changes.append((kind, draw(_places), key, draw(_values)))
    return changes


def damaged(trace: mutate.Trace, changes: list[tuple[str, int, str, object]]) -> mutate.Trace:
    events = [dict(event) for event in trace["traceEvents"]]
    for kind, place, key, value in changes:
        if not events:
            break
        at = place % len(events)
        if kind == "drop":
            del events[at]
        elif kind == "repeat":
            events.append(dict(events[at]))
        elif kind == "argument":
            arguments = events[at].get("args")
            events[at]["args"] = {**(arguments if isinstance(arguments, dict) else {}), key: value}
        elif kind == "negate":
            took = events[at].get("dur")
            events[at]["dur"] = -abs(took) if isinstance(took, int | float) else -1
        else:
            events[at][key] = value
    return {**trace, "traceEvents": events}


@given(damages(), damages())
@settings(max_examples=60)
def test_damaged_files_give_a_legal_graph_or_a_sentence(
    first: list[tuple[str, int, str, object]], second: list[tuple[str, int, str, object]]
) -> None:
    one, other = small_traces()
    contents = [
        json.dumps(damaged(trace, changes)).encode()
        for trace, changes in ((one, first), (other, second))
    ]

    with TemporaryDirectory() as folder:
        try:
            recording = build_from(folder, contents)
        except ModelError as error:
            assert str(error).strip()  # noqa: PT017  a sentence is one of the two answers
            return
    check(recording)


@given(st.data())
@settings(max_examples=25)
def test_files_cut_anywhere_give_a_legal_graph_or_a_sentence(data: st.DataObject) -> None:
    content = json.dumps(small_traces()[0]).encode()
    keep = data.draw(st.integers(0, len(content) - 1))

    with TemporaryDirectory() as folder:
        try:
            recording = build_from(folder, [mutate.truncate_bytes(content, keep)])
        except ModelError:
            return
    check(recording)


def test_waits_of_a_damaged_clock_are_not_negative() -> None:
    one, other = small_traces()
    stretched = [
        {**event, "ts": float(event["ts"]) * 1.000001} if "ts" in event else event
        for event in other["traceEvents"]
    ]

    faster = {**other, "traceEvents": stretched}
    recording = recording_of_files([json.dumps(one), json.dumps(faster)])

    assert np.all(recording.graph.measured_ns >= 0)

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analyze import IdleCause, StallKind, Stalls, idle, stalls
from foretrace.analyze.usual import middle_of
from foretrace.graph import NodeKind, Timeline, build_recording
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from tests.graphs import GraphBuilder

STEPS = tuple(f"ProfilerStep#{number}" for number in range(6))
USUAL_NS = 20_000
CALLS = 8  # of one step and rank


def timeline(
    longer: Mapping[tuple[int, int, int], int],
    *,
    ranks: int = 1,
    names: Mapping[tuple[int, int, int], str] = {},
    slowed: Collection[tuple[int, int]] = (),
) -> Timeline:
    """Ranks that call the same in each step; some calls (rank, step, number) take longer.

    On a rank in a step that is slowed, all that the host does takes four times as long.
    """
    build = GraphBuilder()
    for rank in range(ranks):
        last = build.add(NodeKind.RANK_START, rank=rank)
        for number, step in enumerate(STEPS):
            last = build.add(NodeKind.STEP_BEGIN, rank=rank, step=step, after=[last])
            for call in range(CALLS):
                place = rank, number, call
                factor = 4 if (rank, number) in slowed else 1
                last = build.add(
                    NodeKind.CALL,
                    rank=rank,
                    name=names.get(place, f"call {call}"),
                    takes_ns=factor * USUAL_NS + longer.get(place, 0),
                    step=step,
                    after=[last],
                )
                last = build.add(
                    NodeKind.KERNEL if call == CALLS - 1 else NodeKind.HOST_SEGMENT,
                    rank=rank,
                    lane="stream 7" if call == CALLS - 1 else "thread 1",
                    takes_ns=factor * 5_000,
                    step=step,
                    after=[last],
                )
            last = build.add(NodeKind.STEP_END, rank=rank, step=step, after=[last])
    return simulate(build.graph())


def test_a_call_that_took_longer_once_is_a_stall_with_its_usual_time() -> None:
    found = stalls(timeline({(1, 3, 4): 7_000_000}, ranks=2))

    (row,) = found.rows
    assert (row.rank, row.step_name, row.call) == (1, STEPS[3], "call 4")
    assert (row.took_ns, row.usual_ns) == (USUAL_NS + 7_000_000, USUAL_NS)
    assert row.at_ns == 4 * (USUAL_NS + 5_000)  # after its rank's mark of the step
    assert row.kind is StallKind.UNTOLD
    assert "1 call on 1 rank stalled for 7.00 ms" in found.headline


def test_a_call_that_is_long_in_each_step_is_slow_and_no_stall() -> None:
    longer = {(1, step, 4): 7_000_000 for step in range(len(STEPS))}

    assert stalls(timeline(longer, ranks=4)).is_empty


def test_less_than_a_millisecond_more_is_no_stall() -> None:
    assert stalls(timeline({(0, 3, 4): 900_000})).is_empty


def test_calls_that_always_differ_much_have_no_stalls() -> None:
    sizes = {(0, step, 4): 300_000 * 3**step for step in range(len(STEPS))}

    assert stalls(timeline(sizes)).is_empty


def test_what_a_name_tells_is_told_however_long_it_usually_takes() -> None:
    names = {
        (0, 1, 2): "Python GC, generation 2",
        (0, 2, 2): "cudaMalloc",
        (0, 3, 2): "cuMemCreate",
    }
    found = stalls(timeline(dict.fromkeys(names, 400_000), names=names))

    assert {row.call: row.kind for row in found.rows} == {
        "Python GC, generation 2": StallKind.GARBAGE_COLLECTION,
        "cudaMalloc": StallKind.ALLOCATOR,
        "cuMemCreate": StallKind.ALLOCATOR,
    }
    assert all((row.took_ns, row.usual_ns) == (USUAL_NS + 400_000, 0) for row in found.rows)


def test_a_thread_whose_calls_all_take_longer_for_a_while_is_slowed() -> None:
    found = stalls(timeline({}, ranks=8, slowed={(1, 1), (1, 2), (1, 3), (1, 4)}))

    assert {row.kind for row in found.rows} == {StallKind.SLOWED}
    assert {row.rank for row in found.rows} == {1}
    assert found.over_ns == 4 * 3 * (CALLS * USUAL_NS + (CALLS - 1) * 5_000)


def test_sums_by_kind_and_rank_are_those_of_the_rows() -> None:
    found = stalls(timeline({(0, 1, 1): 3_000_000, (2, 4, 5): 9_000_000}, ranks=3))

    for sums in (found.by_kind(), found.by_rank()):
        assert sum(one.over_ns for one in sums) == found.over_ns == 12_000_000
        assert sum(one.num_stalls for one in sums) == len(found.rows)
    assert [one.label for one in found.by_rank()] == [2, 0]


def test_idle_time_behind_a_stall_is_the_stalls_and_not_the_operators() -> None:
    found = idle(timeline({(0, 3, 4): 7_000_000}))

    by_cause = found.by_cause()
    assert by_cause[IdleCause.STALL] == 7_000_000 + USUAL_NS
    assert found.by_operator()[StallKind.UNTOLD.words] == by_cause[IdleCause.STALL]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 1_000_000)), min_size=1, max_size=60))
def test_the_middle_of_a_group_is_its_lower_median(rows: list[tuple[int, int]]) -> None:
    group, took_ns = (np.array(column, np.int64) for column in zip(*rows, strict=True))

    found = middle_of(group, took_ns)

    for at, (own, _) in enumerate(rows):
        values = sorted(value for one, value in rows if one == own)
        usual_ns = values[(len(values) - 1) // 2]
        apart = sorted(abs(float(np.log(value / usual_ns))) for value in values)
        assert (found.count[at], found.usual_ns[at]) == (len(values), usual_ns)
        assert found.spread[at] == apart[(len(values) - 1) // 2]


@pytest.mark.slow
def test_a_stall_is_found_again_in_the_file_by_hand(data_dir: Path) -> None:
    folder = data_dir / "traces" / "megatron-tp8"
    recording = build_recording(load_traces(sorted(folder.glob("kineto_rank*.json.gz"))))

    found = stalls(recording.measured)

    assert isinstance(found, Stalls)
    longest = max((row for row in found.rows if row.rank == 0), key=lambda row: row.took_ns)
    events = _events(folder / "kineto_rank0.json.gz")
    mark_us = next(e["ts"] for e in events if e["name"] == "ProfilerStep#3")
    begin_us = mark_us + longest.at_ns // 1_000
    calls = sorted(
        (e["ts"], e["ts"] + e["dur"])
        for e in events
        if e.get("cat") == "cuda_runtime" and e["tid"] == longest.thread
    )
    end_us = begin_us + longest.took_ns // 1_000
    inside_us = [end - begin for begin, end in calls if begin_us <= begin and end <= end_us]
    assert sum(inside_us) < 0.01 * (end_us - begin_us)  # it stood still
    assert end_us in {begin for begin, _ in calls}
    assert {row.rank for row in found.rows} == set(range(8))
    first = found.by_kind()[0]
    assert first.label == StallKind.UNTOLD.words
    assert first.over_ns > 0.9 * found.over_ns


def _events(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [one for one in events if one.get("ph") == "X"]

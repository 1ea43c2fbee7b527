"""The interpreter's lock: closed form, the engine in which threads share one core, refusals."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analyze.interpreter import interpreter_lock, lock_throughput
from foretrace.base import NS_PER_S, GraphError
from foretrace.graph import NodeKind
from foretrace.simulate import Cores, simulate, simulate_shared
from tests.graphs import GraphBuilder

times = st.integers(0, 10**7)


@pytest.mark.parametrize(("threads", "locked", "beside"), [(2, 1.0, 1.0), (4, 1.0, 5.0)])
def test_threads_of_varying_times_share_the_lock_as_the_closed_form_says(
    threads: int, locked: float, beside: float
) -> None:
    generator, cycles = np.random.default_rng(7), 8_000
    build = GraphBuilder()
    for thread in range(threads):
        last: list[int] = []
        for _ in range(cycles):
            under, free = (generator.exponential((locked, beside)) * 1e6).astype(int).tolist()
            last = [
                build.add(NodeKind.HOST_SEGMENT, rank=thread, takes_ns=under, after=last),
            ]
            last = [
                build.add(NodeKind.KERNEL, rank=thread, lane="stream 7", takes_ns=free, after=last)
            ]
    timeline = simulate_shared(build.graph(), None, Cores.of(1))

    ends = [timeline.end_ns[timeline.graph.rank == thread].max() for thread in range(threads)]
    seen = threads * cycles * NS_PER_S / float(np.mean(ends))
    [row] = lock_throughput(int(locked * 1e6), 0, int(beside * 1e6), workers=[threads]).rows
    assert row.threads_low == pytest.approx(seen, rel=0.01)


@pytest.mark.parametrize(
    ("processes", "cores", "busy", "waiting"), [(4, 2, 1.0, 1.0), (6, 4, 2.0, 1.0)]
)
def test_processes_of_varying_times_share_cores_as_the_closed_form_says(
    processes: int, cores: int, busy: float, waiting: float
) -> None:
    generator, cycles = np.random.default_rng(11), 4_000
    build = GraphBuilder()
    for process in range(processes):
        last: list[int] = []
        for _ in range(cycles):
            works, waits = (generator.exponential((busy, waiting)) * 1e6).astype(int).tolist()
            last = [
                build.add(NodeKind.HOST_SEGMENT, rank=process, takes_ns=works, after=last),
            ]
            last = [
                build.add(
                    NodeKind.KERNEL, rank=process, lane="stream 7", takes_ns=waits, after=last
                )
            ]
    timeline = simulate_shared(build.graph(), None, Cores.of(cores))

    ends = [timeline.end_ns[timeline.graph.rank == one].max() for one in range(processes)]
    seen = processes * cycles * NS_PER_S / float(np.mean(ends))
    [row] = lock_throughput(
        int(busy * 1e6), 0, int(waiting * 1e6), num_cores=cores, workers=[processes]
    ).rows
    assert row.processes_low == pytest.approx(seen, rel=0.02)
    assert row.processes > 1.04 * seen


@given(times, times, times, st.integers(1, 64))
def test_more_workers_do_no_less_and_processes_no_less_than_threads(
    locked: int, native: int, waiting: int, cores: int
) -> None:
    if not locked + native + waiting:
        return
    found = lock_throughput(locked, native, waiting, num_cores=cores, workers=range(1, 20)).rows

    for row in found:
        assert 0 < row.threads_low <= row.threads_high <= row.processes * (1 + 1e-12)
        assert row.threads_low <= row.processes_low <= row.processes
        if row.num_workers <= cores:
            assert row.processes_low == pytest.approx(row.processes, rel=1e-9)
        assert row.free_threaded <= row.processes
        assert row.threads_high * locked <= NS_PER_S * (1 + 1e-12)
    for fewer, more in pairwise(found):
        assert more.threads_low >= fewer.threads_low * (1 - 1e-12)
        assert more.processes >= fewer.processes
        assert more.processes_low >= fewer.processes_low * (1 - 1e-12)
    alone = NS_PER_S / (locked + native + waiting)
    assert found[0].threads_low == pytest.approx(alone, rel=1e-12)


@given(times, times, st.integers(0, 10**6), st.integers(1, 16))
def test_handing_over_costs_threads_that_meet_and_nobody_else(
    locked: int, waiting: int, handing: int, workers: int
) -> None:
    if not locked + waiting:
        return
    (plain,) = lock_throughput(locked, 0, waiting, workers=[workers]).rows
    (dear,) = lock_throughput(locked, 0, waiting, workers=[workers], handing_over_ns=handing).rows

    assert dear.threads_low <= plain.threads_low * (1 + 1e-12)
    assert (dear.threads_high, dear.processes) == (plain.threads_high, plain.processes)
    if workers == 1:
        assert dear.threads_low == plain.threads_low
    # All at the lock, each time handed over: no request takes less than work and what that takes.
    assert dear.threads_low >= 1 / (locked + handing + waiting) * NS_PER_S * (1 - 1e-12)


def test_a_step_s_time_between_native_calls_is_under_the_lock() -> None:
    build = GraphBuilder()
    last: list[int] = []
    for _ in range(3):
        last = [build.add(NodeKind.HOST_SEGMENT, takes_ns=30, after=last)]
        last = [build.add(NodeKind.LAUNCH, takes_ns=10, after=last)]
    build.add(NodeKind.SYNC, takes_ns=80, after=last)
    other = build.add(NodeKind.HOST_SEGMENT, lane="thread 2", takes_ns=5)
    build.add(NodeKind.OPERATOR, lane="thread 2", takes_ns=500, after=[other])

    found = interpreter_lock(simulate(build.graph()), num_cores=2)

    assert (found.locked_ns, found.native_ns, found.waiting_ns) == (90, 30, 80)
    assert found.locked_share == pytest.approx(0.45)
    assert "45.0 %" in found.headline
    assert "2.2 threads" in found.headline
    assert [row.num_workers for row in found.rows] == [1, 2, 4, 8, 16]
    assert found.as_json()["rows"][0]["processes"] == pytest.approx(NS_PER_S / 200)


def test_what_cannot_be_told_is_a_sentence() -> None:
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=5)

    with pytest.raises(GraphError, match="has no host thread with time between native calls"):
        interpreter_lock(simulate(build.graph()))
    with pytest.raises(GraphError, match="no requests of 0 ns under the lock"):
        lock_throughput(0, 0)

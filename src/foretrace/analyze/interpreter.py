"""`InterpreterLock`: how much of a host's step Python's one lock is held, and what that allows.

A thread of Python holds the interpreter's lock between native calls, and native calls let it go.
What it does of both is one request; several threads, interpreters or processes do requests at
once. Native time that waits for a device or a disk needs no core, all else needs one.

Threads stand in line for the lock. Where all times are equal nothing is lost but what the lock and
the cores allow; where they vary, threads meet at the lock by chance, and the closed network of one
lock and of what happens beside it has a throughput that depends on the means alone (mean value
analysis). Processes meet at the cores alike: more of them than there are cores share those while
others' wait, and a core is without work at times. Real threads and processes lie between.

Source:
    Reiser and Lavenberg, Mean-Value Analysis of Closed Multichain Queuing Networks, JACM 1980, and
    Baskett et al., JACM 1975, for why means are enough where a lock, or cores, are shared fairly.
    PEP 703 and PEP 779: a build without the lock runs a thread 5 to 10 % slower (CPython 3.14).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.analyze.calls import in_step, step_of
from foretrace.answer import Answer, Column, Plain, Table, Told, Unit, percent_text
from foretrace.base import NS_PER_S, Bools, GraphError
from foretrace.graph import ExecutionGraph, NodeKind, Timeline

FREE_THREADED = 1.1  # times as long, at most
_ON_A_CORE = (NodeKind.OPERATOR, NodeKind.CALL, NodeKind.LAUNCH)
_WAITING = (NodeKind.SYNC, NodeKind.THREAD_WAIT)


@dataclass(frozen=True)
class LockRow(Plain):
    """Requests in a second with so many workers."""

    num_workers: int
    threads_low: float  # of one interpreter, where times vary
    threads_high: float  # where they are all equal
    processes_low: float  # or interpreters of one process, each with its lock; where times vary
    processes: float  # where they are all equal
    free_threaded: float  # threads of a build without the lock


@dataclass(frozen=True, repr=False)
class InterpreterLock(Answer):
    """Time under the lock and beside it, and throughput by workers."""

    locked_ns: int  # of a request
    native_ns: int  # on a core, without the lock
    waiting_ns: int  # without a core
    num_cores: int
    rows: tuple[LockRow, ...]

    @property
    def locked_share(self) -> float:
        """Of a request that is alone."""
        return self.locked_ns / max(1, self.locked_ns + self.native_ns + self.waiting_ns)

    @property
    def headline(self) -> str:
        """Share, and where threads stop helping."""
        share = percent_text(100 * self.locked_share)
        if not self.locked_ns:
            return "nothing holds the interpreter's lock: threads do as well as processes"
        return (
            f"the interpreter's lock is held {share} of a step: more than "
            f"{1 / self.locked_share:.1f} threads do no more"
        )

    def parts(self) -> tuple[Told, ...]:
        """A row for each number of workers."""
        return (
            Table.of(
                "rows",
                self.rows,
                Column("num_workers", "workers"),
                Column("threads_low", "threads/s, from", Unit.NUMBER),
                Column("threads_high", "to", Unit.NUMBER),
                Column("processes_low", "processes/s, from", Unit.NUMBER),
                Column("processes", "to", Unit.NUMBER),
                Column("free_threaded", "free-threaded/s", Unit.NUMBER),
            ),
        )


def interpreter_lock(
    timeline: Timeline,
    *,
    step: str | int | None = None,
    rank: int | None = None,
    num_cores: int = 8,
    workers: Sequence[int] = (1, 2, 4, 8, 16),
) -> InterpreterLock:
    """How much of a step a rank's Python holds its lock, and what workers make of that.

    The thread that holds it is the one with the most time between native calls. Recordings of GPUs
    have no operators on the host: that time counts their work there too and is an upper bound.

    Args:
        timeline: measured or simulated; a step of it is one request.
        step: by name or number; the typical one, if left out.
        rank: which; the first, if left out.
        num_cores: of the host.
        workers: numbers of threads, or processes, to tell of.

    Raises:
        GraphError: if there is no such step or rank, or no host in it.
    """
    graph = timeline.graph
    number = graph.ranks[0] if rank is None else rank
    rows = in_step(graph, step_of(timeline, step)) & (graph.rank == number)
    lane = _python_lane(graph, timeline, rows)
    if lane is None:
        raise GraphError(
            f"rank {number} has no host thread with time between native calls in this step: take a "
            "recording with the host's calls (ProfilerActivity.CPU)"
        )
    rows &= graph.lane == lane

    def spent(kinds: Sequence[NodeKind]) -> int:
        return int(timeline.duration_ns[rows & np.isin(graph.kind, kinds)].sum())

    locked, native = spent((NodeKind.HOST_SEGMENT,)), spent(_ON_A_CORE)
    return lock_throughput(locked, native, spent(_WAITING), num_cores=num_cores, workers=workers)


def _python_lane(graph: ExecutionGraph, timeline: Timeline, rows: Bools) -> int | None:
    segments = rows & (graph.kind == NodeKind.HOST_SEGMENT)
    spent = np.bincount(graph.lane[segments], timeline.duration_ns[segments])
    return int(spent.argmax()) if spent.sum() > 0 else None


def lock_throughput(
    locked_ns: int,
    native_ns: int,
    waiting_ns: int = 0,
    *,
    num_cores: int = 8,
    workers: Sequence[int] = (1, 2, 4, 8, 16),
    handing_over_ns: int = 0,
) -> InterpreterLock:
    """Requests in a second by workers, in closed form.

    Args:
        locked_ns: that a request holds the lock.
        native_ns: that it works on a core without it.
        waiting_ns: that it needs neither.
        num_cores: of the host.
        workers: how many do requests at once.
        handing_over_ns: from one thread's letting go of the lock to the next one's working, which
            a request that finds another at the lock waits more.

    Raises:
        GraphError: if a time or a number is none.
    """
    busy, whole = locked_ns + native_ns, locked_ns + native_ns + waiting_ns
    least = min(locked_ns, native_ns, waiting_ns, handing_over_ns)
    if least < 0 or not whole or min((*workers, num_cores)) < 1:
        raise GraphError(
            f"no requests of {locked_ns} ns under the lock, {native_ns} ns beside it and "
            f"{waiting_ns} ns of waiting on {num_cores} cores: expected times from 0, some of them "
            "above, one core or more, and workers from 1"
        )

    def even(count: int, slower: float = 1.0) -> float:
        return min(count / (whole + busy * (slower - 1)), num_cores / max(busy * slower, 1e-9))

    rows = []
    for count in workers:
        high = min(even(count), 1 / locked_ns if locked_ns else np.inf)
        in_line = _in_line(count, locked_ns, whole - locked_ns, handing_over_ns=handing_over_ns)
        by_chance = min(_on_cores(count, busy, waiting_ns, num_cores=num_cores), even(count))
        low = min(in_line, high, by_chance)
        rates = (low, high, by_chance, even(count), even(count, FREE_THREADED))
        rows.append(LockRow(count, *(rate * NS_PER_S for rate in rates)))
    return InterpreterLock(locked_ns, native_ns, waiting_ns, num_cores, tuple(rows))


def _on_cores(count: int, busy_ns: float, waiting_ns: float, *, num_cores: int) -> float:
    """Requests in a ns of processes that share cores evenly and wait without one between.

    How many are at work goes up and down one by one: the chances of neighbours are as their rates.
    """
    if not waiting_ns or not busy_ns:
        return min(count, num_cores) / busy_ns if busy_ns else count / waiting_ns
    at_work = np.arange(1, count + 1)
    served = np.minimum(at_work, num_cores)
    ratios = np.log((count + 1 - at_work) * (busy_ns / waiting_ns) / served)
    chances = np.concatenate([[0.0], np.cumsum(ratios)])
    weights = np.exp(chances - chances.max())
    return float((weights[1:] * served).sum() / weights.sum() / busy_ns)


def _in_line(
    count: int, locked_ns: float, beside_ns: float, *, handing_over_ns: float = 0.0
) -> float:
    """Requests in a ns of one lock that threads meet at by chance, by mean value analysis."""
    at_lock, rate = 0.0, 0.0
    for threads in range(1, count + 1):
        held = locked_ns + handing_over_ns * min(at_lock, 1.0)
        there = held * (1 + at_lock)
        rate = threads / (there + beside_ns)
        at_lock = rate * there
    return rate

"""`stage_ends_ns`: when every stage has done its units, if nothing but units took time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s, WorkloadError
from foretrace.workload.schedule._compiled import run, run_order
from foretrace.workload.schedule.schedule import Pass, Schedule


@dataclass(frozen=True)
class UnitTimes:
    """How long units take; what is left out takes no time."""

    alone_ns: Int64s  # int64[kinds of passes, chunks]
    joined_ns: Int64s  # int64[kinds of passes, chunks], of each unit of a joined pair
    transfer_ns: Int64s  # int64[chunks], between a chunk and the one before it, both ways
    begin_ns: Int64s  # int64[stages], before which no unit begins
    # int64[kinds of passes, chunks], exchanges before and behind a unit alone, on one stream.
    entry_ns: Int64s | None = None
    exit_ns: Int64s | None = None
    host_ns: Int64s | None = None  # int64[kinds of passes, chunks], of all launches of a unit
    # int64[kinds of passes, chunks], on a stream of their own: what a unit gathers for itself,
    # and what it leaves to be reduced.
    gather_ns: Int64s | None = None
    reduce_ns: Int64s | None = None
    reduces_runs: bool = False  # where a stage goes on to another chunk alone
    shared_ns: Int64s | None = None  # int64[stages], what is gathered before the first unit
    tail_ns: Int64s | None = None  # int64[stages], behind the last unit


def stage_ends_ns(schedule: Schedule, times: UnitTimes) -> Int64s | None:
    """When every stage is done; int64[stages]. `None`: its stages wait for each other."""
    ends_ns, num_left = _run(schedule, times)
    return None if num_left else ends_ns


def is_stuck(schedule: Schedule) -> bool:
    """Whether stages wait for each other for ever."""
    num_chunks = len(schedule.stage_of_chunk)
    no_time = np.zeros((len(Pass), num_chunks), np.int64)
    begin_ns = np.zeros(schedule.num_stages, np.int64)
    return _run(schedule, UnitTimes(no_time, no_time, no_time[0], begin_ns))[1] > 0


def order_of_turns(maker: Int64s, size: Int64s, begin: Int64s) -> Int64s:
    """Units of all stages in an order in which they can run, whatever they take.

    Args:
        maker: int64[units], who makes what each works on; below 0: nobody.
        size: int64[units], units of the turn that each begins; 0: another one begins its turn.
        begin: int64[stages + 1], first unit of every stage, and their number.

    Raises:
        WorkloadError: if stages wait for each other.
    """
    order = np.empty(len(maker), np.int64)
    if run_order(maker, size, begin, order) < len(order):
        raise WorkloadError("units of the step wait for each other for ever")
    return order


def _run(schedule: Schedule, times: UnitTimes) -> tuple[Int64s, int]:
    orders, num_chunks = schedule.orders, len(schedule.stage_of_chunk)
    reduces = np.ones(len(orders.kind), np.bool_)
    if times.reduces_runs:
        reduces = orders.ends_run
    ends_ns = np.full((2, num_chunks, schedule.num_microbatches), -1, np.int64)
    free_ns = times.begin_ns.copy()
    no_time = np.zeros_like(times.alone_ns)
    launched_ns = np.zeros_like(free_ns)
    shared_ns = launched_ns.copy() if times.shared_ns is None else times.shared_ns.copy()
    num_left = run(
        orders.kind,
        orders.microbatch,
        orders.chunk,
        orders.is_joined,
        orders.begin,
        *schedule.neighbours,
        times.alone_ns,
        times.joined_ns,
        times.transfer_ns,
        no_time if times.entry_ns is None else times.entry_ns,
        no_time if times.exit_ns is None else times.exit_ns,
        no_time if times.host_ns is None else times.host_ns,
        no_time if times.gather_ns is None else times.gather_ns,
        no_time if times.reduce_ns is None else times.reduce_ns,
        reduces,
        ends_ns[0],
        ends_ns[1],
        orders.begin[:-1].copy(),
        free_ns,
        launched_ns,
        shared_ns,
        np.zeros_like(free_ns),
    )
    if times.tail_ns is not None:
        free_ns += times.tail_ns
    return np.maximum(free_ns, shared_ns), int(num_left)

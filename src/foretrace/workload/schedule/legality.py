"""Whether a schedule can run: every unit once, no circle of waits; and when stages are done."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s, WorkloadError
from foretrace.workload.schedule._compiled import run, run_order
from foretrace.workload.schedule.schedule import Pass, Schedule, ScheduleUnit

_LETTERS = {Pass.FORWARD: "F", Pass.BACKWARD: "B", Pass.INPUT: "I", Pass.WEIGHT: "W"}

# What a unit leaves for others: an activation, or a gradient of inputs.
Result = tuple[Pass, int, int]


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


def check_schedule(schedule: Schedule, where: str = "") -> None:
    """Refuse a schedule that cannot run.

    Args:
        where: what to call it in an error; its name unless given.

    Raises:
        WorkloadError: naming the first unit that is missing, doubled or misplaced, or the units
            that wait for each other.
    """
    where = where or f"schedule {schedule.name!r}"
    _check_shape(schedule, where)
    _check_places(schedule, where)
    _check_counts(schedule, where)
    stuck = stuck_units(schedule)
    if stuck:
        waits = "; ".join(
            f"stage {stage} at {described(unit)} for {described(wanted)}"
            for stage, unit, wanted in stuck[:4]
        )
        raise WorkloadError(
            f"{where} never ends, because its stages wait for each other ({waits}): "
            "move one of these units behind what it waits for"
        )


def needs_of(schedule: Schedule, unit: ScheduleUnit) -> Iterator[ScheduleUnit]:
    """Units, wherever they are, whose results a unit works on; input gradients stand as `INPUT`.

    A forward pass needs the chunk before it on its microbatch's route, a backward pass its own
    forward pass and the chunk after it, gradients of weights their own gradients of inputs.
    """
    route = schedule.routes[schedule.route_of_microbatch[unit.microbatch]]
    place = route.index(unit.chunk)
    if unit.kind is Pass.FORWARD:
        if place > 0:
            yield ScheduleUnit(Pass.FORWARD, unit.microbatch, route[place - 1])
    elif unit.kind is Pass.WEIGHT:
        yield ScheduleUnit(Pass.INPUT, unit.microbatch, unit.chunk)
    else:
        yield ScheduleUnit(Pass.FORWARD, unit.microbatch, unit.chunk)
        if place + 1 < len(route):
            yield ScheduleUnit(Pass.INPUT, unit.microbatch, route[place + 1])


def stuck_units(schedule: Schedule) -> tuple[tuple[int, ScheduleUnit, ScheduleUnit], ...]:
    """Where stages stop for ever: stage, the unit it cannot begin, and what that lacks.

    Both units of a joined pair begin together. Nothing is stuck in a schedule that can run.
    """
    done: set[Result] = set()
    place = [0] * schedule.num_stages
    waiting: defaultdict[Result, list[int]] = defaultdict(list)
    stuck: dict[int, tuple[int, ScheduleUnit, ScheduleUnit]] = {}
    ready = list(range(schedule.num_stages))
    while ready:
        stage = ready.pop()
        stuck.pop(stage, None)
        order = schedule.units[stage]
        while place[stage] < len(order):
            begun = _together(order, place[stage])
            lack = _lack(schedule, begun, done)
            if lack is not None:
                unit, wanted = lack
                stuck[stage] = (stage, unit, wanted)
                waiting[_result(wanted)].append(stage)
                break
            for unit in begun:
                done.add(_result(unit))
                ready += waiting.pop(_result(unit), ())
            place[stage] += len(begun)
    return tuple(stuck[stage] for stage in sorted(stuck))


def described(unit: ScheduleUnit) -> str:
    """A unit in words: "B of microbatch 3 on chunk 1"."""
    return f"{_LETTERS[unit.kind]} of microbatch {unit.microbatch} on chunk {unit.chunk}"


def _result(unit: ScheduleUnit) -> Result:
    kind = Pass.INPUT if unit.kind is Pass.BACKWARD else unit.kind
    return kind, unit.microbatch, unit.chunk


def _together(order: tuple[ScheduleUnit, ...], place: int) -> tuple[ScheduleUnit, ...]:
    end = place + 1
    while order[end - 1].is_joined and end < len(order):
        end += 1
    return order[place:end]


def _lack(
    schedule: Schedule, begun: tuple[ScheduleUnit, ...], done: set[Result]
) -> tuple[ScheduleUnit, ScheduleUnit] | None:
    for unit in begun:
        for wanted in needs_of(schedule, unit):
            if _result(wanted) not in done:
                return unit, wanted
    return None


def _check_shape(schedule: Schedule, where: str) -> None:
    num_chunks = len(schedule.stage_of_chunk)
    for chunk, stage in enumerate(schedule.stage_of_chunk):
        if not 0 <= stage < schedule.num_stages:
            raise WorkloadError(
                f"{where} puts chunk {chunk} on stage {stage} of {schedule.num_stages}: "
                f"stages are 0 to {schedule.num_stages - 1}"
            )
    routed = sorted(chunk for route in schedule.routes for chunk in route)
    if routed != list(range(num_chunks)):
        raise WorkloadError(
            f"{where} has routes {[list(route) for route in schedule.routes]} over {num_chunks} "
            "chunks: every chunk has to be on one route, once"
        )
    lengths = {len(route) for route in schedule.routes}
    if len(lengths) > 1:
        raise WorkloadError(
            f"{where} has routes of {sorted(lengths)} chunks: each route holds the whole model, "
            "so all need as many chunks"
        )
    for microbatch, route in enumerate(schedule.route_of_microbatch):
        if not 0 <= route < len(schedule.routes):
            raise WorkloadError(
                f"{where} sends microbatch {microbatch} along route {route}: it has routes 0 to "
                f"{len(schedule.routes) - 1}"
            )


def _check_places(schedule: Schedule, where: str) -> None:
    for stage, order in enumerate(schedule.units):
        for unit in order:
            if not 0 <= unit.microbatch < schedule.num_microbatches:
                raise WorkloadError(
                    f"{where} has {described(unit)} on stage {stage}, but its microbatches are 0 "
                    f"to {schedule.num_microbatches - 1}: take the unit out"
                )
            route = schedule.routes[schedule.route_of_microbatch[unit.microbatch]]
            if unit.chunk not in route or schedule.stage_of_chunk[unit.chunk] != stage:
                raise WorkloadError(
                    f"{where} has {described(unit)} on stage {stage}, where that chunk is not or "
                    f"the microbatch does not pass: its route is {list(route)} on stages "
                    f"{[schedule.stage_of_chunk[chunk] for chunk in route]}"
                )


def _check_counts(schedule: Schedule, where: str) -> None:
    counts = Counter(
        (unit.kind, unit.microbatch, unit.chunk) for order in schedule.units for unit in order
    )
    for microbatch, route in enumerate(schedule.route_of_microbatch):
        for chunk in schedule.routes[route]:
            found = tuple(counts[kind, microbatch, chunk] for kind in Pass)
            if found not in {(1, 1, 0, 0), (1, 0, 1, 1)}:
                written = ", ".join(
                    f"{count} {_LETTERS[kind]}" for kind, count in zip(Pass, found, strict=True)
                )
                raise WorkloadError(
                    f"{where} has {written} of microbatch {microbatch} on chunk {chunk}: expected "
                    "are one F and either one B, or one I (input gradients) and one W (weights)"
                )

"""The schedule of a plan: known by name, or read from the file that the plan names."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from foretrace.base import WorkloadError, check_fits
from foretrace.workload.plan.plan import Plan
from foretrace.workload.schedule.legality import is_stuck
from foretrace.workload.schedule.orders import (
    check_dualpipe,
    dualpipe,
    gpipe,
    interleaved,
    one_forward_one_backward,
    zb_h1,
)
from foretrace.workload.schedule.schedule import Pass, Schedule
from foretrace.workload.schedule.written import is_written, read_schedule

_TAKES_TURNS, _DUALPIPE = "1f1b", "dualpipe"
_OF_ONE_CHUNK = {
    "gpipe": gpipe,
    _TAKES_TURNS: one_forward_one_backward,
    "zb-h1": zb_h1,
    _DUALPIPE: dualpipe,
}
_INTERLEAVED = "interleaved"
_NONE = "none"
SCHEDULES = (_NONE, *_OF_ONE_CHUNK, _INTERLEAVED)
_BYTES_PER_PASS = 400  # of a schedule, with what checks it
_MANY_PASSES = 1_000_000  # from which on it is worth asking whether they fit
_MOST_KEPT = 20_000_000  # units of schedules
_SMALLEST = (2, 4)  # stages and microbatches that every order of one chunk runs with
_STEADY = (_TAKES_TURNS, "zb-h1", _DUALPIPE)


def require_schedule(name: str) -> None:
    """Refuse a name that is of no schedule, and names no file of one.

    Raises:
        WorkloadError: for an unknown name.
    """
    if not is_written(name) and name not in SCHEDULES:
        raise WorkloadError(
            f"no schedule is called {name!r}: known are {', '.join(SCHEDULES)}, or name a .toml "
            "or .csv file with each stage's order"
        )


def schedule_of(plan: Plan) -> Schedule:
    """The order of units of every stage of a plan.

    A plan without pipeline has one stage, which takes a microbatch forward and at once backward:
    gradients are accumulated. A file is looked for beside the plan's own, then where one stands.

    Raises:
        WorkloadError: for an unknown name, numbers that the schedule cannot run with, or a file
            that is wrong.
    """
    schedule = check_order(plan)
    return _made(plan, plan.num_microbatches) if schedule is None else schedule


def check_order(plan: Plan) -> Schedule | None:
    """Refuse a plan that has no schedule; the schedule is made where only that shows it.

    Raises:
        WorkloadError: as `schedule_of`.
    """
    if plan.num_microbatches < 1:
        raise WorkloadError(
            f"a global batch of {plan.global_batch} sequences over dp {plan.data} with "
            f"microbatches of {plan.micro_batch} leaves no microbatch: "
            f"the batch has to hold at least {plan.micro_batch * plan.data}"
        )
    require_schedule(plan.schedule)
    num_passes = 2 * plan.num_microbatches * plan.pipeline * plan.num_chunks
    if num_passes > _MANY_PASSES:
        check_fits(
            num_passes * _BYTES_PER_PASS,
            f"a schedule of {num_passes:,} passes",
            advice="take a smaller global batch, or more sequences in a microbatch",
        )
    if is_written(plan.schedule):
        return _from_file(plan)
    if plan.schedule == _INTERLEAVED and plan.pipeline > 1:
        return _check_interleaved(plan)
    _check_one_chunk(plan)
    return None


def kinds_of_passes(plan: Plan) -> tuple[Pass, ...]:
    """Kinds of passes that the units of a plan's schedule are, in the order of `Pass`.

    Raises:
        WorkloadError: if the schedule is a file that is wrong.
    """
    if is_written(plan.schedule):
        return _kinds_in(_from_file(plan))
    if plan.pipeline == 1 or plan.schedule not in _OF_ONE_CHUNK:
        return Pass.FORWARD, Pass.BACKWARD
    return _passes_named(plan.schedule)


@cache
def _passes_named(schedule: str) -> tuple[Pass, ...]:
    return _kinds_in(_OF_ONE_CHUNK[schedule](*_SMALLEST))


def _kinds_in(schedule: Schedule) -> tuple[Pass, ...]:
    return tuple(map(Pass, np.unique(schedule.orders.kind).tolist()))


def steady_microbatches(plan: Plan) -> int:
    """As few microbatches as leave every stage's fullest moment what it is with all of a plan's.

    Behind what they come ahead, forward and backward passes take turns, and what a stage keeps is
    the same after each round.
    """
    count, stages = plan.num_microbatches, plan.pipeline
    if plan.schedule == _INTERLEAVED and stages > 1:
        contiguous = plan.contiguous or stages
        whole, rest = divmod(count, contiguous)
        ahead = 2 * (stages - 1) + (plan.num_chunks - 1) * contiguous
        rounds = -(-ahead // (contiguous * plan.num_chunks)) + 2
        return min(whole, rounds) * contiguous + rest
    if plan.schedule in _STEADY or (stages == 1 and plan.schedule in {_NONE, _INTERLEAVED}):
        return min(count, 2 * stages + 4)
    return count


def steady_schedule(plan: Plan) -> Schedule:
    """The schedule of so many microbatches alone; of a legal plan."""
    return _made(plan, steady_microbatches(plan))


def _made(plan: Plan, num_microbatches: int) -> Schedule:
    if is_written(plan.schedule):
        return _from_file(plan)
    if plan.schedule == _INTERLEAVED and plan.pipeline > 1:
        return interleaved(
            plan.pipeline,
            num_microbatches,
            num_chunks=plan.num_chunks,
            contiguous=plan.contiguous or plan.pipeline,
            is_joined=_joins_passes(plan),
        )
    if plan.schedule == _TAKES_TURNS or (plan.pipeline == 1 and plan.schedule != "gpipe"):
        is_joined = _joins_passes(plan)
        return one_forward_one_backward(plan.pipeline, num_microbatches, is_joined=is_joined)
    return _OF_ONE_CHUNK[plan.schedule](plan.pipeline, num_microbatches)


def _joins_passes(plan: Plan) -> bool:
    """Whether exchanges around experts run beside another microbatch's work."""
    return plan.overlap.expert and plan.expert > 1


def _check_one_chunk(plan: Plan) -> None:
    if plan.num_chunks > 1:
        raise WorkloadError(
            f"schedule {plan.schedule!r} with pp {plan.pipeline} has one chunk on each stage, not "
            f"{plan.num_chunks}: several need the schedule 'interleaved' and pp above 1"
        )
    if plan.pipeline == 1:
        return
    if plan.schedule == _NONE:
        raise WorkloadError(
            f"schedule 'none' has no order for pp {plan.pipeline}: choose one of "
            f"{', '.join(SCHEDULES[1:])}"
        )
    if plan.schedule == _DUALPIPE:
        check_dualpipe(plan.pipeline, plan.num_microbatches)


def _check_interleaved(plan: Plan) -> Schedule | None:
    contiguous = plan.contiguous or plan.pipeline
    last = plan.num_microbatches % contiguous or contiguous
    if min(contiguous, last) >= plan.pipeline:
        return None  # which cannot stand still
    if (
        plan.num_microbatches == last
        and (plan.num_chunks - 1) * contiguous >= last * plan.num_chunks
    ):
        return None  # every stage does all forward passes first, in the same order
    schedule = _made(plan, plan.num_microbatches)
    if is_stuck(schedule):
        raise WorkloadError(
            f"schedule 'interleaved' with pp {plan.pipeline} x {plan.num_chunks} chunks stands "
            f"still: of {plan.num_microbatches} microbatches {contiguous} of a chunk come in a "
            f"row, and the last group has {last}, "
            f"where groups of at least pp = {plan.pipeline} always run: contiguous = "
            f"{plan.num_microbatches} would, or {plan.pipeline} with a multiple of "
            f"{plan.pipeline} microbatches"
        )
    return schedule


def _from_file(plan: Plan) -> Schedule:
    written = Path(plan.schedule)
    beside = plan.path.parent / written if plan.path is not None else written
    schedule = read_schedule(beside if beside.is_file() else written)
    found = (
        schedule.num_stages,
        schedule.num_microbatches,
        len(schedule.routes[0]),
    )
    stated = (plan.pipeline, plan.num_microbatches, plan.pipeline * plan.num_chunks)
    if found != stated:
        raise WorkloadError(
            f"schedule file {plan.schedule!r} is for {found[0]} stages, {found[1]} microbatches "
            f"and {found[2]} chunks on a route, and the plan has pp {stated[0]}, {stated[1]} "
            f"microbatches and {stated[2]} chunks (pp {plan.pipeline} x {plan.num_chunks} a "
            "stage): change one of them"
        )
    return schedule


class KeptSchedules:
    """Schedules of plans, each made once; the oldest are forgotten with too many units."""

    def __init__(self) -> None:
        """Know none."""
        self._known: dict[object, Schedule] = {}
        self._num_kept = 0

    def of(self, plan: Plan) -> Schedule:
        """A legal plan's schedule."""
        key = (
            *(plan.schedule, plan.pipeline, plan.num_chunks, plan.contiguous),
            *(plan.num_microbatches, plan.path, _joins_passes(plan)),
        )
        found = self._known.get(key)
        if found is None:
            found = schedule_of(plan)
            self._num_kept += len(found.orders.kind)
            if self._num_kept > _MOST_KEPT:
                self._known.clear()
                self._num_kept = len(found.orders.kind)
            self._known[key] = found
        return found

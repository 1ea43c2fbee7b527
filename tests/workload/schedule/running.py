"""Schedules run with durations of units, one stage after the other, again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foretrace.workload import Pass, Schedule, ScheduleUnit

Done = tuple[str, int, int]


@dataclass(frozen=True)
class Durations:
    """Time of each kind of unit on one chunk; any unit."""

    forward: int
    inputs: int
    weights: int
    pair: int | None = None  # of a forward and a backward pass woven together; `None`: their sum

    def of(self, units: list[ScheduleUnit]) -> int:
        if len(units) > 1 and self.pair is not None:
            return self.pair
        times = {
            Pass.FORWARD: self.forward,
            Pass.BACKWARD: self.inputs + self.weights,
            Pass.INPUT: self.inputs,
            Pass.WEIGHT: self.weights,
        }
        return sum(times[unit.kind] for unit in units)


@dataclass(frozen=True)
class Run:
    total: int  # until the last stage ends
    work: tuple[int, ...]  # of each stage
    num_held: tuple[int, ...]  # most forward passes without their backward pass, by stage

    @property
    def bubble(self) -> int:
        """Idle time of the stage that has most to do."""
        return self.total - max(self.work)


def run(schedule: Schedule, durations: Durations) -> Run:
    """Every unit starts when its stage is free and what it needs is done."""
    end: dict[Done, int] = {}
    place = [0] * schedule.num_stages
    now = [0] * schedule.num_stages
    work = [0] * schedule.num_stages
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(schedule.units):
            while place[stage] < len(order):
                units = together(order, place[stage])
                needs = [need for unit in units for need in needs_of(schedule, unit)]
                if any(need not in end for need in needs):
                    break
                now[stage] = max([now[stage], *(end[need] for need in needs)])
                now[stage] += durations.of(units)
                work[stage] += durations.of(units)
                end |= {done_by(unit): now[stage] for unit in units}
                place[stage] += len(units)
                moved = True
    assert place == [len(order) for order in schedule.units]
    held = tuple(most_held(order) for order in schedule.units)
    return Run(max(now), tuple(work), held)


def together(order: tuple[ScheduleUnit, ...], place: int) -> list[ScheduleUnit]:
    units = [order[place]]
    while units[-1].is_joined:
        units.append(order[place + len(units)])
    return units


def done_by(unit: ScheduleUnit) -> Done:
    kinds: Mapping[Pass, str] = {Pass.FORWARD: "F", Pass.WEIGHT: "W"}
    return kinds.get(unit.kind, "B"), unit.microbatch, unit.chunk


def needs_of(schedule: Schedule, unit: ScheduleUnit) -> list[Done]:
    route = schedule.routes[schedule.route_of_microbatch[unit.microbatch]]
    place = route.index(unit.chunk)
    if unit.kind is Pass.WEIGHT:
        return [("B", unit.microbatch, unit.chunk)]
    if unit.kind is Pass.FORWARD:
        return [("F", unit.microbatch, chunk) for chunk in route[max(place - 1, 0) : place]]
    after = [("B", unit.microbatch, chunk) for chunk in route[place + 1 : place + 2]]
    return [("F", unit.microbatch, unit.chunk), *after]


def most_held(order: tuple[ScheduleUnit, ...]) -> int:
    """Activations wait for whole backward passes, or for gradients of weights."""
    held = most = 0
    for unit in order:
        held += unit.kind is Pass.FORWARD
        most = max(most, held)
        held -= unit.kind in {Pass.BACKWARD, Pass.WEIGHT}
    return most

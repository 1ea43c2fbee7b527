"""`found_schedule`: an order of units for one plan that is found, not named, within its memory.

Orders are listed by many rules and improved by moves, over times of units that are made once; the
best of them and all named ones that fit are then simulated unit by unit, and the shortest is taken.
So it is never worse than a named order that fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from foretrace.answer import Answer, Column, Plain, Table, Told, Unit, bytes_text, duration_text
from foretrace.base import Int64s, WorkloadError
from foretrace.cost import CostModel, Inflation, Remembered
from foretrace.estimate import run_units, software_costs
from foretrace.machine import Machine
from foretrace.search.bound import Prices, transfer_of
from foretrace.search.unit_times import UnitClock
from foretrace.workload import (
    ListRule,
    Orders,
    PipelineWork,
    Plan,
    PlanMemory,
    Schedule,
    Transformer,
    blocks_of_model,
    check_plan,
    check_schedule,
    chunk_layers,
    improved,
    listed_schedule,
    pytorch_csv,
    schedule_of,
    unit_layout,
)

_FOUND = "found"
_NAMED = ("1f1b", "zb-h1", "gpipe", "dualpipe")
_MOVES, _MOVED_UNITS = 1_500, 4_000_000  # tries, and units that they look at in all
_KEPT = 2  # orders of a placement that are simulated
_SEED = 0  # of the moves, so that the same order is found again


@dataclass(frozen=True)
class OrderedStep(Plain):
    """One order of units, simulated unit by unit."""

    json_only: ClassVar = ("name", "chunks", "step_ns", "peak_bytes", "fits")

    name: str
    chunks: int  # of a stage
    step_ns: int
    peak_bytes: int  # of the fullest stage
    fits: bool
    schedule: Schedule
    plan: Plan


@dataclass(frozen=True, repr=False)
class FoundSchedule(Answer):
    """The best order of a plan's units within a capacity, beside those with names."""

    capacity: int
    best: OrderedStep
    orders: tuple[OrderedStep, ...]  # the shortest step first

    @property
    def csv(self) -> str:
        """The best order as PyTorch's pipeline runtime reads it; DualPipe has no place there."""
        one_way = [one for one in self.orders if one.fits and len(one.schedule.routes) == 1]
        return pytorch_csv(one_way[0].schedule)

    @property
    def headline(self) -> str:
        """The best order, and how much shorter its step is than that of the best named one."""
        named = [one for one in self.orders if one.fits and one.name != _FOUND]
        room = bytes_text(self.capacity)
        told = f"{self.best.name}, {duration_text(self.best.step_ns)} a step"
        if not named:
            return f"{told}: no order with a name fits {room}"
        if self.best.name != _FOUND:
            return f"{told}: no order was found that is shorter within {room}"
        gain = 100 * (1 - self.best.step_ns / named[0].step_ns)
        return f"{told}: {gain:.1f} % shorter than {named[0].name} within {room}"

    def parts(self) -> tuple[Told, ...]:
        """Every order that was simulated."""
        return (
            Table.of(
                "orders",
                self.orders,
                Column("name", "order", Unit.WORD),
                Column("chunks", "chunks a stage"),
                Column("step_ns", "step", Unit.NS),
                Column("peak_bytes", "fullest stage", Unit.BYTES),
                Column("fits"),
            ),
        )


def found_schedule(
    model: Transformer,
    plan: Plan,
    machine: Machine,
    *,
    capacity: int | None = None,
) -> FoundSchedule:
    """The best order of a plan's units that fits.

    Chunks are tried one and two a stage, round the stages and there and back, and as many as the
    plan has.

    Args:
        model: a transformer.
        plan: legal, with stages; its own schedule is put aside.
        machine: what it runs on.
        capacity: bytes that a rank may hold; the chip's memory, if left out.

    Raises:
        WorkloadError: if the plan is not legal or has one stage, or no order of it fits.
    """
    if plan.pipeline == 1:
        raise WorkloadError("a plan with one stage has one order of units: state --pp")
    room = machine.chip.memory_bytes if capacity is None else capacity
    found = _Orders(
        model,
        replace(plan, contiguous=None, layers_of_chunk=None),
        costs=Remembered(software_costs(machine, None)),
        inflation=Inflation(),
        memory=PlanMemory(model, chip=machine.chip),
        capacity=room,
    )
    named = list(found.named())
    orders = [*named, *found.found(named)]
    fitting = [one for one in orders if one.fits]
    if not fitting:
        least = min(orders, key=lambda one: one.peak_bytes, default=None)
        told = "" if least is None else f"; {least.name} takes {bytes_text(least.peak_bytes)}"
        raise WorkloadError(
            f"no order of the plan's units fits {bytes_text(room)}{told}: divide more, recompute "
            "more, or take more memory"
        )
    ranked = sorted(orders, key=lambda one: one.step_ns)
    return FoundSchedule(room, min(fitting, key=lambda one: one.step_ns), tuple(ranked))


@dataclass
class _Orders:
    """Orders of one plan's units."""

    model: Transformer
    plan: Plan
    costs: CostModel
    inflation: Inflation
    memory: PlanMemory
    capacity: int

    def named(self) -> Iterator[OrderedStep]:
        """Those that have names and can run."""
        plans = [replace(self.plan, schedule=name, num_chunks=1) for name in _NAMED]
        plans += [
            replace(self.plan, schedule="interleaved", num_chunks=count)
            for count in self._chunk_counts()
            if count > 1
        ]
        for plan in plans:
            try:
                check_plan(plan, self.model)
            except WorkloadError:
                continue
            name = plan.schedule if plan.num_chunks == 1 else f"interleaved x {plan.num_chunks}"
            yield self._simulated(name, plan, schedule_of(plan))

    def found(self, named: list[OrderedStep]) -> Iterator[OrderedStep]:
        """The best listed orders of every placement, and named ones, with units moved."""
        for count in self._chunk_counts():
            name = "1f1b" if count == 1 else "interleaved"
            plan = replace(self.plan, schedule=name, num_chunks=count)
            for stage_of_chunk in _placements(plan.pipeline, count):
                work = self._work(plan, stage_of_chunk)
                starts = [
                    one.schedule
                    for one in named
                    if one.fits
                    and one.schedule.stage_of_chunk == stage_of_chunk
                    and len(one.schedule.routes) == 1
                ]
                listed = (listed_schedule(work, rule) for rule in ListRule.all())
                starts += [one for one in listed if one is not None]
                yield from (self._simulated(_FOUND, plan, one) for one in _best(work, starts))

    def _chunk_counts(self) -> list[int]:
        wanted = {1, 2, self.plan.num_chunks}
        most = self.model.num_layers // self.plan.pipeline
        return sorted(count for count in wanted if count <= max(most, 1))

    def _simulated(self, name: str, plan: Plan, schedule: Schedule) -> OrderedStep:
        layout = unit_layout(blocks_of_model(self.model, plan), plan, schedule)
        step_ns = run_units(layout, self.costs, self.inflation).step_ns
        peak = self.memory.footprint(plan, schedule).peak.total
        return OrderedStep(
            name=name,
            chunks=plan.num_chunks,
            step_ns=step_ns,
            peak_bytes=peak,
            fits=peak <= self.capacity,
            schedule=schedule,
            plan=plan,
        )

    def _work(self, plan: Plan, stage_of_chunk: tuple[int, ...]) -> PipelineWork:
        """Times and bytes of units, with backward passes whole and taken apart."""
        clock = UnitClock(self.model, self.costs, self.inflation)
        work = clock.work(replace(plan, schedule="zb-h1", num_chunks=1))
        alone, _, host = work.chunks_ns(chunk_layers(plan, self.model.num_layers))
        between = Prices(self.costs).transfers_ns(transfer_of(work), plan)
        stage = np.array(stage_of_chunk)
        before = np.append(stage[0], stage[:-1])
        pair = np.where(np.abs(stage - before) == 1, np.minimum(stage, before), -1)
        empty = PipelineWork(
            stage_of_chunk=stage_of_chunk,
            unit_ns=np.maximum(alone, host),
            transfer_ns=np.where(stage == before, 0, between[pair]),
            num_bytes=np.zeros((4, len(stage)), np.int64),
            room=np.zeros(plan.pipeline, np.int64),
            num_microbatches=plan.num_microbatches,
        )
        num_bytes, room = self.memory.room(plan, empty.schedule(_no_units(plan)), self.capacity)
        return replace(empty, num_bytes=num_bytes, room=room)


def _no_units(plan: Plan) -> Orders:
    none: Int64s = np.zeros(0, np.int64)
    return Orders.of_stages([(none, none, none)] * plan.pipeline)


def _placements(num_stages: int, count: int) -> Iterator[tuple[int, ...]]:
    """Stages of chunks along a route: round the stages, and there and back."""
    there = tuple(range(num_stages))
    yield there * count
    if count == 2:  # noqa: PLR2004  once there, once back
        yield (*there, *there[::-1])


def _best(work: PipelineWork, starts: list[Schedule]) -> list[Schedule]:
    """The shortest of some orders, distinct ones, with units moved."""
    by_length: dict[int, Schedule] = {}
    for one in starts:
        length_ns = work.length_ns(one)
        if length_ns is not None:
            by_length.setdefault(length_ns, one)
    kept = [by_length[length] for length in sorted(by_length)[:_KEPT]]
    found = []
    for one in kept:
        tries = min(_MOVES, _MOVED_UNITS // len(one.orders.kind))
        own = improved(one, work, tries=tries, seed=_SEED)
        is_shorter = (work.length_ns(own) or 0) < (work.length_ns(one) or 0)
        found.append(replace(own if is_shorter else one, name=_FOUND))
        check_schedule(found[-1])
    return found

"""A prediction made by hand, of two jobs whose files are known: for what is printed and drawn."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import foretrace as ft
from foretrace.analyze import Selection, windows
from foretrace.base import Int64s, UInt8s
from foretrace.cost import Costs, Source
from foretrace.graph import NodeKind, Recording, Timeline
from foretrace.machine import load_machine
from foretrace.simulate import simulate
from foretrace.whatif import (
    Edit,
    EditEffect,
    Layers,
    Memory,
    Parallelism,
    Prediction,
    Scenario,
    Sizes,
    Speed,
)
from foretrace.workload import Footprint, Plan, StageFootprint
from tests.truth import JobConfig, make_job, write

GIB = 2**30


@cache
def recording_of_layers(num_layers: int, data: int = 2) -> Recording:
    """Two steps of a job of so many layers, as its files tell it."""
    job = make_job(JobConfig(tp=2, dp=data, num_layers=num_layers, num_steps=2))
    with TemporaryDirectory() as folder:
        write(job, Path(folder))
        return ft.load(folder, cache=False).recording


def replayed(recording: Recording) -> Timeline:
    """Its replay."""
    return simulate(recording.graph)


def mean_step_ns(timeline: Timeline) -> int:
    """Of the job's steps."""
    return round(float(np.mean(windows(timeline).duration_ns)))


def costs_of(timeline: Timeline) -> Costs:
    """Every node's own time; kernels scaled, communication fitted, the rest measured."""
    graph = timeline.graph
    source: UInt8s = np.full(graph.num_nodes, Source.MEASURED, np.uint8)
    source[graph.kind == NodeKind.KERNEL] = Source.SCALED
    source[graph.kind == NodeKind.FINISH] = Source.FITTED
    duration_ns: Int64s = graph.measured_ns
    return Costs(
        duration_ns=duration_ns,
        low_ns=(duration_ns * 95) // 100,
        high_ns=(duration_ns * 105) // 100,
        source=source,
        family=np.zeros(graph.num_nodes, np.int32),
        families=("host",),
    )


def memory_of(total_gib: int, capacity_gib: int | None = 80) -> Footprint:
    """One stage that holds so much."""
    stage = StageFootprint(
        stage=0,
        parameters=2 * GIB,
        gradients=4 * GIB,
        optimizer=12 * GIB,
        activations=(total_gib - 18) * GIB,
        buffers=0,
        context=0,
        num_in_flight=1.0,
        peak_unit=0,
    )
    return Footprint((stage,), None if capacity_gib is None else capacity_gib * GIB)


@cache
def made_prediction(*, with_memory: bool = True) -> Prediction:
    """From two layers on four ranks to four layers on eight, with faster products."""
    before, after = recording_of_layers(2), recording_of_layers(4, data=4)
    first, last = replayed(before), replayed(after)
    step_ns, new_ns = mean_step_ns(first), mean_step_ns(last)
    middle_ns = (step_ns + new_ns) // 2
    edits: tuple[Edit, ...] = (
        Layers(4),
        Parallelism(dp=4),
        Speed(1.25, Selection(named="gemm")),
    )
    machine = load_machine("dgx-a100")
    scenario = Scenario(
        sizes=Sizes(layers=2, hidden=1024),
        plan=Plan(tensor=2, data=2, global_batch=4),
        machine=machine,
    )
    scenarios = [scenario]
    for edit in edits:
        scenarios.append(edit.applied(scenarios[-1]))
    ends_ns = (middle_ns, new_ns + step_ns // 20, new_ns)
    starts_ns = (step_ns, *ends_ns)
    return Prediction(
        name="wider",
        before=scenario,
        after=scenarios[-1],
        effects=tuple(
            EditEffect(edit, edit.sentence(was), end_ns, end_ns - start_ns)
            for edit, was, end_ns, start_ns in zip(
                edits, scenarios, ends_ns, starts_ns[:-1], strict=False
            )
        ),
        replayed=first,
        timeline=last,
        costs=costs_of(last),
        measured_step_ns=mean_step_ns(before.measured),
        replayed_step_ns=step_ns,
        step_ns=new_ns,
        low_ns=new_ns * 9 // 10,
        high_ns=new_ns * 11 // 10,
        method="arranged",
        memory=Memory(memory_of(30), memory_of(41)) if with_memory else None,
        notes=("the plan was read off process groups", "microbatches are alike"),
    )

"""Generated jobs, edited: what is asked, and what the edited job truly takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from foretrace.analyze import windows
from foretrace.graph import NO_COLLECTIVE, NodeKind, Timeline, verify
from foretrace.simulate import simulate
from foretrace.whatif import Arranged, Edit, Scenario, Sizes
from foretrace.whatif.arrange.arrange import arranged
from foretrace.whatif.baseline import base_scenario
from foretrace.whatif.rearrange.rearranged import rearranged
from foretrace.whatif.recorded.program import NewJob, NewRank, Placed, Program, RecordedPiece
from foretrace.whatif.recorded.read import program_of
from tests.graph.recorded import recording_of
from tests.truth import JobConfig, make_job


@cache
def program_under(config: JobConfig) -> Program:
    """The program that a generated job's files give."""
    return program_of(recording_of(make_job(config)))


def base(config: JobConfig, **sizes: int) -> Scenario:
    """The recorded job as a scenario."""
    layers = config.num_layers * config.pp
    return Scenario(sizes=Sizes(**{"layers": layers, **sizes}), plan=program_under(config).plan)


def edited(config: JobConfig, *edits: Edit, **sizes: int) -> NewJob | None:
    """The new job that edits of a generated one make."""
    return _edited(config, edits, base(config, **sizes))


def read_job(config: JobConfig, *edits: Edit) -> NewJob:
    """The new job that edits of a generated one make, its sizes read off its shapes."""
    found = _edited(config, edits, base_scenario(program_under(config)))
    assert found is not None
    return found


def _edited(config: JobConfig, edits: Sequence[Edit], before: Scenario) -> NewJob | None:
    after = before
    for edit in edits:
        after = edit.applied(after)
    return rearranged(program_under(config), before, after)


def new_job(config: JobConfig, *edits: Edit, **sizes: int) -> NewJob:
    """The same, where something changes."""
    found = edited(config, *edits, **sizes)
    assert found is not None
    return found


def predicted_step_ns(config: JobConfig, *edits: Edit, **sizes: int) -> float:
    """The mean step of a new job; transfers in proportion to their bytes, made ones free."""
    program = program_under(config)
    found = arranged(program, new_job(config, *edits, **sizes))
    verify(found.graph)
    timeline = simulate(found.graph, _durations_ns(found, program))
    return step_ns(timeline)


def _durations_ns(found: Arranged, program: Program) -> np.ndarray:
    graph = found.graph
    duration_ns = graph.measured_ns.copy()
    for node in graph.nodes_of(NodeKind.FINISH).tolist():
        collective = int(graph.collective[node])
        source = int(found.source_collective[collective])
        if source != NO_COLLECTIVE and program.graph.collectives[source].num_bytes > 0:
            new = graph.collectives[collective].num_bytes
            old = program.graph.collectives[source].num_bytes
            duration_ns[node] = duration_ns[node] * new // old
    return duration_ns


def step_ns(timeline: Timeline) -> float:
    """The mean step of a job, the first one left aside."""
    return float(np.mean(windows(timeline).duration_ns[1:]))


@cache
def true_step_ns(config: JobConfig) -> float:
    """From the end of the first step on all ranks to that of the last, by step."""
    job = make_job(config)
    first, last = (
        max(job.step_end_ns(rank, step) for rank in range(job.num_ranks))
        for step in (0, config.num_steps - 1)
    )
    return (last - first) / (config.num_steps - 1)


def with_layers(config: JobConfig, num_layers: int, **change: int) -> JobConfig:
    """The job with so many layers on each stage, and an optimizer that updates as many."""
    kernels = round(config.num_optimizer_kernels * num_layers / config.num_layers)
    return replace(config, num_layers=num_layers, num_optimizer_kernels=max(kernels, 1), **change)  # type: ignore[arg-type]


def shown(rank: NewRank, step: int = 0) -> list[str]:
    """What a rank runs in a step, in words: `F1 layer 0`, `B0 bucket`."""
    return [each for placed in rank.placed if placed.step == step for each in (_words(placed),)]


def _words(placed: Placed) -> str:
    letter = placed.phase.name[:1] if placed.phase.name != "UNKNOWN" else ""
    number = str(placed.microbatch) if placed.microbatch >= 0 else ""
    layer = f" {placed.layer}" if placed.layer >= 0 else ""
    made = "" if isinstance(placed.piece, RecordedPiece) else "made "
    return f"{letter}{number} {made}{placed.part.name.lower()}{layer}".strip()

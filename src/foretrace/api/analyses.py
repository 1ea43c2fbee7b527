"""The verbs that answer questions about a step; each takes a job or a timeline.

Of a job, what bounds the step is asked of its replay, whose every moment has a cause; what it is
made of is asked of what was measured. A timeline is taken as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from foretrace import analyze
from foretrace.analyze import (
    CONFIDENCE,
    AttentionProfile,
    Cause,
    Change,
    Comparison,
    CriticalPath,
    Effect,
    Hang,
    MemoryUse,
    OperatorTable,
    Roofline,
    Sensitivity,
    WhatHelps,
    step_name,
)
from foretrace.api.edited import Edited
from foretrace.api.job import Job
from foretrace.api.verbs import simulate
from foretrace.estimate import Estimate
from foretrace.graph import Timeline
from foretrace.machine import Chip
from foretrace.trace import load_snapshot
from foretrace.whatif import Prediction

__all__ = [
    "attention",
    "compare",
    "critical_path",
    "diagnose",
    "effect",
    "hang",
    "memory",
    "operators",
    "roofline",
    "sensitivity",
    "what_helps",
]

Subject: TypeAlias = Job | Timeline | Estimate | Edited | Prediction
Changes: TypeAlias = Change | str | Sequence[Change | str]


def critical_path(
    subject: Subject, *, step: str | int | None = None, rank: int | None = None
) -> CriticalPath:
    """The chain of work and waiting whose times sum to the step exactly.

    Args:
        subject: of a job, its replay.
        step: by name or number; the one whose length is nearest the median, if left out.
        rank: of this rank's own step; of the whole job's, if left out.

    Raises:
        GraphError: if there is no such step, or the rank has none.
    """
    return analyze.critical_path(replayed_of(subject), step=step_name(step), rank=rank)


def sensitivity(
    subject: Subject, *, step: str | int | None = None, rank: int | None = None, top: int = 20
) -> Sensitivity:
    """By how much the step changes with each thing it is made of.

    Args:
        subject: of a job, its replay.
        step: by name or number; the mean over the run's steps, if left out.
        rank: of this rank's own step; of the whole job's, if left out.
        top: levers of each kind, steepest first.

    Raises:
        GraphError: if there is no such step, or the rank has none.
    """
    return analyze.sensitivity(replayed_of(subject), step=step_name(step), rank=rank, top=top)


def what_helps(
    subject: Subject | Sensitivity, *, step: str | int | None = None, top: int = 10
) -> WhatHelps:
    """The changes that would shorten the step most, best first.

    Args:
        subject: of a job, its replay; or what `sensitivity` returned, whose step counts then.
        step: by name or number; the mean over the run's steps, if left out.
        top: how many.
    """
    if not isinstance(subject, Sensitivity):
        subject = sensitivity(subject, step=step)
    return analyze.what_helps(subject, top=top)


def effect(
    subject: Subject,
    changes: Changes,
    *,
    step: str | int | None = None,
    rank: int | None = None,
) -> Effect:
    """How long the step takes with changes made, all of them together.

    Args:
        subject: of a job, its replay.
        changes: such as "class=gemm:0.8", or several.
        step: by name or number; the mean over the run's steps, if left out.
        rank: of this rank's own step; of the whole job's, if left out.

    Raises:
        ScenarioError: if a change cannot be read or names nothing in the job.
        GraphError: if there is no such step, or the rank has none.
    """
    return analyze.effect(replayed_of(subject), changes, step=step_name(step), rank=rank)


def diagnose(subject: Subject) -> tuple[Cause, ...]:
    """What is wrong, most harmful first: hangs, stragglers, idle time.

    Args:
        subject: a job, or a timeline, which cannot tell a hang.
    """
    return analyze.diagnosis(
        subject.recording if isinstance(subject, Job) else measured_of(subject)
    )


def hang(job: Job) -> Hang | None:
    """Where and for whom ranks wait for good; None if nothing in the recording says so."""
    return analyze.hang(job.recording)


def operators(subject: Subject, *, step: str | int | None = None) -> OperatorTable:
    """What a step's device time is made of, by class, family and operator.

    Args:
        subject: of a job, what was measured.
        step: by name or number; the one whose length is nearest the median, if left out.

    Raises:
        GraphError: if there is no such step.
    """
    return analyze.operators(measured_of(subject), step=step_name(step))


def roofline(subject: Job | Estimate | Edited, table: OperatorTable | None = None) -> Roofline:
    """How near each operator comes to the peak of the chip that the job ran on.

    Args:
        table: what `operators` returned; that of the job, or estimate, if left out.
    """
    if isinstance(subject, Estimate):
        chip: Chip | None = subject.machine.chip
    else:
        chip = _chip_of(subject)
    return analyze.roofline(operators(subject) if table is None else table, chip=chip)


def _chip_of(subject: Job | Edited) -> Chip | None:
    if isinstance(subject, Job):
        return analyze.chip_of(name for meta in subject.metas for name in meta.device_names)
    machine = subject.prediction.after.machine
    if machine is not None:
        return machine.chip
    return None if subject.job is None else _chip_of(subject.job)


def attention(subject: Subject, *, step: str | int | None = None) -> AttentionProfile:
    """Sequence lengths, sizes and time of every call of attention.

    Args:
        subject: of a job, what was measured.
        step: by name or number; the one whose length is nearest the median, if left out.

    Raises:
        GraphError: if there is no such step.
    """
    return analyze.attention_profile(measured_of(subject), step=step_name(step))


def memory(subject: Job | str | Path, *, step: str | int | None = None) -> MemoryUse:
    """Memory in use over a step: its peak, and what holds it then.

    Args:
        subject: a job whose traces hold memory events, or a file that
            `torch.cuda.memory._dump_snapshot` wrote.
        step: of a job, by name or number; the one whose length is nearest the median, if left
            out.

    Raises:
        TraceError: if the file is no snapshot.
        GraphError: if there is no such step.
    """
    if isinstance(subject, Job):
        return analyze.memory(subject.recording, step=step_name(step))
    if step is not None:
        raise ValueError("a snapshot has no steps: leave `step` out")
    return analyze.snapshot_memory(load_snapshot(Path(subject)))


def compare(
    before: Subject,
    after: Subject,
    *,
    step: str | int | None = None,
    confidence: float = CONFIDENCE,
) -> Comparison:
    """What got slower or faster from one run to the other, and why.

    Args:
        before: of a job, what was measured.
        after: the same; of another run, another scenario, or `simulate(job)`.
        step: compare this step of both only. If left out, the middle half of all steps; all of a
            job's, beside its own replay.
        confidence: with which the difference must exceed the spread between steps, 0 to 1.

    Raises:
        GraphError: if a side has no such step.
    """
    return analyze.compare(
        measured_of(before), measured_of(after), step=step_name(step), confidence=confidence
    )


def measured_of(subject: Subject) -> Timeline:
    """A timeline as it is, what was measured of a job, or what was simulated of anything else."""
    if isinstance(subject, Estimate | Edited | Prediction):
        return subject.timeline
    return subject.measured if isinstance(subject, Job) else subject


def replayed_of(subject: Subject) -> Timeline:
    """A timeline as it is, a job's replay, or what was simulated of anything else."""
    if isinstance(subject, Estimate | Edited | Prediction):
        return subject.timeline
    return simulate(subject) if isinstance(subject, Job) else subject

"""The verbs about a run that are more than one question of a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace import analyze
from foretrace.analyze import CONFIDENCE, Sensitivity
from foretrace.analyze.questions import operators, sensitivity
from foretrace.api.edited import Edited, basis_of
from foretrace.api.job import Job
from foretrace.graph import Run, measured_of
from foretrace.machine import load_chip
from foretrace.trace import load_snapshot
from foretrace.whatif import throughput as throughput_of

if TYPE_CHECKING:  # what is not asked for need not be loaded
    from foretrace.analyze import (
        Comparison,
        Diagnosis,
        InterpreterLock,
        MemoryUse,
        OperatorTable,
        Roofline,
        Trend,
        WhatHelps,
    )
    from foretrace.estimate import Estimate
    from foretrace.machine import Chip
    from foretrace.whatif import Throughput


def what_helps(
    subject: Run | Sensitivity, *, step: str | int | None = None, top: int = 10
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


def diagnose(subject: Run) -> Diagnosis:
    """What is wrong, most harmful first: hangs, stalls, stragglers, slow work, idle time.

    Args:
        subject: a job, or a timeline, which cannot tell a hang.
    """
    return analyze.diagnosis(
        subject.recording if isinstance(subject, Job) else measured_of(subject)
    )


def interpreter_lock(
    subject: Run,
    *,
    step: str | int | None = None,
    rank: int | None = None,
    num_cores: int = 8,
    workers: Sequence[int] = (1, 2, 4, 8, 16),
) -> InterpreterLock:
    """How much of a step Python holds its lock, and what threads, processes and others make of it.

    Args:
        subject: a job, or a timeline; a step of it is one request.
        step: by name or number; the typical one, if left out.
        rank: which; the first, if left out.
        num_cores: of the host.
        workers: numbers of threads, or processes, to tell of.

    Raises:
        GraphError: if there is no such step, or no host in it.
    """
    return analyze.interpreter_lock(
        measured_of(subject), step=step, rank=rank, num_cores=num_cores, workers=workers
    )


def roofline(subject: Job | Estimate | Edited, table: OperatorTable | None = None) -> Roofline:
    """How near each operator comes to the peak of the chip that the job ran on.

    Args:
        table: what `operators` returned; that of the job, or estimate, if left out.
    """
    chip = _chip_of(subject) if isinstance(subject, Job | Edited) else subject.machine.chip
    return analyze.roofline(operators(subject) if table is None else table, chip=chip)


def _chip_of(subject: Job | Edited) -> Chip | None:
    if isinstance(subject, Job):
        return analyze.chip_of(name for meta in subject.metas for name in meta.device_names)
    machine = subject.prediction.after.machine
    if machine is not None:
        return machine.chip
    return None if subject.job is None else _chip_of(subject.job)


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
        return analyze.memory(subject.recording, step=step)
    if step is not None:
        raise ValueError("a snapshot has no steps: leave `step` out")
    return analyze.snapshot_memory(load_snapshot(Path(subject)))


def compare(
    before: Run,
    after: Run,
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
        measured_of(before), measured_of(after), step=step, confidence=confidence
    )


def throughput(
    subject: Job | Edited,
    *,
    step: str | int | None = None,
    chip: str = "",
    global_batch: int | None = None,
    sequence: int | None = None,
    folders: Sequence[Path] = (),
) -> Throughput:
    """What a recorded step gets done: tokens and samples per second, MFU, how busy devices are.

    Args:
        subject: a job; or one of which something is stated, without edits: `job.edit(plan=...)`.
        step: by name or number; the mean of the run's steps, if left out.
        chip: what the job ran on, by name or file; what its files name, if left out.
        global_batch: samples of a step over all ranks, where shapes do not tell.
        sequence: tokens of a sample, likewise.
        folders: of files that the chip is looked up in, before the presets.

    Raises:
        ScenarioError: if it is an estimate, has edits, or its steps take no time.
        MachineError: if there is no such chip.
        GraphError: if there is no such step.
    """
    basis = basis_of(subject, "throughput is told of")
    job = subject.job if isinstance(subject, Edited) else subject
    # files of hosts name the chips that stand there, whether these did the work or not
    named = None if job is None or not job.graph.is_device.any() else _chip_of(job)
    known = named if basis.machine is None else basis.machine.chip
    return throughput_of(
        basis.baseline,
        chip=load_chip(chip, folders) if chip else known,
        step=step,
        global_batch=global_batch,
        sequence=sequence,
    )


def trend(
    runs: Mapping[str, Run] | Iterable[tuple[str, Run]], *, confidence: float = CONFIDENCE
) -> Trend:
    """The step time over many runs in their order, each held against the one before.

    Args:
        runs: each by its name; pairs may be made one by one, so that two are held at once.
        confidence: with which a difference must exceed the spread between steps, 0 to 1.

    Raises:
        GraphError: if there are fewer than two runs.
    """
    pairs = runs.items() if isinstance(runs, Mapping) else runs
    return analyze.trend(((name, measured_of(run)) for name, run in pairs), confidence=confidence)

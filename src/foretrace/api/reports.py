"""The report: every answer about a job on one HTML page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from foretrace import __version__
from foretrace.analyze import (
    CriticalPath,
    HostFrames,
    IdleCauses,
    OperatorTable,
    Sensitivity,
    bound,
    breakdown,
    busy_fraction,
    chip_of,
    class_labels,
    collective_times,
    critical_path,
    diagnosis,
    hang,
    host_frames,
    idle,
    memory,
    questions,
    roofline,
    step_name,
    step_time_ns,
    steps,
    what_helps,
    windows,
)
from foretrace.answer import Question
from foretrace.api.analyses import throughput
from foretrace.api.edited import Edited, remedies
from foretrace.api.estimates import write_estimate_report
from foretrace.api.folders import cache_folder_of
from foretrace.api.job import Job
from foretrace.api.optimizers import optimizer_seen
from foretrace.api.predictions import write_whatif_report
from foretrace.api.verbs import Without, ablations, replay, simulate
from foretrace.base import ModelError, TraceError
from foretrace.estimate import Estimate
from foretrace.graph import (
    MEASURED,
    RECORDING,
    REPLAYED,
    SIMULATED,
    BlocksWithEvidence,
    Timeline,
    blocks_of,
)
from foretrace.report import Answers, OptimizerSeen, ReportPage, write_page
from foretrace.trace import load_traces
from foretrace.validate import ReplayReport
from foretrace.whatif import Prediction

Found = TypeVar("Found")
# Some 3 bytes each in a page.
MAX_FRAMES = 120_000


def report(
    job: Job | Estimate | Edited | Prediction,
    path: str | Path,
    *,
    title: str = "",
    step: str | int | None = None,
    without: Without = (),
) -> None:
    """Replay the job and write everything that is known of it as one self-contained HTML page.

    Args:
        job: or an estimate, or a job under edits, which have nothing to leave out.
        path: where to; the page opens offline, in any browser.
        title: of the page; the traces' folder, if left out.
        step: which step's critical path, idle time and sensitivity are shown, by name or
            number; without one, the step whose length is nearest the median.
        without: classes of dependency to leave out of the replay.

    Raises:
        ModelError: if there is nothing to compare a replay with, or no such step.
        ValueError: if a step, or something to leave out, is named for an estimate or a prediction.
    """
    if isinstance(job, Edited | Prediction):
        if step is not None or without:
            raise ValueError("a prediction is of all steps, whole: leave out step and without")
        found = job.prediction if isinstance(job, Edited) else job
        own = job.title if isinstance(job, Edited) else ""
        write_whatif_report(path, found, title=title or own)
        return
    if isinstance(job, Estimate):
        if step is not None or without:
            raise ValueError("an estimate has one step and no replay: leave out step and without")
        write_estimate_report(path, job, title=title)
        return
    write_report(
        path,
        job,
        simulate(job, without=without),
        replay=replay(job, without=without),
        title=title,
        step=step,
        without=without,
    )


def write_report(
    path: str | Path,
    job: Job,
    replayed: Timeline,
    *,
    replay: ReplayReport,
    title: str = "",
    step: str | int | None = None,
    without: Without = (),
) -> None:
    """As `report`, of a replay that is at hand.

    Args:
        replayed: what `simulate(job)` returned.
        replay: what `replay(job)` returned.
        without: the classes of dependency that `replayed` and `replay` leave out.

    Raises:
        GraphError: if there is no such step.
    """
    chosen = step_name(step, job.steps)
    if chosen is not None:
        windows(job.measured).row_of(chosen)
    page = _page(job, replayed, replay, step=chosen)
    left_out = tuple(ablation.value for ablation in ablations(without))
    write_page(Path(path), dataclasses.replace(page, title=title or job.title, left_out=left_out))


def _page(job: Job, replayed: Timeline, replay: ReplayReport, *, step: str | None) -> ReportPage:
    """What the page shows of a job, under the job's own title."""
    timeline_by_title = {"measured": job.measured, "replayed": replayed}
    seen = optimizer_seen(job)
    answers = dataclasses.replace(_answers(job, replayed, step), optimizer=seen)
    lost = answers.idle_by_title.get("measured")
    is_on_device = bool(job.graph.is_device.any())
    return ReportPage(
        title=job.title,
        version=__version__,
        replay=replay,
        metas=job.metas,
        timeline_by_title=timeline_by_title,
        collectives_by_title={
            name: collective_times(timeline) for name, timeline in timeline_by_title.items()
        },
        steps_by_title={name: steps(timeline) for name, timeline in timeline_by_title.items()},
        busy_by_title={
            name: busy_fraction(timeline) for name, timeline in timeline_by_title.items()
        },
        labels=class_labels(job.graph),
        answers=answers,
        step_ns=step_time_ns(job.measured),
        frames=_with_optimizer(_frames(job), seen),
        bound=bound(breakdown(job.measured), lost, is_on_device=is_on_device) if lost else None,
    )


def _with_optimizer(frames: HostFrames | None, seen: OptimizerSeen | None) -> HostFrames | None:
    """Frames with what an optimizer's monitor saw."""
    if frames is None or seen is None:
        return frames
    for span in seen.spans:
        kind = "alarm" if span.is_alarm else "optimizer"
        frames = frames.with_span(span.text, kind, span.where)
    return frames


def _frames(job: Job) -> HostFrames | None:
    """What host threads were inside of, from the files again; `None` where they do not say it.

    A graph keeps of a host thread what others wait for.
    """
    recording, paths = job.recording, [meta.path for meta in job.metas]
    if not recording.began_ns:
        return None
    was_kept = all(meta.content_key for meta in job.metas)
    try:
        mark = job.metas[0].step_mark
        traces = load_traces(paths, step_mark=mark, cache_folder=cache_folder_of(was_kept))
    except TraceError:  # files that are there no more, as of standard input
        return None
    by_rank = dict(zip(job.ranks, traces, strict=True))
    return host_frames(recording, by_rank, max_frames=MAX_FRAMES)


def _answers(job: Job, replayed: Timeline, step: str | None) -> Answers:
    """What the analyses say; why one of them has no answer stands among the refusals."""
    refusals: list[str] = []

    def asked(question: Callable[[], Found]) -> Found | None:
        try:
            return question()
        except ModelError as error:
            refusals.append(str(error))
            return None

    recording = job.recording
    measured = recording.measured
    subjects = {
        **dict.fromkeys((REPLAYED.name, SIMULATED.name), replayed),
        MEASURED.name: measured,
        RECORDING.name: recording,
    }
    by_question = {
        name: asked(partial(one, subjects[one.of.name], **_options(one, step)))
        for name in dir(questions)
        if (one := getattr(questions, name)).place is not None
    }
    found = {name: answer for name, answer in by_question.items() if answer is not None}
    sides = {
        "measured": (asked(partial(critical_path, measured, step=step)), found.get("idle")),
        "replayed": (found.get("critical_path"), asked(partial(idle, replayed, step=step))),
    }
    devices = [name for meta in job.metas for name in meta.device_names]
    stated = job.edit()
    table, levers = found.get("operators"), found.get("sensitivity")
    return Answers(
        path_by_title={
            title: path for title, (path, _) in sides.items() if isinstance(path, CriticalPath)
        },
        idle_by_title={
            title: one for title, (_, one) in sides.items() if isinstance(one, IdleCauses)
        },
        by_question=found,
        helps=what_helps(levers) if isinstance(levers, Sensitivity) else None,
        hang=asked(lambda: hang(recording)),
        lost=asked(lambda: diagnosis(recording)),
        remedies=asked(lambda: remedies(stated)),
        throughput=asked(lambda: throughput(stated)),
        roofline=roofline(table, chip=chip_of(devices))
        if isinstance(table, OperatorTable)
        else None,
        memory=asked(lambda: memory(recording, step=step)),
        blocks=BlocksWithEvidence(blocks_of(recording.graph), recording.block_evidence),
        refusals=tuple(dict.fromkeys(refusals)),
    )


def _options(question: Question[Any, Any, ..., Any], step: str | None) -> dict[str, str | None]:
    """The step, for questions that take one."""
    return {"step": step} if any(one.name == "step" for one in question.options) else {}

"""The report: every answer about a job on one HTML page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from foretrace import __version__
from foretrace.analyze import (
    attention_profile,
    busy_fraction,
    chip_of,
    class_labels,
    collective_times,
    critical_path,
    diagnosis,
    hang,
    idle,
    memory,
    operators,
    roofline,
    sensitivity,
    step_name,
    steps,
    stragglers,
    what_helps,
    windows,
)
from foretrace.api.edited import Edited
from foretrace.api.estimates import write_estimate_report
from foretrace.api.job import Job
from foretrace.api.predictions import write_whatif_report
from foretrace.api.verbs import Without, ablations, replay, simulate
from foretrace.base import ModelError
from foretrace.estimate import Estimate
from foretrace.graph import Timeline, blocks_of
from foretrace.report import Answers, ReportPage, write_page
from foretrace.validate import ReplayReport
from foretrace.whatif import Prediction

Answer = TypeVar("Answer")


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
    chosen = step_name(step)
    if chosen is not None:
        windows(job.measured).row_of(chosen)
    page = _page(job, replayed, replay, step=chosen)
    left_out = tuple(ablation.value for ablation in ablations(without))
    write_page(Path(path), dataclasses.replace(page, title=title or job.title, left_out=left_out))


def _page(job: Job, replayed: Timeline, replay: ReplayReport, *, step: str | None) -> ReportPage:
    """What the page shows of a job, under the job's own title."""
    timeline_by_title = {"measured": job.measured, "replayed": replayed}
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
        answers=_answers(job, replayed, step),
    )


def _answers(job: Job, replayed: Timeline, step: str | None) -> Answers:
    """What the analyses say; why one of them has no answer stands among the refusals."""
    refusals: list[str] = []

    def asked(question: Callable[[], Answer]) -> Answer | None:
        try:
            return question()
        except ModelError as error:
            refusals.append(str(error))
            return None

    recording = job.recording
    timeline_by_title = {"measured": recording.measured, "replayed": replayed}
    levers = asked(lambda: sensitivity(replayed, step=step))
    paths = asked(
        lambda: {title: critical_path(one, step=step) for title, one in timeline_by_title.items()}
    )
    still = asked(lambda: {title: idle(one, step=step) for title, one in timeline_by_title.items()})
    devices = [name for meta in job.metas for name in meta.device_names]
    table = asked(lambda: operators(recording.measured, step=step))
    return Answers(
        path_by_title=paths or {},
        helps=None if levers is None else what_helps(levers),
        sensitivity=levers,
        hang=asked(lambda: hang(recording)),
        lost=asked(lambda: diagnosis(recording)) or (),
        idle_by_title=still or {},
        stragglers=asked(lambda: stragglers(recording.measured)),
        operators=table,
        roofline=None if table is None else roofline(table, chip=chip_of(devices)),
        attention=asked(lambda: attention_profile(recording.measured, step=step)),
        memory=asked(lambda: memory(recording, step=step)),
        blocks=blocks_of(recording.graph),
        block_evidence=recording.block_evidence,
        refusals=tuple(dict.fromkeys(refusals)),
    )

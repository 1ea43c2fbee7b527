"""What an optimizer's monitor saw while a job was recorded, on the job's timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from foretrace.analyze import steps
from foretrace.answer import Stretch, count_text
from foretrace.api.job import Job
from foretrace.numerics import Alarm, Observation, logs_beside, watched
from foretrace.report import OptimizerSeen, OptimizerSpan


def optimizer_seen(job: Job) -> OptimizerSeen | None:
    """What logs beside the job's files say; `None` where there are none.

    Raises:
        TraceError: if a log cannot be read.
    """
    logs = {
        job.ranks[0] if rank is None else rank: log
        for rank, log in logs_beside(meta.path for meta in job.metas).items()
    }
    if not logs:
        return None
    runs = {rank: watched(log) for rank, log in sorted(logs.items())}
    rank = max(runs, key=lambda one: len(runs[one].alarms))  # the lowest of those with most
    stretches = {one: _stretches(job, one, log) for one, log in logs.items()}
    note = f"Of {count_text(len(runs), 'log')}, that of rank {rank}, which has the most alarms."
    return OptimizerSeen(
        run=runs[rank],
        stretches=tuple(stretches[rank].get(alarm.step) for alarm in runs[rank].alarms),
        spans=tuple(
            span for one in runs for span in _spans(logs[one], runs[one].alarms, stretches[one])
        ),
        note=note if len(runs) > 1 else "",
    )


def _stretches(job: Job, rank: int, log: Sequence[Observation]) -> Mapping[int, Stretch]:
    """By the optimizer's step, the recorded step that it was seen in, up to then."""
    recording = job.recording
    if rank not in recording.began_ns:
        return {}
    table = steps(recording.measured)
    rows = np.flatnonzero(table.rank == rank)
    moments = recording.on_timeline(rank, np.array([one.time_ns for one in log], np.int64))
    return {
        seen.step: Stretch(rank, int(table.mark_ns[row]), moment)
        for seen, moment in zip(log, moments.tolist(), strict=True)
        for row in rows[(table.mark_ns[rows] < moment) & (moment <= table.end_ns[rows])].tolist()
    }


def _spans(
    log: Sequence[Observation], alarms: Sequence[Alarm], stretches: Mapping[int, Stretch]
) -> Iterator[OptimizerSpan]:
    """Observations that are recorded, as they are drawn."""
    for seen in log:
        where = stretches.get(seen.step)
        if where is None:
            continue
        raised = [f"{one.layer}: {one.says}" for one in alarms if one.step == seen.step]
        known = (layer.get("ratio_std") for layer in seen.layers.values())
        largest = max((one for one in known if one is not None), default=0.0)
        quiet = f"step {seen.step}: update ratios deviate by {largest:.3g} at most"
        yield OptimizerSpan("; ".join(raised) or quiet, where, is_alarm=bool(raised))

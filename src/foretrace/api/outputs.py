"""What a job and its replay leave behind as files."""

from __future__ import annotations

from pathlib import Path

from foretrace import __version__, exchange
from foretrace.analyze import busy_fraction, collective_times, steps
from foretrace.api.job import Job
from foretrace.api.verbs import Without, ablations
from foretrace.graph import Timeline
from foretrace.report import ReplayPage, write_page
from foretrace.validate import ReplayReport


def write_trace(path: str | Path, job: Job, replayed: Timeline) -> None:
    """Write measured and replayed side by side as a file that opens in Perfetto.

    Args:
        path: where to; compressed if the name ends in `.gz`.
        replayed: what `simulate(job)` returned.
    """
    exchange.write_trace(Path(path), {"measured": job.measured, "replayed": replayed})


def write_report(
    path: str | Path,
    job: Job,
    replayed: Timeline,
    *,
    replay: ReplayReport,
    title: str = "",
    without: Without = (),
) -> None:
    """Write the replay as one self-contained HTML page.

    Args:
        replayed: what `simulate(job)` returned.
        replay: what `replay(job)` returned.
        title: of the page; the traces' folder, if left out.
        without: the classes of dependency that `replayed` and `replay` leave out.
    """
    timeline_by_title = {"measured": job.measured, "replayed": replayed}
    page = ReplayPage(
        title=title or job.title,
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
        left_out=tuple(ablation.value for ablation in ablations(without)),
    )
    write_page(Path(path), page)

"""What a job and its replay leave behind as files."""

from __future__ import annotations

from pathlib import Path

from foretrace import exchange
from foretrace.api.job import Job
from foretrace.api.tracks import found_tracks
from foretrace.graph import Timeline


def write_trace(path: str | Path, job: Job, replayed: Timeline) -> None:
    """Write measured and replayed side by side as a file that opens in Perfetto.

    Each comes with its critical path, the causes of its ranks' idle time, and counters.

    Args:
        path: where to. Perfetto's own format if the name ends in `.pftrace`, else JSON, several
            times larger; compressed if `.gz` follows.
        replayed: what `simulate(job)` returned.
    """
    timelines = {"measured": job.measured, "replayed": replayed}
    exchange.write_trace(
        Path(path),
        timelines,
        tracks_by_title={
            title: found_tracks(timeline, job.recording) for title, timeline in timelines.items()
        },
    )

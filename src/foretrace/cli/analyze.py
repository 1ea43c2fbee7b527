"""`foretrace analyze`: one screen with the answers that matter first."""

from __future__ import annotations

from foretrace import api
from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.source import Reading


def analyze(
    paths: options.Paths, *, step: options.Step = None, outputs: Outputs, reading: Reading
) -> None:
    """Show on one screen what a step is and what would help most."""
    with activity() as doing:
        job = reading.job(paths, doing)
        doing.now("asking every question")
        found = api.overview(job, step=step)
    outputs.tell(found, lacks=job.lacks)

"""`foretrace throughput`: tokens and samples per second, MFU, and how busy devices are."""

from __future__ import annotations

from typing import Annotated

from foretrace import api
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs, title_text
from foretrace.cli.progress import activity
from foretrace.cli.settings import machine_folders
from foretrace.cli.source import Reading


def throughput(
    paths: options.Paths,
    *,
    chip: Annotated[
        str | None, option("NAME", "What it ran on. Default: what the files name.")
    ] = None,
    global_batch: Annotated[
        int | None, option("N", "Samples of a step. Default: as shapes show.", min=1)
    ] = None,
    sequence: Annotated[
        int | None, option("N", "Tokens of a sample. Default: as shapes show.", min=1)
    ] = None,
    step: options.Step = None,
    top: options.Top = 48,
    outputs: Outputs,
    reading: Reading,
) -> None:
    """Say what a step gets done: tokens/s, samples/s, MFU, busy share."""
    with activity() as doing:
        job = reading.job(paths, doing)
        doing.now("counting what a step gets done")
        found = api.throughput(
            job,
            step=step,
            chip=chip or "",
            global_batch=global_batch,
            sequence=sequence,
            folders=machine_folders(),
        )
    outputs.tell(found, title=title_text(job, is_replayed=False), top=top, lacks=job.lacks)

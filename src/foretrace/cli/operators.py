"""`foretrace operators`: what device time is made of, and how near it comes to the chip's peak."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from foretrace import api
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs, title_text
from foretrace.cli.progress import activity
from foretrace.cli.source import Reading, timeline_of


class By(StrEnum):
    """What rows are added up by."""

    CLASS = "class"
    FAMILY = "family"
    OPERATOR = "operator"


def operators(
    paths: options.Paths,
    *,
    by: Annotated[
        By, typer.Option(help="Add device time up by operator class, kernel family or operator.")
    ] = By.CLASS,
    attention: Annotated[
        bool, typer.Option("--attention", help="Show sequence lengths of attention instead.")
    ] = False,
    of: Annotated[
        str | None, option("WORK", "Look at this work only, as in 'gemm layers:0-3'.")
    ] = None,
    step: options.Step = None,
    replayed: options.Replayed = False,
    top: options.Top = 16,
    outputs: Outputs,
    reading: Reading,
) -> None:
    """Say what device time is made of, and how near its peak."""
    with activity() as doing:
        job = reading.job(paths, doing)
        timeline = timeline_of(job, doing, is_replayed=replayed)
        doing.now("counting operators")
        if attention:
            profile = api.attention(timeline, step=step)
        else:
            found = api.operators(timeline, step=step, of=of)
            points = api.roofline(job, found)
    title = title_text(job, is_replayed=replayed)
    if attention:
        outputs.tell(profile, title=title, top=top, lacks=job.lacks)
        return
    shown = (found.summed(by.value), *points.parts())
    outputs.tell(found, title=title, top=top, parts=shown, lacks=job.lacks)

"""`foretrace replay`: a run replayed and held against what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.base import NetworkUse, written_together
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs, title_text
from foretrace.cli.progress import activity
from foretrace.cli.settings import machine_folders
from foretrace.cli.source import Reading
from foretrace.machine import load_machine
from foretrace.validate import Trust

DOUBTED = 3  # the exit code of --strict


def replay(
    paths: options.Paths,
    *,
    outputs: Outputs,
    trace: Annotated[
        Path | None,
        option(
            "OUT", "Write measured and replayed side by side; opens in Perfetto.", dir_okay=False
        ),
    ] = None,
    report: options.Page = None,
    without: options.Without = None,
    step: Annotated[
        list[str] | None,
        option("NAME", "Report on this step only, by name or number; may be given again."),
    ] = None,
    machine: Annotated[
        str | None, option("NAME", "What the job ran on, or its file, for its links.")
    ] = None,
    network: options.Network = NetworkUse.PRIVATE,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with exit code 3 if the replay is not believed.")
    ] = False,
    reading: Reading,
) -> None:
    """Rebuild every rank's step from its dependencies and compare with the measurement."""
    left_out = tuple(without or ())
    if machine is not None and network is NetworkUse.PRIVATE:
        raise typer.BadParameter("--machine says which links are shared: add --network shared")
    with activity() as doing:
        job = reading.job(paths, doing)
        doing.now("replaying, with null models beside")
        replayed = api.simulate(job, without=left_out)
        on = None if machine is None else load_machine(machine, machine_folders())
        found = api.replay(job, without=left_out, steps=step, machine=on, network=network)
        with written_together():
            if trace is not None:
                doing.now(f"writing {trace}")
                api.write_trace(trace, job, replayed)
            if report is not None:
                doing.now(f"writing {report}")
                api.write_report(report, job, replayed, replay=found, without=left_out)
    title = title_text(job, is_replayed=True)
    if left_out:
        title += f" without: {', '.join(one.value for one in left_out)}"
    outputs.tell(found, title=title, top=32, lacks=job.lacks, wrote=(trace, report))
    if strict and found.verdict.trust is Trust.DOUBTED:
        raise typer.Exit(DOUBTED)

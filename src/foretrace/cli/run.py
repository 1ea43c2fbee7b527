"""`foretrace run`: a training script, unmodified, as a few ranks of a world that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.base import WorkloadError
from foretrace.capture import DEVICES
from foretrace.cli import options
from foretrace.cli import plan_options as plans
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.settings import machine_folders, software_folders
from foretrace.machine import load_machine
from foretrace.software import software_called

_AUTO = "auto"


def run(
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- SCRIPT [ARGUMENT]...", help="A training script and its own."),
    ],
    *,
    world: Annotated[int, option("N", "Ranks of the job.", min=1)],
    out: Annotated[Path, option("DIR", "Folder for its traces.", *options.OUT, file_okay=False)],
    device: Annotated[
        str, option("DEVICE", f"Where each rank runs: {', '.join(DEVICES)}.")
    ] = DEVICES[0],
    machine: Annotated[
        str | None,
        option("NAME", "How long work takes: a machine, a host, or a TOML file."),
    ] = None,
    costs: options.Costs = None,
    software: plans.SoftwareName = None,
    roles: Annotated[
        str, option("auto|RANK[,RANK...]", "Ranks to run; auto: one of every role.")
    ] = _AUTO,
    steps: Annotated[int, option("N", "Steps to keep.", min=1)] = 2,
    warmup: Annotated[int, option("N", "Steps before them.", min=0)] = 1,
    outputs: Outputs,
) -> None:
    """Run a training script as a few ranks of a large job, and write the job's traces."""
    with activity() as doing:
        found = api.run(
            command[0],
            command[1:],
            world=world,
            out=out,
            device=device,
            machine=None if machine is None else load_machine(machine, machine_folders(costs)),
            software=None if software is None else software_called(software, software_folders()),
            ranks=_ranks(roles),
            steps=steps,
            warmup=warmup,
            progress=lambda rank: doing.now(f"running {command[0]} as rank {rank:,}"),
        )
    outputs.tell(found, wrote=found.paths)


def _ranks(text: str) -> list[int] | None:
    if text == _AUTO:
        return None
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise WorkloadError(
            f"--roles is {text!r}: write auto, or ranks with commas, as 0,8,16"
        ) from None

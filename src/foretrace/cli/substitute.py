"""`foretrace substitute`: what other kernels would be worth in a job."""

from __future__ import annotations

from typing import Annotated

import typer

from foretrace import api
from foretrace.cli import options
from foretrace.cli import plan_options as plans
from foretrace.cli import whatif_options as own
from foretrace.cli.collector import collector_paused
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.settings import machine_folders
from foretrace.cli.source import Reading
from foretrace.machine import load_machine
from foretrace.whatif import OwnKernel, edits_of


def substitute(
    paths: own.Paths = None,
    *,
    machine: own.Machine = None,
    costs: options.Costs = None,
    model: own.Model = None,
    plan: own.Plan = None,
    config: plans.Configs = None,
    kernel: Annotated[
        list[str] | None,
        option("FILE=WORK", "Index notation, and the kernels that it describes; repeatable."),
    ] = None,
    top: options.Top = 16,
    outputs: Outputs,
    reading: Reading,
) -> None:
    """Rank what other kernels would be worth in a job: fast products and others, where they pay.

    Every rule is tried on every family of kernels, of a recording or of an estimate.
    """
    with activity() as doing, collector_paused():
        on = None if machine is None else load_machine(machine, machine_folders(costs))
        configured = plans.configured(config)
        of = plans.model_of(model, configured)
        if paths:
            base = reading.job(paths, doing).edit(machine=on, model=of)
        elif on is None or of is None or (plan is None and configured is None):
            raise typer.BadParameter(
                "nothing to try rules on: name the files of a recording, or an estimate by "
                "--model, --plan and --machine"
            )
        else:
            base = api.estimate(of, plans.draft_of(plan, {}, configured), on).edit()
        doing.now("trying other kernels")
        stated = edits_of({OwnKernel.KERNEL.name: kernel}, "--kernel") if kernel else ()
        found = api.substitute(base, [one for one in stated if isinstance(one, OwnKernel)])
    lacks = () if base.job is None else base.job.lacks
    outputs.tell(found, title=base.title, top=top, lacks=lacks)

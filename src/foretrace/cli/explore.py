"""`foretrace explore`: a page on this machine that answers as a plan is moved."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

import typer

from foretrace.base import WorkloadError
from foretrace.cli import options
from foretrace.cli import plan_options as plans
from foretrace.cli.options import option
from foretrace.cli.settings import machine_folders, model_folders, software_folders
from foretrace.estimate import ranks_meant
from foretrace.explore import Explorer, ExploreServer
from foretrace.machine import load_machine
from foretrace.software import software_called
from foretrace.workload import PlanMemory, Transformer, completions, load_model


@plans.with_plan(*(name for name in plans.ALL if name != "dp"))
def explore(
    *,
    model: Annotated[str, option("NAME", "A model, a TOML file, or a config.json.")],
    machine: options.Machine,
    costs: options.Costs = None,
    gpus: plans.Gpus = None,
    plan: plans.PlanName = None,
    stated: Mapping[str, object],
    software: plans.SoftwareName = None,
    port: Annotated[
        int, option("N", "To listen at. Default: any that is free.", min=0, max=65535)
    ] = 0,
) -> None:
    """Serve a page with sliders for a plan: step, memory and stages as they move.

    It listens on this machine alone, at an address with a token; Ctrl-C ends it.
    """
    found = load_model(model, model_folders())
    if not isinstance(found, Transformer):
        raise WorkloadError(f"{found.name} is no transformer: only their plans can be moved")
    draft = plans.draft_of(plan, stated)
    hardware = load_machine(machine, machine_folders(costs))
    memory = PlanMemory(found, chip=hardware.chip)
    start = completions(
        draft,
        found,
        ranks_meant(draft, hardware, gpus),
        fits=lambda plan: int(memory.stage_bytes(plan).max()) <= hardware.chip.memory_bytes,
        domain=hardware.tiers[0].num_ranks,
    ).plan
    explorer = Explorer(
        model=found,
        machine=hardware,
        start=start,
        software=None if software is None else software_called(software, software_folders()),
    )
    with ExploreServer(explorer).serving(port) as (address, thread), suppress(KeyboardInterrupt):
        typer.echo(address)
        while thread.is_alive():
            thread.join(timeout=0.5)

"""`foretrace plan`: a plan made complete, as a file of its own or in other software's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from foretrace.answer import bytes_text
from foretrace.base import WorkloadError, write_whole
from foretrace.cli import options
from foretrace.cli import plan_options as plans
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.settings import machine_folders
from foretrace.estimate import software_costs
from foretrace.machine import Machine, load_machine, with_hosts
from foretrace.search import chosen_recompute, found_schedule
from foretrace.workload import (
    CONFIG_FORMATS,
    Completions,
    Model,
    Transformer,
    completions,
    write_configuration,
)

Written = StrEnum("Written", {name: name for name in CONFIG_FORMATS})  # type: ignore[misc]


@plans.with_plan(*plans.ALL)
def plan(
    *,
    model: plans.ModelName = None,
    plan: plans.PlanName = None,
    config: plans.Configs = None,
    gpus: plans.Gpus = None,
    stated: Mapping[str, object],
    machine: Annotated[str | None, option("NAME", "What it is to fit, or its file.")] = None,
    costs: options.Costs = None,
    choose_recompute: Annotated[
        bool,
        typer.Option(
            "--choose-recompute",
            help="Choose what each layer computes again, so that it fits --machine in least time.",
        ),
    ] = False,
    find_schedule: Annotated[
        Path | None,
        option(
            "FILE.csv",
            "Find the best order of units that fits --machine, and write it for PyTorch.",
            dir_okay=False,
        ),
    ] = None,
    written: Annotated[
        Written | None,
        typer.Option("--as", help="In whose words. Default: foretrace's own keys, as a table."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            *options.OUT, dir_okay=False, help="Write the text there, and print the rest."
        ),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Complete a plan, and write it as the flags or configuration of other training software."""
    configured = plans.configured(config)
    found_model = plans.model_of(model, configured)
    if found_model is None:
        raise typer.BadParameter("name a --model, or flags that describe one")
    draft = plans.draft_of(plan, stated, configured)
    plans.tell_notes(draft)
    if choose_recompute and machine is None:
        raise typer.BadParameter("--choose-recompute needs --machine, whose memory it is to fit")
    if find_schedule is not None and machine is None:
        raise typer.BadParameter("--find-schedule needs --machine, on which orders are simulated")
    found = completions(draft, found_model, gpus)
    on = None if machine is None else load_machine(machine, machine_folders(costs))
    if choose_recompute and on is not None:
        found = _with_recompute(found, found_model, on)
    if find_schedule is not None and on is not None:
        orders = found_schedule(
            _transformer(found_model), found.plan, with_hosts(on, found.plan.num_ranks)
        )
        write_whole(find_schedule, orders.csv)
        typer.echo(f"wrote {find_schedule}", err=True)
        Outputs(json).tell(orders)
        return
    if written is None:
        Outputs(json).tell(found)
        return
    shape = found_model if isinstance(found_model, Transformer) else None
    made = write_configuration(found.plan, written.value, shape)
    if output is not None:
        write_whole(output, made.text)
        typer.echo(f"wrote {output}", err=True)
    if json or output is not None:
        Outputs(json).tell(made, top=None)
        return
    typer.echo(made.text, nl=False)
    for one in made.lost:
        typer.echo(f"without counterpart: {one}", err=True)


def _with_recompute(found: Completions, model: Model, on: Machine) -> Completions:
    """The first plan alone, with what each layer computes again."""
    model = _transformer(model)
    chosen = chosen_recompute(
        model, found.plan, capacity=on.chip.memory_bytes, costs=software_costs(on), chip=on.chip
    )
    if chosen is None:
        raise WorkloadError(
            f"the plan does not fit {bytes_text(on.chip.memory_bytes)} whatever is computed again: "
            "`foretrace estimate` names the nearest plans that do"
        )
    others = tuple(one for one in found.assumptions if not one.key.startswith("memory."))
    return replace(found, plans=(chosen.plan,), assumptions=others)


def _transformer(model: Model) -> Transformer:
    if not isinstance(model, Transformer):
        raise WorkloadError(
            f"layers of {model.name} are not known one by one: it is no transformer"
        )
    return model

"""`foretrace estimate`: one step of a model under a plan on a machine, with nothing run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.balance import EVEN
from foretrace.base import NetworkUse
from foretrace.cli import options
from foretrace.cli import plan_options as plans
from foretrace.cli.collector import collector_paused
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.settings import machine_folders, software_folders
from foretrace.machine import load_machine
from foretrace.operators import ModuleProgram
from foretrace.software import software_called
from foretrace.workload import Convention, JobConfiguration, Model, PlanDraft

DOES_NOT_FIT = 5  # the exit code of --fail-if-does-not-fit


@plans.with_plan(*plans.ALL)
def estimate(
    *,
    machine: options.Machine,
    costs: options.Costs = None,
    model: plans.ModelName = None,
    module: Annotated[
        str | None,
        option(
            "FILE:FUNCTION",
            "Instead of a model, what makes a PyTorch module.",
            heading=options.MODEL_AND_PLAN,
        ),
    ] = None,
    plan: plans.PlanName = None,
    config: plans.Configs = None,
    software: plans.SoftwareName = None,
    gpus: plans.Gpus = None,
    stated: Mapping[str, object],
    convention: Annotated[
        Convention, typer.Option(help="How the model's FLOPs are counted.")
    ] = Convention.CAUSAL,
    price: options.Price = None,
    documents: Annotated[
        str | None,
        option(
            "FILE|lognormal:MU,SIGMA[,LONGEST]",
            "Documents of a dataset, as in `balance`: steps of them are told too.",
            heading=plans.UNEVEN,
        ),
    ] = None,
    expert_load: Annotated[
        str,
        option(
            "even|power:A|FILE",
            "Tokens of experts: as many each, by a power law, or measured counts (.csv, .npy, "
            ".json: a row for each layer).",
            heading=plans.UNEVEN,
        ),
    ] = EVEN,
    expert_capacity: Annotated[
        float | None,
        option(
            "C",
            "Tokens an expert takes, in mean loads; others are dropped.",
            heading=plans.UNEVEN,
            min=0,
        ),
    ] = None,
    expert_replicas: Annotated[
        int | None,
        option(
            "N",
            "Experts held twice, all dealt to balance. Default: in order.",
            heading=plans.UNEVEN,
            min=0,
        ),
    ] = None,
    tables: Annotated[
        str | None,
        option(
            "PLAN.json",
            "Where a recommender's tables stand: a sharding plan of TorchRec.",
            heading=plans.UNEVEN,
        ),
    ] = None,
    ids: plans.Ids = None,
    network: options.Network = NetworkUse.PRIVATE,
    slow_link: Annotated[
        float | None,
        option("SHARE", "One shared link keeps so much, 0.5: the worst of each level.", min=0),
    ] = None,
    one_more_rail: Annotated[
        bool, typer.Option(help="With shared links: what one more card of every host saves.")
    ] = False,
    unfolded: Annotated[
        bool, typer.Option("--unfolded", help="Simulate every rank, not one of each role.")
    ] = False,
    trace: Annotated[
        Path | None, option("OUT", "Write the simulated step; opens in Perfetto.", dir_okay=False)
    ] = None,
    report: options.Page = None,
    fail_if_does_not_fit: Annotated[
        bool,
        typer.Option(
            "--fail-if-does-not-fit",
            help="Exit with 5 if the plan needs more memory than there is.",
        ),
    ] = False,
    outputs: Outputs,
) -> None:
    """Estimate a training step from a model, a plan and a machine."""
    configured = plans.configured(config)
    draft = plans.draft_of(plan, stated, configured)
    found_model = _model(model, module, draft, configured)
    found_machine = load_machine(machine, machine_folders(costs))
    with activity() as doing, collector_paused():
        doing.now("estimating")
        found = api.estimate(
            found_model,
            draft,
            found_machine,
            num_ranks=gpus,
            software=None if software is None else software_called(software, software_folders()),
            convention=convention,
            price_per_hour=price,
            documents=documents,
            expert_load=expert_load,
            expert_capacity=expert_capacity,
            expert_replicas=expert_replicas,
            tables=tables,
            ids=ids,
            network=network,
            slow_link=slow_link,
            one_more_rail=one_more_rail,
            folded=not unfolded,
            progress=doing.advance,
        )
        if trace is not None:
            doing.now(f"writing {trace}")
            api.write_estimate_trace(trace, found)
        if report is not None:
            doing.now(f"writing {report}")
            api.write_estimate_report(report, found)
    outputs.tell(found, wrote=(trace, report))
    if fail_if_does_not_fit and found.footprint is not None and found.footprint.fits is False:
        raise typer.Exit(DOES_NOT_FIT)


def _model(
    name: str | None, module: str | None, draft: PlanDraft, found: JobConfiguration | None
) -> Model | ModuleProgram:
    """The model of that name, what a module of the user's runs, or what flags describe."""
    if module is not None and name is None:
        return api.captured_for(module, draft)
    model = plans.model_of(name, found)
    if model is None or module is not None:
        raise typer.BadParameter("name a --model, or a --module, and not both")
    return model

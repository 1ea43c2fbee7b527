"""`foretrace search`: the best plan of a space, and how much better one could be that is left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.api import Edited
from foretrace.base import NetworkUse, SweepEngine
from foretrace.cli import options
from foretrace.cli import plan_options as plans
from foretrace.cli import whatif_options as own
from foretrace.cli.collector import collector_paused
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import ProgressLine, activity
from foretrace.cli.settings import machine_folders, model_folders, software_folders
from foretrace.cli.source import Reading
from foretrace.machine import load_machine
from foretrace.risk import DEFAULT_VARIATION, VARIATIONS
from foretrace.search import MORE_VARIABLES, Objective, Progress
from foretrace.software import software_called
from foretrace.whatif import stated_of
from foretrace.workload import Model, load_model


@plans.with_plan(*(name for name in plans.ALL if name != "dp"))
def search(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]...", help="Profiler files of a job whose plan is searched for."
        ),
    ] = None,
    *,
    model: plans.ModelName = None,
    machine: Annotated[str | None, option("NAME", "A machine, a host, or a TOML file.")] = None,
    costs: options.Costs = None,
    gpus: Annotated[str, option("N[,N...]", "GPUs to use, or several numbers of them.")],
    plan: plans.PlanName = None,
    stated: Mapping[str, object],
    objective: Annotated[
        str, option("WHAT[,WHAT...]", f"What is best: {', '.join(Objective)}; the first decides.")
    ] = Objective.STEP.value,
    price: options.Price = None,
    campaign: Annotated[
        str | None, option("NAME", "What fails and how it is mended, as in risk campaign.")
    ] = None,
    tokens: Annotated[
        float | None,
        option("N", "Of the whole training, for objective days, as 15T.", parser=options.amount),
    ] = None,
    variation: Annotated[
        str, option("NAME", f"How times vary, for objective p95: {', '.join(VARIATIONS)}.")
    ] = DEFAULT_VARIATION,
    where: Annotated[
        str | None,
        option(
            "EXPRESSION",
            "What plans have to meet, as in 'tp <= 8 and peak_gb < 70 and days <= 60'.",
        ),
    ] = None,
    margin: Annotated[
        str, option("SHARE", "Of a chip's memory, left free for what is not counted.")
    ] = "0%",
    beside: Annotated[
        str | None, option("NAME", "A plan or its file that the best is held beside.")
    ] = None,
    vary: Annotated[
        str,
        option(
            "WHAT[,WHAT...]",
            f"Search these too: {', '.join(MORE_VARIABLES)}; "
            "placement, schedule, network: several of these.",
        ),
    ] = "",
    alone: Annotated[
        bool, typer.Option(help="Look for the best of each dimension alone too.")
    ] = False,
    network: options.Network = NetworkUse.PRIVATE,
    links: Annotated[
        str | None,
        option(
            "FIGURE=VALUE,...",
            "Buy links: the best under each, as in network.region.oversubscription=1:1,7:1.",
        ),
    ] = None,
    time: Annotated[float, option("SECONDS", "Stop with the best so far.", min=0.1)] = 120.0,
    gap: Annotated[str, option("SHARE", "Stop when no more can be gained.")] = "1%",
    resume: Annotated[
        Path | None, option("FILE", "Keep what is found here, and go on from it.", dir_okay=False)
    ] = None,
    workers: Annotated[int, option("N", "Processes that simulate plans.", min=1)] = 1,
    engine: options.WhichEngine = SweepEngine.PROCESSES,
    software: plans.SoftwareName = None,
    substitute: options.Substitutes = None,
    recorded: own.Recorded = None,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    report: options.Page = None,
    outputs: Outputs,
) -> None:
    """Find the best plan, and say how much better one that was not simulated could be.

    What is stated of the plan stays; degrees, microbatch, schedule, chunks, sharding and recompute
    that are not are searched. Of profiler files the plans are those that `whatif` can predict.
    Ctrl-C gives the best so far.
    """
    draft = plans.draft_of(plan, stated)
    hardware = None if machine is None else load_machine(machine, machine_folders(costs))
    of = None if model is None else load_model(model, model_folders())
    with activity() as doing, collector_paused():
        subject: Model | Edited
        if paths:
            under, sizes = stated_of(recorded or ())
            reading = Reading(ranks=ranks, no_cache=no_cache)
            job = reading.job(paths, doing)
            subject = job.edit(model=of, machine=hardware, plan=under, sizes=sizes)
        elif of is None or hardware is None:
            raise typer.BadParameter(
                "nothing is searched for: name --model and --machine, or the files of a recording"
            )
        else:
            subject = of
        found = api.search(
            subject,
            None if paths else hardware,
            num_ranks=_numbers(gpus),
            plan=draft,
            objective=_objectives(objective),
            price_per_hour=price,
            campaign=campaign,
            num_tokens=tokens,
            variation=variation,
            where=where,
            margin=_share(margin, "--margin"),
            beside=None if beside is None else plans.draft_of(beside, {}),
            vary=tuple(one.strip() for one in vary.split(",") if one.strip()),
            alone=alone,
            network=network,
            links=links,
            time_s=time,
            gap=_share(gap, "--gap"),
            resume=resume,
            workers=workers,
            engine=engine,
            software=None if software is None else software_called(software, software_folders()),
            substitutes=substitute or (),
            progress=_Told(doing),
        )
        if report is not None:
            api.write_search_report(report, found)
    outputs.tell(found, wrote=(report,))


class _Told:
    """Tells progress, with the gap as it falls."""

    def __init__(self, doing: ProgressLine) -> None:
        self._doing = doing
        self._said = ""

    def __call__(self, progress: Progress) -> None:
        said = progress.rung.value
        if progress.gap is not None:
            said += f", gap {100 * progress.gap:.1f} %"
        if said != self._said:
            self._doing.now(said)
            self._said = said
        self._doing.advance(progress.done, progress.total)


def _numbers(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise typer.BadParameter(f"--gpus is {text!r}: write a number, or several as in 64,128")
    return found


def _objectives(text: str) -> list[Objective]:
    known = {one.value for one in Objective}
    found = [part.strip() for part in text.split(",")]
    if not set(found) <= known or len(set(found)) < len(found):
        raise typer.BadParameter(
            f"--objective is {text!r}: write one of {', '.join(Objective)}, or several as in "
            "step,cost"
        )
    return [Objective(one) for one in found]


def _share(text: str, name: str) -> float:
    is_percent = text.endswith("%")
    try:
        found = float(text.removesuffix("%")) / (100 if is_percent else 1)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1:
        raise typer.BadParameter(f"{name} is {text!r}: write a share, as in 1% or 0.01")
    return found

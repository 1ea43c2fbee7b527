"""`foretrace risk steps` and `foretrace risk placement`: how long steps take, with their odds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from foretrace.balance import EVEN, documents_of, expert_load_named
from foretrace.base import SweepEngine
from foretrace.cli import options
from foretrace.cli import plan_options as plans
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import ProgressLine, activity
from foretrace.cli.settings import machine_folders
from foretrace.cli.source import Reading
from foretrace.estimate import ranks_meant
from foretrace.machine import Machine, load_machine, with_hosts
from foretrace.report import distribution_plot, scale_plot, write_answer_page
from foretrace.risk import (
    DEFAULT_VARIATION,
    VARIATIONS,
    FittedModels,
    SampledCell,
    Sampling,
    StepDistribution,
    Variation,
    cell_of,
    changed_variation,
    estimated_placement,
    estimated_steps,
    fit_models,
    recorded_placement,
    recorded_steps,
    variation_named,
)
from foretrace.workload import Model, Plan, complete

Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH]...", help="Profiler files of a run, or none and --model, --machine."
    ),
]
VariationName = Annotated[
    str, option("NAME", f"How a plan's times vary: {', '.join(VARIATIONS)}.", "--variation")
]
Vary = Annotated[
    list[str] | None,
    option(
        "WHAT=SHARE",
        "How much gpu, kernel, collective or step vary, as in gpu=0.02 or "
        "collective=lognormal:0.1; may be given again.",
    ),
]
Samples = Annotated[int, option("N", "Steps to sample.", min=1, max=100_000)]
_with_plan = plans.with_plan("tp", "pp", "dp", "global_batch")


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The plan that a command line names."""

    model: plans.ModelName = None
    machine: Annotated[str | None, option("NAME", "A machine or a TOML file.", "--machine")] = None
    costs: options.Costs = None
    plan: plans.PlanName = None
    config: plans.Configs = None
    gpus: plans.Gpus = None

    def check_alone(self, paths: Sequence[str] | None) -> None:
        """Refuse a plan beside profiler files."""
        if paths and (self.model or self.machine or self.plan or self.config):
            raise typer.BadParameter(
                "give profiler files or --model, --machine and --plan, not both"
            )

    def found(self, stated: Mapping[str, object]) -> tuple[Model, Plan, Machine]:
        """Model, complete plan and machine."""
        configured = plans.configured(self.config)
        model = plans.model_of(self.model, configured)
        if model is None or self.machine is None:
            raise typer.BadParameter("name profiler files, or --model and --machine")
        draft = plans.draft_of(self.plan, stated, configured)
        plans.tell_notes(draft)
        machine = load_machine(self.machine, machine_folders(self.costs))
        plan = complete(draft, model, ranks_meant(draft, machine, self.gpus))
        return model, plan, with_hosts(machine, plan.num_ranks)


@_with_plan
def steps(
    paths: Paths = None,
    *,
    asked: PlanOptions,
    stated: Mapping[str, object],
    variation: VariationName = DEFAULT_VARIATION,
    vary: Vary = None,
    documents: Annotated[
        str | None,
        option(
            "FILE|lognormal:MU,SIGMA[,LONGEST]",
            "Documents of a plan's dataset, as in `balance`; each copy of the model draws its own.",
        ),
    ] = None,
    expert_load: Annotated[
        str,
        option(
            "even|power:A|FILE",
            "Tokens of experts, as in `estimate`, drawn for each cell and step.",
        ),
    ] = EVEN,
    learn_from: Annotated[
        list[str] | None,
        option("PATH", "Take durations from this recording; may be given again.", "--from"),
    ] = None,
    samples: Samples = 1000,
    seed: options.Seed = 0,
    budget: Annotated[
        float | None, option("SECONDS", "Sample no longer than this.", min=0.001)
    ] = None,
    training_steps: Annotated[int, option("N", "Tell the time of so many steps.", min=1)] = 100_000,
    unfolded: Annotated[
        bool, typer.Option("--unfolded", help="Simulate every rank, not one cell of the job.")
    ] = False,
    scale: Annotated[
        bool, typer.Option("--scale", help="Also with fewer copies of the model.")
    ] = False,
    report: options.Page = None,
    top: options.Top = 8,
    outputs: Outputs,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
    engine: options.WhichEngine = SweepEngine.PROCESSES,
) -> None:
    """Tell how long steps take, with their odds: of a recording, or of a plan not yet run."""
    asked.check_alone(paths)
    with activity() as doing:
        sampling = Sampling(
            num_samples=samples, seed=seed, budget_s=budget, workers=workers, engine=engine,
            has_scales=scale or report is not None, progress=doing.advance,
        )  # fmt: skip
        if paths:
            if documents or expert_load != EVEN:
                raise typer.BadParameter(
                    "--documents and --expert-load are for a plan: a recording has its own"
                )
            job = Reading(no_cache=no_cache, workers=workers).job(paths, doing)
            job.check_times("sample")
            models = _learnt(learn_from, doing, no_cache=no_cache, workers=workers)
            doing.now("sampling steps")
            found = recorded_steps(job.graph, models, sampling, title=job.title)
        else:
            if learn_from:
                raise typer.BadParameter("--from is for a recording whose steps are predicted")
            found = _of_plan(
                asked.found(stated), _variation(variation, vary), sampling, folded=not unfolded,
                documents=documents, expert_load=expert_load, doing=doing,
            )  # fmt: skip
        told = found.told(training_steps=training_steps, top=top)
        if report is not None:
            drawings = [("sampled steps", distribution_plot(found))]
            if found.scales:
                drawings.append(("steps against the number of GPUs", scale_plot(found)))
            title = f"step times of {found.title}"
            write_answer_page(report, title, found, parts=told, drawings=drawings)
    outputs.tell(found, top=max(top, 16), parts=told, wrote=(report,))


def _of_plan(
    asked: tuple[Model, Plan, Machine],
    variation: Variation,
    sampling: Sampling,
    *,
    folded: bool,
    documents: str | None,
    expert_load: str,
    doing: ProgressLine,
) -> StepDistribution:
    doing.now("sampling steps")
    return estimated_steps(
        *asked, variation=variation, sampling=sampling, folded=folded,
        documents=None if documents is None else documents_of(documents),
        expert_load=None if expert_load == EVEN else expert_load_named(expert_load),
    )  # fmt: skip


def _learnt(
    paths: Sequence[str] | None, doing: ProgressLine, *, no_cache: bool, workers: int | None
) -> FittedModels | None:
    """Models of the recordings that durations are to come from; `None`: of the run itself."""
    if not paths:
        return None
    reading = Reading(no_cache=no_cache, workers=workers)
    jobs = [reading.job([path], doing) for path in paths]
    doing.now("fitting durations")
    return fit_models([job.graph for job in jobs])


@_with_plan
def placement(
    paths: Paths = None,
    *,
    slowdown: Annotated[float, option("SHARE", "How much longer its kernels take.")] = 0.1,
    host: Annotated[
        bool, typer.Option("--host", help="A whole host is slow, not one GPU of it.")
    ] = False,
    asked: PlanOptions,
    stated: Mapping[str, object],
    variation: VariationName = "none",
    vary: Vary = None,
    samples: Samples = 256,
    seed: options.Seed = 0,
    outputs: Outputs,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
) -> None:
    """Tell what a slow GPU or host costs in each place, and so what replacing it brings."""
    asked.check_alone(paths)
    with activity() as doing:
        if paths:
            job = Reading(no_cache=no_cache, workers=workers).job(paths, doing)
            doing.now("slowing each rank")
            found = recorded_placement(job.graph, slowdown=slowdown, title=job.title)
        else:
            found_model, found_plan, found_machine = asked.found(stated)
            doing.now("simulating each place")
            cell: SampledCell = cell_of(found_model, found_plan, found_machine)
            found = estimated_placement(
                cell,
                slowdown=slowdown,
                variation=_variation(variation, vary),
                gpus_per_host=found_machine.tiers[0].num_ranks if host else None,
                num_samples=samples,
                seed=seed,
                title=f"{found_model.name} on {found_plan.num_ranks:,} GPUs",
                progress=doing.advance,
            )
    outputs.tell(found)


def _variation(name: str, vary: Sequence[str] | None) -> Variation:
    return changed_variation(variation_named(name), tuple(vary or ()))

"""`foretrace risk corruption`: wrong results that nobody notices, and what noticing costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from foretrace.base import RiskError
from foretrace.cli import options
from foretrace.cli import plan_options as plans
from foretrace.cli import risk_options as told
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.risk_steps import PlanOptions
from foretrace.report import corruption_plot, write_answer_page
from foretrace.risk import (
    OBSERVED_PER_HOST_DAY,
    Campaign,
    CheckedStep,
    OperatorCheck,
    checked_step,
    duration_ns,
    silent_corruption,
)


@plans.with_plan("tp", "pp", "dp", "global_batch")
@told.with_campaign()
def corruption(
    *,
    campaign: Campaign,
    step_time: told.StepTime = None,
    asked: PlanOptions,
    stated: Mapping[str, object],
    upsets: told.Upsets = None,
    fit_per_mbit: Annotated[
        float | None,
        option("F", "Upsets in 1e9 hours of 1e6 bits of a plan's parameters.", min=0),
    ] = None,
    vulnerability: told.Vulnerability = None,
    check: Annotated[
        list[str] | None,
        option(
            "NAME=COST:COVERAGE",
            "A check: its share of a step, and of corruptions that it finds; of a plan also "
            "sums=COVERAGE, as in whatif --check; may be repeated.",
        ),
    ] = None,
    samples: told.Samples = 200,
    seed: options.Seed = 0,
    report: options.Page = None,
    outputs: Outputs,
) -> None:
    """Tell silent corruptions a month, and what checks leave of them at what cost."""
    step: CheckedStep | None = None
    given = check or []
    simulated = [one for one in given if ":" not in one.partition("=")[2]]
    with activity() as doing:
        if asked.model is not None or asked.config:
            doing.now("estimating the step")
            step = checked_step(
                *asked.found(stated), coverage={_name(one): _coverage(one) for one in simulated}
            )
            campaign = replace(campaign, num_hosts=step.num_hosts, gpus_per_host=step.gpus_per_host)
        elif simulated:
            told.read_check(simulated[0])
        if fit_per_mbit is not None and (step is None or upsets is not None):
            raise typer.BadParameter("--fit-per-mbit needs --model, and no --upsets beside it")
        if fit_per_mbit is not None and step is not None:
            upsets = step.upsets_per_host_day(fit_per_mbit)
        of_step = told.DEFAULT_STEP_NS if step is None else step.step_ns
        doing.now("simulating campaigns")
        found = silent_corruption(
            campaign,
            step_ns=of_step if step_time is None else duration_ns(step_time, "--step-time"),
            upsets_per_host_day=OBSERVED_PER_HOST_DAY if upsets is None else upsets,
            vulnerability=1.0 if vulnerability is None else vulnerability,
            checks=tuple(_checks(given, step)),
            num_samples=samples,
            seed=seed,
        )
    if report is not None:
        drawings = (("percent of a step against silent corruptions", corruption_plot(found)),)
        write_answer_page(report, "Silent corruptions", found, drawings=drawings)
    outputs.tell(found, wrote=(report,))


def _checks(texts: list[str], step: CheckedStep | None) -> list[OperatorCheck]:
    """As stated; those without a cost as the plan's step says."""
    of_step = {} if step is None else {one.name: one for one in step.checks}
    return [of_step.get(_name(one)) or told.read_check(one) for one in texts]


def _name(text: str) -> str:
    return text.partition("=")[0].strip()


def _coverage(text: str) -> float:
    try:
        return float(text.partition("=")[2])
    except ValueError:
        raise RiskError(
            f"a check of a plan's step is NAME=COVERAGE, as sums=0.99; got {text!r}"
        ) from None

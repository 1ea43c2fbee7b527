"""`foretrace risk`: failures, and the time that they leave to train."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from foretrace.answer import Answer, Told
from foretrace.base import NS_PER_DAY, RiskError, write_whole
from foretrace.cli import options
from foretrace.cli import risk_options as told
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs, tell_written
from foretrace.cli.progress import activity
from foretrace.cli.risk_corruption import corruption
from foretrace.cli.risk_steps import placement, steps
from foretrace.cli.settings import machine_folders, model_folders, plan_folders
from foretrace.machine import load_chip
from foretrace.report import sweep_plot, write_answer_page
from foretrace.risk import (
    Campaign,
    CampaignSweep,
    Outcome,
    ReplicaSizes,
    SchemeComparison,
    TrainingTime,
    all_failures,
    by_interval,
    by_scale,
    compare_schemes,
    failures_toml,
    load_failures,
    read_failure_log,
    replica_sizes,
    simulate_campaign,
    training_time,
)
from foretrace.risk import ettr as ettr_of
from foretrace.workload import complete, load_model, load_plan

app = options.group(
    "Say what failures cost: effective training time, whole campaigns, ways to recover."
)
app.command()(steps)
app.command()(placement)
app.command()(corruption)

_AGAINST_INTERVAL = "against the checkpoint interval (full restarts)"
_SWEPT = 20.0  # times shorter and longer intervals than the campaign's
_NUM_POINTS = 25
_SWEPT_SAMPLES = 20
_SWEPT_FAILURES = 2_000  # of every campaign: a picture needs no third digit
_SCALES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)

Plot = Annotated[Path | None, option("OUT.svg", "Draw effective time.", dir_okay=False)]

_MOST_DAYS = 1e9  # what simulates campaigns refuses fewer; more would not be whole numbers of ns


@app.command()
@told.with_campaign()
def ettr(
    *,
    campaign: Campaign,
    target: Annotated[
        float | None, option("E", "How fast must a restart be for this?", min=0, max=1)
    ] = None,
    samples: told.Samples = 100,
    seed: options.Seed = 0,
    plot: Plot = None,
    report: options.Page = None,
    outputs: Outputs,
) -> None:
    """Tell effective training time by formula and by simulation, and the best interval."""
    with activity() as doing:
        doing.now("simulating campaigns")
        found = ettr_of(campaign, target=target, num_samples=samples, seed=seed)
        if plot is not None or report is not None:
            doing.now("trying other intervals")
            sweep = _intervals(campaign, round(float(found.outcome.wall_ns[0])))
            _draw(plot, sweep, "effective time against the checkpoint interval")
            _write(report, "Effective training time", found, _AGAINST_INTERVAL, sweep)
    outputs.tell(found)


@app.command(name="campaign")
@told.with_campaign(*told.FLEET, *told.LEMONS, *told.REPLICAS, *told.CORRUPTION)
def campaign_command(
    *,
    campaign: Campaign,
    days: told.Days = 365.0,
    tokens: Annotated[
        float | None,
        option("N", "Train on so many tokens instead of --days, as 15T.", parser=options.amount),
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        option("N", "Speed of the whole job while it trains, as 2.6M.", parser=options.amount),
    ] = None,
    price: Annotated[float | None, option("P", "Price of a GPU for an hour.", min=0)] = None,
    samples: told.Samples = 1000,
    seed: options.Seed = 0,
    plot: Plot = None,
    report: options.Page = None,
    outputs: Outputs,
) -> None:
    """Simulate whole campaigns: where the time goes, how many failures, days and cost."""
    if (tokens is None) != (tokens_per_second is None):
        raise typer.BadParameter("give --tokens and --tokens-per-second together")
    if price is not None and tokens is None:
        raise typer.BadParameter("--price needs --tokens: it is the cost of a training")
    found: Outcome | TrainingTime
    with activity() as doing:
        doing.now("simulating campaigns")
        if tokens is not None and tokens_per_second is not None:
            found = training_time(
                campaign,
                num_tokens=tokens,
                tokens_per_second=tokens_per_second,
                price_per_gpu_hour=price,
                num_samples=samples,
                seed=seed,
            )
            outcome = found.outcome
        else:
            outcome = simulate_campaign(
                campaign, duration_ns=_days_ns(days), num_samples=samples, seed=seed
            )
            found = outcome
        if plot is not None or report is not None:
            doing.now("trying other intervals")
            sweep = _intervals(campaign, round(float(outcome.wall_ns.mean())))
            _draw(plot, sweep, "effective time against the checkpoint interval")
            _write(report, campaign.name or "Campaign", found, _AGAINST_INTERVAL, sweep)
    outputs.tell(found)


@app.command()
@told.with_campaign(*told.FLEET, *told.REPLICAS)
def compare(
    *,
    campaign: Campaign,
    replica_gpus: Annotated[
        list[int] | None, option("N", "Try replicas of so many GPUs; may be repeated.", min=1)
    ] = None,
    model: Annotated[
        str | None, option("NAME", "Whether replicas of that size hold this model.")
    ] = None,
    plan: Annotated[str | None, option("NAME", "Its plan on all GPUs; or a TOML file.")] = None,
    chip: Annotated[str | None, option("NAME", "Whose memory has to do.")] = None,
    scale: Annotated[
        bool, typer.Option("--scale", help="Also with fewer GPUs, down to a 64th.")
    ] = False,
    days: told.Days = 90.0,
    samples: told.Samples = 200,
    seed: options.Seed = 0,
    plot: Plot = None,
    report: options.Page = None,
    outputs: Outputs,
) -> None:
    """Compare ways to recover: full restart, hot spares, elastic, fault-tolerant replicas."""
    if (model is not None or plan is not None or chip is not None) and not replica_gpus:
        raise typer.BadParameter("--model, --plan and --chip are for --replica-gpus")
    duration_ns = _days_ns(days)
    sizes: ReplicaSizes | None = None
    sweep: CampaignSweep | None = None
    with activity() as doing:
        doing.now("simulating campaigns")
        found = compare_schemes(campaign, duration_ns=duration_ns, num_samples=samples, seed=seed)
        if replica_gpus:
            doing.now("trying sizes of replicas")
            sizes = _sizes(campaign, replica_gpus, (model, plan, chip), duration_ns=duration_ns)
        if scale or plot is not None or report is not None:
            doing.now("trying other numbers of GPUs")
            hosts = [max(1, round(campaign.num_hosts * each)) for each in _SCALES]
            sweep = by_scale(
                campaign, hosts, duration_ns=duration_ns, num_samples=_SWEPT_SAMPLES, seed=seed
            )
            _draw(plot, sweep, "effective time against the number of GPUs")
            _write(
                report,
                "Ways to recover",
                _Together(found, sizes, None),
                "against the number of GPUs",
                sweep,
            )
    together = _Together(found, sizes, sweep)
    outputs.tell(together, parts=together.told(has_scale=scale))


@app.command(name="failures")
def failures_command(
    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE", help="A name, a TOML file, or a log as CSV.")
    ] = None,
    *,
    nodes: Annotated[int | None, option("N", "Of a log: hosts that were watched.", min=1)] = None,
    days: Annotated[
        float | None, option("DAYS", "Of a log: how long. Default: as it spans.", min=0)
    ] = None,
    host_component: Annotated[
        list[str] | None,
        option("NAME", "Of a log: a cause after which the host is repaired. Default: all."),
    ] = None,
    out: Annotated[
        Path | None,
        option("OUT.toml", "Write rates that --failures reads.", *options.OUT, dir_okay=False),
    ] = None,
    outputs: Outputs,
) -> None:
    """Show failure rates by component: published ones, or those of your own log."""
    if source is None:
        outputs.tell(all_failures())
        return
    log = None
    if source.lower().endswith(".csv"):
        if nodes is None:
            raise typer.BadParameter("--nodes is needed: a log does not say which hosts never fail")
        log = read_failure_log(
            Path(source), num_hosts=nodes, days=days or None, host_causes=host_component
        )
    rates = load_failures(source) if log is None else log.rates
    if out is not None:
        if log is None or nodes is None:
            raise RiskError("--out writes the rates of a log: name a CSV file")
        write_whole(out, failures_toml(rates, nodes))
    told_of = rates if log is None else log
    outputs.tell(told_of, top=max(16, len(rates.components)), wrote=(out,))


@dataclass(frozen=True, repr=False)
class _Together(Answer):
    """A comparison with what else was tried, as one result."""

    found: SchemeComparison
    sizes: ReplicaSizes | None
    sweep: CampaignSweep | None

    @property
    def headline(self) -> str:
        """The best way to recover."""
        return self.found.headline

    def parts(self) -> tuple[Told, ...]:
        """The ways to recover, sizes of replicas, scales."""
        return self.told(has_scale=True)

    def told(self, *, has_scale: bool) -> tuple[Told, ...]:
        """The parts, the scales among them if they are wanted and not only drawn."""
        others = (self.sizes, self.sweep if has_scale else None)
        return (
            *self.found.parts(),
            *(part for one in others if one is not None for part in one.parts()),
        )

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {
            **self.found.as_json(),
            "replica_sizes": None if self.sizes is None else self.sizes.as_json(),
            "scale": None if self.sweep is None else self.sweep.as_json(),
        }


def _days_ns(days: float) -> int:
    return round(min(days, _MOST_DAYS) * NS_PER_DAY)


def _intervals(campaign: Campaign, duration_ns: int) -> CampaignSweep:
    """Effective time at shorter and longer intervals."""
    checkpoint = campaign.checkpoint
    low = max(checkpoint.interval_ns / _SWEPT, checkpoint.background_ns, 1.0)
    points = np.geomspace(low, checkpoint.interval_ns * _SWEPT, _NUM_POINTS)
    if campaign.failures_per_host_day:
        duration_ns = min(duration_ns, round(_SWEPT_FAILURES * campaign.mttf_ns))
    return by_interval(
        campaign,
        [round(each) for each in points],
        duration_ns=duration_ns,
        num_samples=_SWEPT_SAMPLES,
    )


def _sizes(
    campaign: Campaign,
    gpus: list[int],
    names: tuple[str | None, str | None, str | None],
    *,
    duration_ns: int,
) -> ReplicaSizes:
    model_name, plan_name, chip_name = names
    if plan_name is not None and model_name is None:
        raise typer.BadParameter("--plan needs --model")
    model = None if model_name is None else load_model(model_name, model_folders())
    plan = None
    if plan_name is not None and model is not None:
        plan = complete(load_plan(plan_name, plan_folders()), model, campaign.num_gpus)
    return replica_sizes(
        campaign,
        gpus,
        duration_ns=duration_ns,
        model=model,
        plan=plan,
        chip=None if chip_name is None else load_chip(chip_name, machine_folders()),
    )


def _draw(path: Path | None, sweep: CampaignSweep, title: str) -> None:
    if path is not None:
        write_whole(path, sweep_plot(sweep, title=title))
        tell_written(path)


def _write(
    path: Path | None, title: str, found: Answer, against: str, sweep: CampaignSweep
) -> None:
    if path is not None:
        drawings = ((against, sweep_plot(sweep, has_ground=False)),)
        write_answer_page(path, title, found, drawings=drawings)
        tell_written(path)

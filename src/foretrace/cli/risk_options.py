"""What the commands of `foretrace risk` are told about a campaign, and the campaign of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, TypeAlias, TypeVar, get_type_hints

import typer

from foretrace.base import NS_PER_S, RiskError
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.risk import (
    OBSERVED_PER_HOST_DAY,
    Campaign,
    Checkpoint,
    Corruption,
    Fleet,
    OperatorCheck,
    Preemption,
    Replicas,
    WhileDown,
    check_campaign,
    duration_ns,
    load_campaign,
    load_failures,
    with_best_interval,
)

BEST = "best"
DEFAULT_STEP_NS = 5 * NS_PER_S
_Value = TypeVar("_Value")

Samples: TypeAlias = Annotated[int, option("N", "Campaigns to simulate.", min=1, max=1_000_000)]
Days: TypeAlias = Annotated[float, option("DAYS", "Wall time of every simulated campaign.", min=0)]


Upsets: TypeAlias = Annotated[
    float | None,
    option("R", "Faults of one host in a day. Default: 5.4e-5, seen in Llama 3.", min=0),
]
Vulnerability: TypeAlias = Annotated[
    float | None,
    option("SHARE", "Of faults that make an output wrong. Default: 1.", min=0, max=1),
]
StepTime: TypeAlias = Annotated[
    str | None, option("TIME", "A training step without checks. Default: 5s.")
]

FLEET = ("spares", "repair")
LEMONS = ("lemons", "lemon_factor", "exclude_after", "preempt_every", "preempt_away")
REPLICAS = ("replicas", "stall", "away")
CORRUPTION = ("upsets", "vulnerability", "check", "step_time", "on_find")


class OnFind(StrEnum):
    """What follows where a check finds a result wrong."""

    RECOMPUTE = "recompute"
    RESTART = "restart"


def read_check(text: str) -> OperatorCheck:
    """`NAME=COST:COVERAGE`."""
    name, _, numbers = text.partition("=")
    try:
        overhead, coverage = map(float, numbers.split(":"))
    except ValueError:
        raise typer.BadParameter(
            f"a check is NAME=COST:COVERAGE, as abft=0.05:0.99; got {text!r}"
        ) from None
    return OperatorCheck(name=name, overhead=overhead, coverage=coverage)


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a command line says; `None` is what the campaign's file says, or nothing."""

    name: Annotated[
        str | None,
        typer.Argument(
            metavar="CAMPAIGN", help="A campaign's name or TOML file; options change it."
        ),
    ] = None
    nodes: Annotated[int | None, option("N", "Hosts that train, spares not counted.", min=1)] = None
    gpus_per_node: Annotated[int | None, option("N", "GPUs of a host. Default: 8.", min=1)] = None
    failure_rate: Annotated[float | None, option("R", "Failures of one host in a day.", min=0)] = (
        None
    )
    failures: Annotated[
        str | None, option("NAME", "Failure rates by name or TOML file: see risk failures.")
    ] = None
    checkpoint_interval: Annotated[
        str | None, option("TIME", "Training between two checkpoints, as 60min; or best.")
    ] = None
    checkpoint_time: Annotated[
        str | None, option("TIME", "Training stands still for a checkpoint. Default: 0.")
    ] = None
    background_time: Annotated[
        str | None,
        option("TIME", "A checkpoint is written beside training after that. Default: 0."),
    ] = None
    restart: Annotated[str | None, option("TIME", "From a restart's begin to its first step.")] = (
        None
    )
    detection: Annotated[str | None, option("TIME", "Until a failure is noticed. Default: 0.")] = (
        None
    )
    queue: Annotated[
        str | None, option("TIME", "Until the job is scheduled again. Default: 0.")
    ] = None
    while_down: Annotated[
        WhileDown | None,
        typer.Option(
            help="What failures do while the job is down: none happen, a restart begins again, or "
            "each adds its own stall. Default: none."
        ),
    ] = None
    spares: Annotated[int | None, option("N", "Hosts that stand ready. Default: 0.", min=0)] = None
    repair: Annotated[
        str | None, option("TIME", "Until a failed host can train again. Default: 0.")
    ] = None
    lemons: Annotated[
        float | None, option("SHARE", "Hosts that fail more often, as 0.012.", min=0, max=1)
    ] = None
    lemon_factor: Annotated[
        float | None, option("X", "How many times as often lemons fail.", min=1)
    ] = None
    exclude_after: Annotated[
        int | None, option("N", "Put another machine in a host's place after N failures.", min=0)
    ] = None
    preempt_every: Annotated[
        str | None, option("TIME", "Mean time between preemptions. Default: none.")
    ] = None
    preempt_away: Annotated[
        str | None, option("TIME", "How long a preemption takes the hosts away.")
    ] = None
    replicas: Annotated[
        int | None, option("K", "Data-parallel replicas that fail alone.", min=1)
    ] = None
    stall: Annotated[str | None, option("TIME", "All replicas stand still when one is lost.")] = (
        None
    )
    away: Annotated[str | None, option("TIME", "A lost replica is away so long.")] = None
    upsets: Upsets = None
    vulnerability: Vulnerability = None
    check: Annotated[
        str | None,
        option("NAME=COST:COVERAGE", "A check: its share of a step, and of faults that it finds."),
    ] = None
    step_time: StepTime = None
    on_find: Annotated[
        OnFind | None,
        typer.Option(
            help="What a find costs: its step again, or a restart of the job. Default: recompute."
        ),
    ] = None


def with_campaign(*beside: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with the options that tell a campaign in the place of `campaign`.

    Args:
        beside: those of `FLEET`, `LEMONS`, `REPLICAS` and `CORRUPTION` that it has too.
    """
    others = {*FLEET, *LEMONS, *REPLICAS, *CORRUPTION} - set(beside)
    kinds = get_type_hints(Told, include_extras=True).items()
    told = [options.keyword(name, kind) for name, kind in kinds if name not in others]
    return options.with_options("campaign", told, lambda given: campaign_of(Told(**given)))


def campaign_of(told: Told) -> Campaign:
    """The named campaign with what the command line says instead.

    Raises:
        RiskError: if something is missing, or cannot be.
    """
    if told.failure_rate is not None and told.failures is not None:
        raise typer.BadParameter("give either --failure-rate or --failures")
    base = _new(told) if told.name is None else load_campaign(told.name)
    campaign = replace(
        base,
        num_hosts=_or(told.nodes, base.num_hosts),
        gpus_per_host=_or(told.gpus_per_node, base.gpus_per_host),
        failures_per_host_day=_or(told.failure_rate, base.failures_per_host_day),
        checkpoint=_checkpoint(told, base.checkpoint),
        restart_ns=_time(told.restart, base.restart_ns, "--restart"),
        detection_ns=_time(told.detection, base.detection_ns, "--detection"),
        queue_ns=_time(told.queue, base.queue_ns, "--queue"),
        while_down=_or(told.while_down, base.while_down),
        fleet=_fleet(told, base.fleet),
        preemption=_preemption(told, base.preemption),
        replicas=_replicas(told, base.replicas),
        corruption=_corruption(told, base.corruption),
    )
    if told.failures is not None:
        rates = load_failures(told.failures)
        fleet = replace(campaign.fleet, repaired_share=rates.repaired_share)
        campaign = replace(campaign, failures_per_host_day=rates.per_host_day, fleet=fleet)
    if told.checkpoint_interval == BEST:
        campaign = with_best_interval(campaign)
    check_campaign(campaign)
    return campaign


def _new(told: Told) -> Campaign:
    missing = [
        option
        for option, value in (
            ("--nodes", told.nodes),
            ("--failure-rate or --failures", _or(told.failure_rate, told.failures)),
            ("--checkpoint-interval", told.checkpoint_interval),
            ("--restart", told.restart),
        )
        if value is None
    ]
    if missing:
        raise typer.BadParameter(f"name a CAMPAIGN, or say {', '.join(missing)}")
    nothing = Checkpoint(interval_ns=1)
    return Campaign(num_hosts=1, failures_per_host_day=0.0, checkpoint=nothing, restart_ns=0)


def _checkpoint(told: Told, base: Checkpoint) -> Checkpoint:
    stated = None if told.checkpoint_interval == BEST else told.checkpoint_interval
    return Checkpoint(
        interval_ns=_time(stated, base.interval_ns, "--checkpoint-interval"),
        blocking_ns=_time(told.checkpoint_time, base.blocking_ns, "--checkpoint-time"),
        background_ns=_time(told.background_time, base.background_ns, "--background-time"),
    )


def _fleet(told: Told, base: Fleet) -> Fleet:
    return replace(
        base,
        num_spares=_or(told.spares, base.num_spares),
        repair_ns=_time(told.repair, base.repair_ns, "--repair"),
        lemon_share=_or(told.lemons, base.lemon_share),
        lemon_factor=_or(told.lemon_factor, base.lemon_factor),
        excluded_after=_or(told.exclude_after, base.excluded_after),
    )


def _preemption(told: Told, base: Preemption | None) -> Preemption | None:
    if told.preempt_every is None and told.preempt_away is None:
        return base
    if base is None and (told.preempt_every is None or told.preempt_away is None):
        raise typer.BadParameter("give --preempt-every and --preempt-away together")
    return Preemption(
        every_ns=_time(told.preempt_every, base.every_ns if base else 0, "--preempt-every"),
        away_ns=_time(told.preempt_away, base.away_ns if base else 0, "--preempt-away"),
        has_notice=base is not None and base.has_notice,
    )


def _replicas(told: Told, base: Replicas | None) -> Replicas | None:
    if (told.replicas, told.stall, told.away) == (None, None, None):
        return base
    if base is None:
        if told.replicas is None or told.stall is None or told.away is None:
            raise typer.BadParameter("give --replicas, --stall and --away together")
        base = Replicas(num_replicas=told.replicas, stall_ns=0, away_ns=0)
    return replace(
        base,
        num_replicas=_or(told.replicas, base.num_replicas),
        stall_ns=_time(told.stall, base.stall_ns, "--stall"),
        away_ns=_time(told.away, base.away_ns, "--away"),
    )


def _corruption(told: Told, base: Corruption | None) -> Corruption | None:
    if told.upsets is None and told.check is None:
        return base
    check = OperatorCheck(name="none") if told.check is None else read_check(told.check)
    return Corruption(
        upsets_per_host_day=_or(told.upsets, OBSERVED_PER_HOST_DAY),
        vulnerability=_or(told.vulnerability, 1.0),
        coverage=check.coverage,
        overhead=check.overhead,
        step_ns=_time(told.step_time, DEFAULT_STEP_NS, "--step-time"),
        restarts=told.on_find is OnFind.RESTART,
    )


def _time(text: str | None, default_ns: int, option: str) -> int:
    if text is None:
        return default_ns
    try:
        return duration_ns(text, option)
    except RiskError as err:
        raise typer.BadParameter(str(err)) from err


def _or(value: _Value | None, default: _Value) -> _Value:
    return default if value is None else value

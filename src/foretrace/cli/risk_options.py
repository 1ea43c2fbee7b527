"""What the commands of `foretrace risk` are told about a campaign, and the campaign of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias, TypeVar, get_type_hints

import typer

from foretrace.base import RiskError
from foretrace.cli import options
from foretrace.risk import (
    Campaign,
    Checkpoint,
    Fleet,
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
_Value = TypeVar("_Value")

Name: TypeAlias = Annotated[
    str | None,
    typer.Argument(metavar="CAMPAIGN", help="A campaign's name or TOML file; options change it."),
]
Nodes: TypeAlias = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Hosts that train, spares not counted.")
]
GpusPerNode: TypeAlias = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="GPUs of a host. Default: 8.")
]
FailureRate: TypeAlias = Annotated[
    float | None, typer.Option(min=0, metavar="R", help="Failures of one host in a day.")
]
Failures: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Failure rates by name or TOML file: see risk failures."),
]
Interval: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Training between two checkpoints, as 60min; or best."),
]
Blocking: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Training stands still for a checkpoint. Default: 0."),
]
Background: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="A checkpoint is written beside training after that. Default: 0."
    ),
]
Restart: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="From a restart's begin to its first step.")
]
Detection: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="Until a failure is noticed. Default: 0.")
]
Queue: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="Until the job is scheduled again. Default: 0.")
]
Down: TypeAlias = Annotated[
    WhileDown | None,
    typer.Option(
        help="What failures do while the job is down: none happen, a restart begins again, or "
        "each adds its own stall. Default: none."
    ),
]
Spares: TypeAlias = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Hosts that stand ready. Default: 0.")
]
Repair: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Until a failed host can train again. Default: 0."),
]
Lemons: TypeAlias = Annotated[
    float | None,
    typer.Option(min=0, max=1, metavar="SHARE", help="Hosts that fail more often, as 0.012."),
]
LemonFactor: TypeAlias = Annotated[
    float | None, typer.Option(min=1, metavar="X", help="How many times as often lemons fail.")
]
ExcludeAfter: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="N", help="Put another machine in a host's place after N failures."
    ),
]
PreemptEvery: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="Mean time between preemptions. Default: none.")
]
PreemptAway: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="How long a preemption takes the hosts away.")
]
NumReplicas: TypeAlias = Annotated[
    int | None, typer.Option(min=1, metavar="K", help="Data-parallel replicas that fail alone.")
]
Stall: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="All replicas stand still when one is lost.")
]
Away: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="A lost replica is away so long.")
]
Samples: TypeAlias = Annotated[
    int, typer.Option(min=1, max=1_000_000, metavar="N", help="Campaigns to simulate.")
]
Seed: TypeAlias = Annotated[
    int, typer.Option(min=0, metavar="N", help="The same seed gives the same result.")
]
Days: TypeAlias = Annotated[
    float, typer.Option(min=0, metavar="DAYS", help="Wall time of every simulated campaign.")
]


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a command line says; `None` is what the campaign's file says, or nothing."""

    name: Name = None
    nodes: Nodes = None
    gpus_per_node: GpusPerNode = None
    failure_rate: FailureRate = None
    failures: Failures = None
    checkpoint_interval: Interval = None
    checkpoint_time: Blocking = None
    background_time: Background = None
    restart: Restart = None
    detection: Detection = None
    queue: Queue = None
    while_down: Down = None
    spares: Spares = None
    repair: Repair = None
    lemons: Lemons = None
    lemon_factor: LemonFactor = None
    exclude_after: ExcludeAfter = None
    preempt_every: PreemptEvery = None
    preempt_away: PreemptAway = None
    replicas: NumReplicas = None
    stall: Stall = None
    away: Away = None


FLEET = ("spares", "repair")
LEMONS = ("lemons", "lemon_factor", "exclude_after", "preempt_every", "preempt_away")
REPLICAS = ("replicas", "stall", "away")


def with_campaign(*beside: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with the options that tell a campaign in the place of `campaign`.

    Args:
        beside: those of `FLEET`, `LEMONS` and `REPLICAS` that it has too.
    """
    others = {*FLEET, *LEMONS, *REPLICAS} - set(beside)
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


def _time(text: str | None, default_ns: int, option: str) -> int:
    if text is None:
        return default_ns
    try:
        return duration_ns(text, option)
    except RiskError as err:
        raise typer.BadParameter(str(err)) from err


def _or(value: _Value | None, default: _Value) -> _Value:
    return default if value is None else value

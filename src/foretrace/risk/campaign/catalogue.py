"""Campaigns by name: TOML files, found and extended as all descriptions are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foretrace.base import (
    Count,
    DescriptionKey,
    Document,
    RiskError,
    Share,
    Shelf,
    Table,
    Whole,
    document_names,
    read_document,
    read_keys,
    read_sources,
)
from foretrace.risk.campaign.campaign import (
    Campaign,
    Checkpoint,
    Corruption,
    Fleet,
    Preemption,
    Replicas,
    WhileDown,
    check_campaign,
)
from foretrace.risk.campaign.closed_form import best_interval_ns, with_interval
from foretrace.risk.failures.catalogue import load_failures
from foretrace.risk.times import duration_ns

_SHELF = Shelf(noun="campaign", presets=Path(__file__).parent / "presets", error=RiskError)
BEST = "best"  # a checkpoint interval that is found instead of stated
_TABLES = (
    *("checkpoint", "down", "fleet", "preemption", "replicas", "corruption"),
    "sources",
)
_KEYS = (
    DescriptionKey("kind", str),
    DescriptionKey("title", str),
    DescriptionKey("note", str),
    DescriptionKey("hosts", Count, is_required=True),
    DescriptionKey("gpus_per_host", Count),
    DescriptionKey("failures", str),
    DescriptionKey("failures_per_host_day", Share),
    DescriptionKey("while_down", WhileDown),
    *(
        DescriptionKey(table, dict[str, object], expected="a table")
        for table in (
            "checkpoint",
            "down",
            "fleet",
            "preemption",
            "replicas",
            "corruption",
            "sources",
        )
    ),
)


def _times(*names: str) -> tuple[DescriptionKey, ...]:
    return tuple(DescriptionKey(name, str, expected='a time, as in "5min",') for name in names)


_CHECKPOINT_KEYS = _times("interval", "blocking", "background")
_DOWN_KEYS = _times("detection", "queue", "restart")
_FLEET_KEYS = (
    *_times("repair"),
    DescriptionKey("spares", Whole),
    DescriptionKey("repaired_share", Share),
    DescriptionKey("lemon_share", Share),
    DescriptionKey("lemon_factor", Share),
    DescriptionKey("excluded_after", Whole),
)
_PREEMPTION_KEYS = (*_times("every", "away"), DescriptionKey("has_notice", bool))
_CORRUPTION_KEYS = (
    *_times("step"),
    DescriptionKey("upsets_per_host_day", Share, is_required=True),
    *(DescriptionKey(name, Share) for name in ("vulnerability", "coverage", "overhead")),
    DescriptionKey("restarts", bool),
)
_REPLICAS_KEYS = (
    *_times("stall", "away", "catch_up", "join", "lost_step"),
    DescriptionKey("count", Count, is_required=True),
    DescriptionKey("least", Whole),
    DescriptionKey("keeps_state", bool),
    DescriptionKey("joins_in_stall", bool),
)


def campaign_names(folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Names of all campaigns that are described, sorted."""
    return document_names(_SHELF, folders)


def load_campaign(name_or_path: str | Path, folders: Sequence[Path] = ()) -> Campaign:
    """The campaign of that name, or in that TOML file.

    Raises:
        RiskError: if there is none, or the file is wrong.
    """
    document = read_document(name_or_path, _SHELF, folders)
    where, table = document.where, document.table
    stated = read_keys(table, _KEYS, where, error=RiskError)
    read_sources(table.get("sources"), where, error=RiskError)
    rate, repaired_share = _rate(document, folders)
    down = _Times(document, "down", _DOWN_KEYS)
    interval, checkpoint = _checkpoint(document)
    campaign = Campaign(
        num_hosts=stated["hosts"],
        gpus_per_host=stated.get("gpus_per_host", 8),
        failures_per_host_day=rate,
        checkpoint=checkpoint,
        restart_ns=down.needed_ns("restart"),
        detection_ns=down.time_ns("detection"),
        queue_ns=down.time_ns("queue"),
        while_down=stated.get("while_down", WhileDown.NONE),
        fleet=_fleet(document, repaired_share),
        preemption=_preemption(document),
        replicas=_replicas(document),
        corruption=_corruption(document),
        name=document.name,
    )
    if interval == BEST:
        campaign = with_best_interval(campaign)
    check_campaign(campaign)
    return campaign


def with_best_interval(campaign: Campaign) -> Campaign:
    """The campaign with the checkpoint interval of Young and Daly.

    Raises:
        RiskError: if checkpoints cost nothing, or nothing fails, so that there is no best one.
    """
    best_ns = best_interval_ns(campaign)
    if not 0 < best_ns < float("inf"):
        raise RiskError(
            "no checkpoint interval is best where checkpoints cost no time or nothing fails: "
            "state the time that training stands still for one, or the interval"
        )
    return with_interval(campaign, round(best_ns))


class _Times:
    """A table of durations and other values."""

    def __init__(self, document: Document, name: str, keys: Sequence[DescriptionKey]) -> None:
        self.where = f"[{name}] of {document.where}"
        table: Table = document.table.get(name, {})  # type: ignore[assignment]  # read by `_KEYS`
        self.stated = read_keys(table, keys, self.where, error=RiskError)

    def time_ns(self, key: str) -> int:
        return duration_ns(self.stated.get(key, "0"), f"{key!r} of {self.where}")

    def needed_ns(self, key: str) -> int:
        if key not in self.stated:
            raise RiskError(f'{self.where} lacks {key!r}: write {key} = "5min" or the like')
        return self.time_ns(key)


def _rate(document: Document, folders: Sequence[Path]) -> tuple[float, float]:
    """Failures per host and day, and the share after which a host is repaired."""
    table = document.table
    if ("failures" in table) == ("failures_per_host_day" in table):
        raise RiskError(f"{document.where} needs either 'failures' or 'failures_per_host_day'")
    if "failures" in table:
        rates = load_failures(document.text("failures"), (document.path.parent, *folders))
        return rates.per_host_day, rates.repaired_share
    return float(str(table["failures_per_host_day"])), 1.0


def _checkpoint(document: Document) -> tuple[object, Checkpoint]:
    """What the interval is stated as, and the checkpoint; `best` is one ns for the time being."""
    times = _Times(document, "checkpoint", _CHECKPOINT_KEYS)
    interval = times.stated.get("interval")
    return interval, Checkpoint(
        interval_ns=1 if interval == BEST else times.needed_ns("interval"),
        blocking_ns=times.time_ns("blocking"),
        background_ns=times.time_ns("background"),
    )


def _fleet(document: Document, repaired_share: float) -> Fleet:
    times = _Times(document, "fleet", _FLEET_KEYS)
    return Fleet(
        num_spares=times.stated.get("spares", 0),
        repair_ns=times.time_ns("repair"),
        repaired_share=times.stated.get("repaired_share", repaired_share),
        lemon_share=times.stated.get("lemon_share", 0.0),
        lemon_factor=times.stated.get("lemon_factor", 1.0),
        excluded_after=times.stated.get("excluded_after", 0),
    )


def _preemption(document: Document) -> Preemption | None:
    if "preemption" not in document.table:
        return None
    times = _Times(document, "preemption", _PREEMPTION_KEYS)
    return Preemption(
        every_ns=times.needed_ns("every"),
        away_ns=times.needed_ns("away"),
        has_notice=times.stated.get("has_notice", False),
    )


def _replicas(document: Document) -> Replicas | None:
    if "replicas" not in document.table:
        return None
    times = _Times(document, "replicas", _REPLICAS_KEYS)
    return Replicas(
        num_replicas=times.stated["count"],
        stall_ns=times.needed_ns("stall"),
        away_ns=times.needed_ns("away"),
        catch_up_ns=times.time_ns("catch_up"),
        join_ns=times.time_ns("join"),
        lost_step_ns=times.time_ns("lost_step"),
        min_replicas=times.stated.get("least", 1),
        keeps_state=times.stated.get("keeps_state", True),
        joins_in_stall=times.stated.get("joins_in_stall", False),
    )


def _corruption(document: Document) -> Corruption | None:
    if "corruption" not in document.table:
        return None
    times = _Times(document, "corruption", _CORRUPTION_KEYS)
    return Corruption(
        upsets_per_host_day=times.stated["upsets_per_host_day"],
        vulnerability=times.stated.get("vulnerability", 1.0),
        coverage=times.stated.get("coverage", 0.0),
        overhead=times.stated.get("overhead", 0.0),
        step_ns=times.time_ns("step"),
        restarts=times.stated.get("restarts", False),
    )

"""Campaigns by name: TOML files, found and extended as all descriptions are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foretrace.base import (
    Document,
    RiskError,
    Shelf,
    Table,
    as_table,
    check_keys,
    document_names,
    read_document,
    read_sources,
)
from foretrace.risk.campaign.campaign import (
    Campaign,
    Checkpoint,
    Fleet,
    Preemption,
    Replicas,
    WhileDown,
    check_campaign,
)
from foretrace.risk.campaign.closed_form import best_interval_ns, with_interval
from foretrace.risk.failures.catalogue import load_failures, positive
from foretrace.risk.times import duration_ns

_SHELF = Shelf(
    noun="campaign",
    kinds=("campaign",),
    presets=Path(__file__).parent / "presets",
    folder="",
    error=RiskError,
)
BEST = "best"  # a checkpoint interval that is found instead of stated
_KEYS = (
    "kind", "title", "note", "hosts", "gpus_per_host", "failures", "failures_per_host_day",
    "while_down", "checkpoint", "down", "fleet", "preemption", "replicas", "sources",
)  # fmt: skip


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
    check_keys(table, _KEYS, where, error=RiskError)
    read_sources(table.get("sources"), where, error=RiskError)
    rate, repaired_share = _rate(document, folders)
    down = _Times(document, "down", ("detection", "queue", "restart"))
    interval, checkpoint = _checkpoint(document)
    campaign = Campaign(
        num_hosts=int(positive(table, "hosts", where)),
        gpus_per_host=int(positive(table, "gpus_per_host", where, default=8)),
        failures_per_host_day=rate,
        checkpoint=checkpoint,
        restart_ns=down.needed_ns("restart"),
        detection_ns=down.time_ns("detection"),
        queue_ns=down.time_ns("queue"),
        while_down=while_down_named(document.text("while_down", WhileDown.NONE), where),
        fleet=_fleet(document, repaired_share),
        preemption=_preemption(document),
        replicas=_replicas(document),
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


def while_down_named(text: str, where: str) -> WhileDown:
    """What failures do while the job is down, by name.

    Raises:
        RiskError: for another name.
    """
    try:
        return WhileDown(text)
    except ValueError as err:
        known = ", ".join(WhileDown)
        raise RiskError(f"while_down of {where} is {text!r}: expected one of {known}") from err


class _Times:
    """A table of durations and other values."""

    def __init__(self, document: Document, name: str, keys: Sequence[str]) -> None:
        self.where = f"[{name}] of {document.where}"
        self.table: Table = as_table(document.table.get(name), self.where, error=RiskError)
        check_keys(self.table, keys, self.where, error=RiskError)

    def time_ns(self, key: str) -> int:
        value = self.table.get(key, "0")
        if not isinstance(value, str):
            raise RiskError(f'{key!r} of {self.where} is {value!r}: write it as in "5min"')
        return duration_ns(value, f"{key!r} of {self.where}")

    def needed_ns(self, key: str) -> int:
        if key not in self.table:
            raise RiskError(f'{self.where} lacks {key!r}: write {key} = "5min" or the like')
        return self.time_ns(key)

    def number(self, key: str, default: float) -> float:
        return positive(self.table, key, self.where, default=default, may_be_zero=True)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise RiskError(f"{key!r} of {self.where} is {value!r}: write true or false")
        return value


def _rate(document: Document, folders: Sequence[Path]) -> tuple[float, float]:
    """Failures per host and day, and the share after which a host is repaired."""
    table = document.table
    if ("failures" in table) == ("failures_per_host_day" in table):
        raise RiskError(f"{document.where} needs either 'failures' or 'failures_per_host_day'")
    if "failures" in table:
        rates = load_failures(document.text("failures"), (document.path.parent, *folders))
        return rates.per_host_day, rates.repaired_share
    return positive(table, "failures_per_host_day", document.where, may_be_zero=True), 1.0


def _checkpoint(document: Document) -> tuple[object, Checkpoint]:
    """What the interval is stated as, and the checkpoint; `best` is one ns for the time being."""
    times = _Times(document, "checkpoint", ("interval", "blocking", "background"))
    interval = times.table.get("interval")
    return interval, Checkpoint(
        interval_ns=1 if interval == BEST else times.needed_ns("interval"),
        blocking_ns=times.time_ns("blocking"),
        background_ns=times.time_ns("background"),
    )


def _fleet(document: Document, repaired_share: float) -> Fleet:
    keys = (
        "spares", "repair", "repaired_share", "lemon_share", "lemon_factor", "excluded_after",
    )  # fmt: skip
    times = _Times(document, "fleet", keys)
    return Fleet(
        num_spares=int(times.number("spares", 0)),
        repair_ns=times.time_ns("repair"),
        repaired_share=times.number("repaired_share", repaired_share),
        lemon_share=times.number("lemon_share", 0.0),
        lemon_factor=times.number("lemon_factor", 1.0),
        excluded_after=int(times.number("excluded_after", 0)),
    )


def _preemption(document: Document) -> Preemption | None:
    if "preemption" not in document.table:
        return None
    times = _Times(document, "preemption", ("every", "away", "has_notice"))
    return Preemption(
        every_ns=times.needed_ns("every"),
        away_ns=times.needed_ns("away"),
        has_notice=times.flag("has_notice", default=False),
    )


def _replicas(document: Document) -> Replicas | None:
    if "replicas" not in document.table:
        return None
    keys = (
        "count", "stall", "away", "catch_up", "join", "lost_step", "least", "keeps_state",
        "joins_in_stall",
    )  # fmt: skip
    times = _Times(document, "replicas", keys)
    return Replicas(
        num_replicas=int(positive(times.table, "count", times.where)),
        stall_ns=times.needed_ns("stall"),
        away_ns=times.needed_ns("away"),
        catch_up_ns=times.time_ns("catch_up"),
        join_ns=times.time_ns("join"),
        lost_step_ns=times.time_ns("lost_step"),
        min_replicas=int(times.number("least", 1)),
        keeps_state=times.flag("keeps_state", default=True),
        joins_in_stall=times.flag("joins_in_stall", default=False),
    )

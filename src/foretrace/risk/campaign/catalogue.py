"""Campaigns by name: TOML files, with durations as people write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretrace.base import (
    NS_PER_DAY,
    NS_PER_HOUR,
    NS_PER_MINUTE,
    NS_PER_MS,
    NS_PER_S,
    Count,
    DescriptionKey,
    Document,
    RiskError,
    Share,
    Shelf,
    Whole,
    document_names,
    read_document,
    read_fields,
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

_UNITS = {
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "min": NS_PER_MINUTE,
    "h": NS_PER_HOUR,
    "d": NS_PER_DAY,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?(?:e-?\d+)?)\s*(ms|s|min|h|d)?\s*")
_LONGEST_NS = 1000 * 365 * NS_PER_DAY  # nine times longer does not fit 64 bits

_SHELF = Shelf(noun="campaign", presets=Path(__file__).parent / "presets", error=RiskError)
BEST = "best"  # a checkpoint interval that is found instead of stated
_UNSET_NS = 1  # an interval until it is


def duration_ns(text: str, what: str = "duration") -> int:
    """The duration that a text states, in ns; a bare `0` needs no unit.

    Raises:
        RiskError: if it is no number with a unit, or beyond a thousand years.
    """
    match = _DURATION.fullmatch(text)
    value = float(match[1]) if match else 0.0
    if match is None or (match[2] is None and value):
        raise RiskError(
            f"{what} is {text!r}: expected a number and {', '.join(_UNITS)}, as in 60min or 10s"
        )
    found = value * _UNITS[match[2] or "s"]
    if found > _LONGEST_NS:
        raise RiskError(f"{what} is {text!r}, which is beyond a thousand years: check its unit")
    return round(found)


def _time(name: str, *, is_required: bool = False) -> DescriptionKey:
    return DescriptionKey(
        name,
        str,
        field=f"{name}_ns",
        is_required=is_required,
        expected='a time, as in "5min",',
        made=duration_ns,
    )


def _interval_ns(text: str, where: str) -> int:
    return _UNSET_NS if text == BEST else duration_ns(text, where)


_KEYS_BY_TABLE = {
    "checkpoint": (
        replace(_time("interval", is_required=True), made=_interval_ns),
        *(_time("blocking"), _time("background")),
    ),
    "down": (_time("detection"), _time("queue"), _time("restart", is_required=True)),
    "fleet": (
        _time("repair"),
        DescriptionKey("spares", Whole, field="num_spares"),
        *(DescriptionKey(name, Share) for name in ("repaired_share", "lemon_share")),
        DescriptionKey("lemon_factor", Share),
        DescriptionKey("excluded_after", Whole),
    ),
    "preemption": (
        *(_time("every", is_required=True), _time("away", is_required=True)),
        DescriptionKey("has_notice", bool),
    ),
    "replicas": (
        *(_time("stall", is_required=True), _time("away", is_required=True)),
        *(_time("catch_up"), _time("join"), _time("lost_step")),
        DescriptionKey("count", Count, field="num_replicas", is_required=True),
        DescriptionKey("least", Whole, field="min_replicas"),
        DescriptionKey("keeps_state", bool),
        DescriptionKey("joins_in_stall", bool),
    ),
    "corruption": (
        _time("step"),
        DescriptionKey("upsets_per_host_day", Share, is_required=True),
        *(DescriptionKey(name, Share) for name in ("vulnerability", "coverage", "overhead")),
        DescriptionKey("restarts", bool),
    ),
}
_KEYS = (
    *(DescriptionKey(name, str) for name in ("kind", "title", "note", "failures")),
    DescriptionKey("hosts", Count, is_required=True),
    DescriptionKey("gpus_per_host", Count),
    DescriptionKey("failures_per_host_day", Share),
    DescriptionKey("while_down", WhileDown),
    *(
        DescriptionKey(table, dict[str, object], expected="a table")
        for table in (*_KEYS_BY_TABLE, "sources")
    ),
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

    def told(name: str) -> dict[str, Any]:
        own = f"[{name}] of {where}"
        return read_fields(stated.get(name, {}), _KEYS_BY_TABLE[name], own, error=RiskError)

    checkpoint = Checkpoint(**told("checkpoint"))
    campaign = Campaign(
        num_hosts=stated["hosts"],
        gpus_per_host=stated.get("gpus_per_host", 8),
        failures_per_host_day=rate,
        checkpoint=checkpoint,
        **told("down"),
        while_down=stated.get("while_down", WhileDown.NONE),
        fleet=Fleet(**{"repaired_share": repaired_share, **told("fleet")}),
        preemption=Preemption(**told("preemption")) if "preemption" in stated else None,
        replicas=Replicas(**told("replicas")) if "replicas" in stated else None,
        corruption=Corruption(**told("corruption")) if "corruption" in stated else None,
        name=document.name,
    )
    if stated.get("checkpoint", {}).get("interval") == BEST:
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


def _rate(document: Document, folders: Sequence[Path]) -> tuple[float, float]:
    """Failures per host and day, and the share after which a host is repaired."""
    table = document.table
    if ("failures" in table) == ("failures_per_host_day" in table):
        raise RiskError(f"{document.where} needs either 'failures' or 'failures_per_host_day'")
    if "failures" in table:
        rates = load_failures(document.text("failures"), (document.path.parent, *folders))
        return rates.per_host_day, rates.repaired_share
    return float(str(table["failures_per_host_day"])), 1.0

"""Failure rates by name: TOML files, found, extended and written as all descriptions are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from foretrace.base import (
    Count,
    DescriptionKey,
    Positive,
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
from foretrace.risk.failures.rates import Component, FailureList, FailureRates

_SHELF = Shelf(
    noun="failures",
    presets=Path(__file__).parent / "presets",
    error=RiskError,
    named_lists=("components",),
)
_KEYS = (
    *(DescriptionKey(name, str) for name in ("kind", "title", "note")),
    DescriptionKey("gpus_per_host", Count),
    DescriptionKey("observed", dict[str, object], expected="a table"),
    DescriptionKey(
        "components",
        Annotated[list[dict[str, object]], Meta(min_length=1)],
        expected="[[components]] at least once",
    ),
    DescriptionKey("sources", dict[str, object], expected="a table"),
)
_OBSERVED_KEYS = (
    DescriptionKey("hosts", Positive, is_required=True),
    DescriptionKey("days", Positive, is_required=True),
    DescriptionKey("source", str),
)
_COMPONENT_KEYS = (
    DescriptionKey("name", str, is_required=True),
    DescriptionKey("count", Whole),
    DescriptionKey("per_host_day", Share),
    DescriptionKey("takes_host", bool),
    DescriptionKey("source", str),
)


def failure_names(folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Names of all failure rates that are described, sorted."""
    return document_names(_SHELF, folders)


def load_failures(name_or_path: str | Path, folders: Sequence[Path] = ()) -> FailureRates:
    """The failure rates of that name, or in that TOML file.

    Raises:
        RiskError: if there are none, or the file is wrong.
    """
    document = read_document(name_or_path, _SHELF, folders)
    where = document.where
    stated = read_keys(document.table, _KEYS, where, error=RiskError)
    if "components" not in stated:
        raise RiskError(f"{where} has no components: write [[components]] at least once")
    host_days = _host_days(stated.get("observed"), where)
    rates = FailureRates(
        name=document.name,
        title=document.text("title"),
        components=tuple(_component(each, host_days, where) for each in stated["components"]),
        host_days=host_days,
        gpus_per_host=stated.get("gpus_per_host", 8),
        note=document.text("note"),
        sources=read_sources(document.table.get("sources"), where, error=RiskError),
    )
    _check_sources(rates, where)
    return rates


def _host_days(table: Table | None, where: str) -> float | None:
    if table is None:
        return None
    stated = read_keys(table, _OBSERVED_KEYS, f"[observed] of {where}", error=RiskError)
    host_days: float = stated["hosts"] * stated["days"]
    return host_days


def _component(entry: Table, host_days: float | None, where: str) -> Component:
    here = f"component {entry.get('name', '')!r} of {where}"
    stated = read_keys(entry, _COMPONENT_KEYS, here, error=RiskError)
    if ("count" in stated) == ("per_host_day" in stated):
        raise RiskError(f"{here} needs either a count or a rate per_host_day")
    if "per_host_day" in stated:
        return Component(**stated)
    if host_days is None:
        raise RiskError(f"{here} has a count, but [observed] with hosts and days is missing")
    return Component(per_host_day=stated["count"] / host_days, **stated)


def _check_sources(rates: FailureRates, where: str) -> None:
    known: Mapping[str, object] = rates.sources
    for each in rates.components:
        if each.source and each.source not in known:
            raise RiskError(
                f"component {each.name!r} of {where} names the source {each.source!r}, "
                f"which [sources] does not have: known are {', '.join(known) or 'none'}"
            )


def failures_toml(rates: FailureRates, num_hosts: int) -> str:
    """The text of a file.

    Args:
        rates: of which `host_days` is known wherever there are counts.
        num_hosts: that were watched.
    """
    lines = ['kind = "failures"', f"title = {_text(rates.title)}"]
    lines.append(f"gpus_per_host = {rates.gpus_per_host}")
    if rates.host_days is not None:
        lines += ["", "[observed]", f"hosts = {num_hosts}", f"days = {rates.host_days / num_hosts}"]
    for each in rates.components:
        lines += ["", "[[components]]", f"name = {_text(each.name)}", _number(each)]
        lines.append(f"takes_host = {str(each.takes_host).lower()}")
    return "\n".join(lines) + "\n"


def _number(component: Component) -> str:
    if component.count is None:
        return f"per_host_day = {component.per_host_day}"
    return f"count = {component.count}"


def _text(text: str) -> str:
    return json.dumps(text)  # a text of JSON is one of TOML


def all_failures(folders: Sequence[Path] = ()) -> FailureList:
    """Every catalogue of failure rates that is described.

    Raises:
        RiskError: if a file is wrong.
    """
    names = failure_names(folders)
    return FailureList(tuple(load_failures(name, folders) for name in names))

"""Failure rates by name: TOML files, found and extended as all descriptions are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from foretrace.risk.failures.rates import Component, FailureRates

_SHELF = Shelf(
    noun="failures",
    kinds=("failures",),
    presets=Path(__file__).parent / "presets",
    folder="",
    error=RiskError,
    named_lists=("components",),
)
_KEYS = ("kind", "title", "note", "gpus_per_host", "observed", "components", "sources")
_COMPONENT_KEYS = ("name", "count", "per_host_day", "takes_host", "source")


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
    check_keys(document.table, _KEYS, where, error=RiskError)
    sources = read_sources(document.table.get("sources"), where, error=RiskError)
    host_days = _host_days(document)
    rates = FailureRates(
        name=document.name,
        title=document.text("title"),
        components=tuple(
            _component(
                as_table(entry, f"a component of {where}", error=RiskError), host_days, where
            )
            for entry in _entries(document)
        ),
        host_days=host_days,
        gpus_per_host=int(positive(document.table, "gpus_per_host", where, default=8)),
        note=document.text("note"),
        sources=sources,
    )
    _check_sources(rates, where)
    return rates


def positive(
    table: Table, key: str, where: str, *, default: float | None = None, may_be_zero: bool = False
) -> float:
    """A number above zero under a key.

    Raises:
        RiskError: if it is missing without a default, no number, or not above zero.
    """
    value = table.get(key, default)
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        if number > 0 or (may_be_zero and number == 0):
            return number
    least = "of at least zero" if may_be_zero else "above zero"
    raise RiskError(f"{key!r} of {where} is {value!r}: write a number {least}")


def _entries(document: Document) -> Sequence[object]:
    entries = document.table.get("components")
    if not isinstance(entries, list) or not entries:
        raise RiskError(f"{document.where} has no components: write [[components]] at least once")
    return entries


def _host_days(document: Document) -> float | None:
    if "observed" not in document.table:
        return None
    where = f"[observed] of {document.where}"
    table = as_table(document.table["observed"], where, error=RiskError)
    check_keys(table, ("hosts", "days", "source"), where, error=RiskError)
    return positive(table, "hosts", where) * positive(table, "days", where)


def _component(entry: Table, host_days: float | None, where: str) -> Component:
    check_keys(entry, _COMPONENT_KEYS, f"a component of {where}", error=RiskError)
    name = entry.get("name")
    if not isinstance(name, str):
        raise RiskError(f'a component of {where} has no name: write name = "..."')
    here = f"component {name!r} of {where}"
    if ("count" in entry) == ("per_host_day" in entry):
        raise RiskError(f"{here} needs either a count or a rate per_host_day")
    takes_host = entry.get("takes_host", True)
    if not isinstance(takes_host, bool):
        raise RiskError(f"'takes_host' of {here} is {takes_host!r}: write true or false")
    source = str(entry.get("source", ""))
    if "per_host_day" in entry:
        rate = positive(entry, "per_host_day", here, may_be_zero=True)
        return Component(name, rate, takes_host=takes_host, source=source)
    if host_days is None:
        raise RiskError(f"{here} has a count, but [observed] with hosts and days is missing")
    count = int(positive(entry, "count", here, may_be_zero=True))
    return Component(name, count / host_days, count, takes_host, source)


def _check_sources(rates: FailureRates, where: str) -> None:
    known: Mapping[str, object] = rates.sources
    for each in rates.components:
        if each.source and each.source not in known:
            raise RiskError(
                f"component {each.name!r} of {where} names the source {each.source!r}, "
                f"which [sources] does not have: known are {', '.join(known) or 'none'}"
            )

"""Failure rates by name, from TOML files, or from the user's own log of failures.

Columns: `time` (ISO 8601), and if known `component` and `host`. Other columns are left alone.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta

from foretrace.answer import Answer, Sentences, Told, plain
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

_UNNAMED = "not said"
_LEMON_CHANCE = 0.01  # that any host is called a lemon by mistake
_FEWEST_ROWS = 2
# A gap's distance beyond which the log's failures do not come at a constant rate is
# 1.36 / sqrt(n) for a known mean (Kolmogorov and Smirnov at 5%); estimating it makes that strict.
_KS_5_PERCENT = 1.36
_SECONDS_PER_DAY = 86_400


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


@dataclass(frozen=True)
class HostFailures:
    """A host that failed, and how likely so many failures are if all hosts are alike."""

    host: str
    count: int
    chance: float  # of a given host having this many or more, by chance
    is_lemon: bool  # too unlikely even for the worst of all hosts


@dataclass(frozen=True, repr=False)
class FailureLog(Answer):
    """What a log says."""

    rates: FailureRates
    hosts: tuple[HostFailures, ...]  # most failures first; empty if the log names no hosts
    # Largest distance between the gaps' distribution and the exponential one of the same mean,
    # 0 to 1: failures that come in bursts are far from it.
    gap_distance: float

    @property
    def lemons(self) -> tuple[HostFailures, ...]:
        """Hosts that fail more often than chance explains."""
        return tuple(each for each in self.hosts if each.is_lemon)

    @property
    def headline(self) -> str:
        """That of the rates."""
        return self.rates.headline

    def parts(self) -> tuple[Told, ...]:
        """One row a cause, then what hosts and gaps say."""
        return *self.rates.parts(), Sentences.of("to know", self._notes())

    def _notes(self) -> Iterator[str]:
        for each in self.lemons[:5]:
            yield (
                f"host {each.host} failed {each.count} times: so many have a chance of "
                f"{each.chance:.1g} if all hosts are alike"
            )
        if self.gap_distance > _KS_5_PERCENT / math.sqrt(self.rates.count or 1):
            yield (
                f"failures come in bursts or by schedule, not at a constant rate (distance "
                f"{self.gap_distance:.2f}): formulas and simulations here take a constant one"
            )

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        return {
            **self.rates.as_json(),
            "gap_distance": self.gap_distance,
            "lemons": plain(self.lemons),
        }


def read_failure_log(
    path: Path,
    *,
    num_hosts: int,
    days: float | None = None,
    host_causes: Sequence[str] | None = None,
) -> FailureLog:
    """Rates, hosts and gaps of a log.

    Args:
        path: a CSV file.
        num_hosts: hosts that were watched, failing or not.
        days: how long they were watched; without, from the first failure to the last, which
            counts one failure less than there are.
        host_causes: components whose failures take the host away; all, if left out.

    Raises:
        RiskError: if the file has no failures, or a row cannot be read.
    """
    if num_hosts < 1 or (days is not None and days <= 0):
        raise RiskError(f"{num_hosts} hosts in {days} days: both have to be above zero")
    try:
        rows = sorted(_rows(path), key=lambda row: row[0])
    except (UnicodeDecodeError, csv.Error) as err:
        raise RiskError(f"{str(path)!r} is no CSV file in UTF-8: {err}") from err
    if len(rows) < _FEWEST_ROWS:
        raise RiskError(f"{str(path)!r} has {len(rows)} failures: rates need two at least")
    times = np.array([row[0] for row in rows])
    span = float(times[-1] - times[0]) / _SECONDS_PER_DAY
    watched = days if days is not None else span * len(rows) / (len(rows) - 1)
    if watched < span or not watched:
        raise RiskError(f"{str(path)!r} spans {span:.3g} days of failures, watched were {watched}")
    host_days = num_hosts * watched
    causes = Counter(row[1] for row in rows)
    rates = FailureRates(
        name=path.stem,
        title=f"{len(rows)} failures of {num_hosts:,} hosts in {watched:.4g} days",
        components=tuple(
            Component(name, count / host_days, count, host_causes is None or name in host_causes)
            for name, count in causes.most_common()
        ),
        host_days=host_days,
    )
    hosts = Counter(row[2] for row in rows if row[2])
    return FailureLog(rates, tuple(_hosts(hosts, num_hosts)), _gap_distance(np.diff(times)))


def _rows(path: Path) -> Iterator[tuple[float, str, str]]:
    """Time in s, component and host of every failure."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if "time" not in (reader.fieldnames or ()):
            found = ", ".join(reader.fieldnames or ()) or "nothing"
            raise RiskError(f"{str(path)!r} has the columns {found}: expected time at least")
        for row in reader:
            component = (row.get("component") or "").strip() or _UNNAMED
            host = (row.get("host") or "").strip()
            yield _seconds(row, path, reader.line_num), component, host


def _seconds(row: Mapping[str, str | None], path: Path, line: int) -> float:
    text = (row["time"] or "").strip()
    try:
        found = datetime.fromisoformat(text)
    except ValueError as err:
        raise RiskError(
            f"line {line} of {str(path)!r} has the time {text!r}: expected 2026-01-31T23:59:00"
        ) from err
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _hosts(counts: Mapping[str, int], num_hosts: int) -> Iterator[HostFailures]:
    # scipy takes a fifth of a second to import
    from scipy.special import gammainc

    mean = sum(counts.values()) / num_hosts
    for host, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        chance = float(gammainc(count, mean))  # of a Poisson number being `count` or more
        yield HostFailures(host, count, chance, chance < _LEMON_CHANCE / num_hosts)


def _gap_distance(gaps: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    mean = float(gaps.mean())
    if not mean:
        return 1.0
    expected = 1 - np.exp(-np.sort(gaps) / mean)
    steps = np.arange(len(gaps) + 1) / len(gaps)
    above, below = np.abs(steps[1:] - expected), np.abs(steps[:-1] - expected)
    return float(max(above.max(), below.max()))

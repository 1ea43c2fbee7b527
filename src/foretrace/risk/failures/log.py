"""Failure rates from the user's own log: a CSV file with a row for every failure.

Columns: `time` (ISO 8601), and if known `component` and `host`. Other columns are left alone.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from foretrace.answer import Answer, Sentences, Told, plain
from foretrace.base import RiskError
from foretrace.risk.failures.rates import Component, FailureRates

_UNNAMED = "not said"
_LEMON_CHANCE = 0.01  # that any host is called a lemon by mistake
_FEWEST_ROWS = 2
# A gap's distance beyond which the log's failures do not come at a constant rate is
# 1.36 / sqrt(n) for a known mean (Kolmogorov and Smirnov at 5%); estimating it makes that strict.
_KS_5_PERCENT = 1.36
_SECONDS_PER_DAY = 86_400


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

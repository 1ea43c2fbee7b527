"""`FailureRates`: failures per host and day, by component, with what they were counted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from foretrace.answer import Answer, Column, Sentences, Table, Told, Unit
from foretrace.base import NS_PER_DAY, Citation, Int64s


@dataclass(frozen=True)
class Component:
    """One cause of failures."""

    name: str
    per_host_day: float
    count: int | None = None  # failures that were seen; `None`: only the rate is known
    takes_host: bool = True  # the host is exchanged, and has to be repaired
    source: str = ""  # a key of `FailureRates.sources`


@dataclass(frozen=True, kw_only=True, repr=False)
class FailureRates(Answer):
    """Causes of failures, and how long they were watched for."""

    name: str
    title: str = ""
    components: tuple[Component, ...]
    host_days: float | None = None  # that were watched; `None`: not known
    gpus_per_host: int = 8
    note: str = ""
    sources: Mapping[str, Citation] = field(default_factory=dict)

    @property
    def per_host_day(self) -> float:
        """Failures of one host in a day."""
        return sum(each.per_host_day for each in self.components)

    @property
    def count(self) -> int | None:
        """Failures that were seen, of all causes; `None`: not known."""
        counts = [each.count for each in self.components if each.count is not None]
        return sum(counts) if len(counts) == len(self.components) else None

    @property
    def repaired_share(self) -> float:
        """Share of failures after which the host has to be repaired."""
        taken = sum(each.per_host_day for each in self.components if each.takes_host)
        return taken / self.per_host_day if self.per_host_day else 0.0

    def mttf_ns(self, num_hosts: int) -> float:
        """Mean time to the first failure among so many hosts; infinite if none fails."""
        return mttf_ns(num_hosts, self.per_host_day)

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Failures per host and day that are compatible with what was counted; `None`: not known.

        Args:
            level: how sure.
        """
        if self.count is None or self.host_days is None:
            return None
        return rate_interval(self.count, self.host_days, level=level)

    def drawn(
        self, num_hosts: int, duration_ns: int, *, num_samples: int = 1000, seed: int = 0
    ) -> Int64s:
        """Failures of each cause in so long a time, drawn: int64[samples, components].

        Failures that come at a constant rate, each of a cause by chance, are independent Poisson
        numbers by cause.
        """
        random = np.random.default_rng(seed)
        host_days = num_hosts * duration_ns / NS_PER_DAY
        means = np.array([each.per_host_day for each in self.components]) * host_days
        return random.poisson(means, size=(num_samples, len(means))).astype(np.int64)

    @property
    def headline(self) -> str:
        """What was counted, and what it comes to."""
        interval = self.interval()
        seen = "" if self.count is None else f"{self.count:,} failures, "
        odds = "" if interval is None else f" ({1e3 * interval[0]:.3g} to {1e3 * interval[1]:.3g})"
        return (
            f"{self.name}: {self.title}; {seen}{1e3 * self.per_host_day:.3g}{odds} per 1000 hosts "
            f"and day, {100 * self.repaired_share:.1f} % of them take the host"
        )

    def parts(self) -> tuple[Told, ...]:
        """One row a cause, and who says so."""
        sources = (f"{each.title}, {each.url}" for each in self.sources.values())
        return self._causes(), Sentences.of("sources", sources)

    def _causes(self) -> Table:
        """Failures of one host in a day, with the interval."""
        return Table.of(
            "components",
            self.components,
            Column("component", value="name"),
            Column("count", unit=Unit.COUNT),
            Column("per_host_day", unit=Unit.NUMBER),
            Column("low_per_host_day", "2.5 %", Unit.NUMBER, lambda one: self._interval(one)[0]),
            Column("high_per_host_day", "97.5 %", Unit.NUMBER, lambda one: self._interval(one)[1]),
            Column("share", value=self._share),
            Column("takes_host", unit=Unit.FLAG),
        )

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values; rates per host and day."""
        return {
            "name": self.name,
            "title": self.title,
            "per_host_day": self.per_host_day,
            "interval": self.interval(),
            "host_days": self.host_days,
            "repaired_share": self.repaired_share,
            "components": self.table().as_json(),
            "note": self.note,
            "sources": {key: each.url for key, each in self.sources.items()},
        }

    def _interval(self, component: Component) -> tuple[float | None, float | None]:
        if component.count is None or self.host_days is None:
            return None, None
        return rate_interval(component.count, self.host_days)

    def _share(self, component: Component) -> float:
        return component.per_host_day / self.per_host_day if self.per_host_day else 0.0


@dataclass(frozen=True, repr=False)
class FailureList(Answer):
    """Everything that is described."""

    note = "`foretrace risk failures NAME` has the rate of every component"

    failures: tuple[FailureRates, ...]

    @property
    def headline(self) -> str:
        """How many there are."""
        return f"{len(self.failures)} catalogues of failures"

    def parts(self) -> tuple[Told, ...]:
        """A row each."""
        return (
            Table.of(
                "failures",
                self.failures,
                Column("name", unit=Unit.WORD),
                Column("title", "of"),
                Column("per_host_day", unit=Unit.NUMBER),
            ),
        )


def mttf_ns(num_hosts: int, failures_per_host_day: float) -> float:
    """Mean time to the first failure among so many hosts: 1 / (N r); infinite if none fails.

    Source:
        Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research
        Clusters", arXiv:2410.21680.
    """
    per_day = num_hosts * failures_per_host_day
    return NS_PER_DAY / per_day if per_day else float("inf")


def rate_interval(count: int, exposure: float, *, level: float = 0.95) -> tuple[float, float]:
    """Rates at which so many or so few events in `exposure` are not too unlikely.

    Source:
        The exact interval of a Poisson mean: F. Garwood, Biometrika 28 (1936), 437-442.
    """
    # scipy takes a fifth of a second to import
    from scipy.special import gammaincinv

    tail = (1 - level) / 2
    low = float(gammaincinv(count, tail)) if count else 0.0
    return low / exposure, float(gammaincinv(count + 1, 1 - tail)) / exposure

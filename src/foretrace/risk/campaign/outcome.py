"""`Outcome`: where the time of simulated campaigns went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from foretrace.answer import (
    Answer,
    Column,
    Fact,
    Facts,
    Table,
    Told,
    Unit,
    cell_text,
    long_duration_text,
)
from foretrace.base import NS_PER_DAY, Bools, Float64s, Int64s
from foretrace.risk.campaign.campaign import Campaign

_ODDS = (0.05, 0.5, 0.95)


class Account(StrEnum):
    """What time is spent on; the accounts of a campaign sum to its wall time."""

    PRODUCTIVE = "productive"  # training that is kept
    REWORK = "rework"  # training that is lost and has to be done again
    CHECKPOINT = "checkpoint"  # standing still for a checkpoint
    DETECTION = "detection"  # a failure has happened and nobody knows
    QUEUE = "queue"  # for the scheduler
    WAITING = "waiting"  # for a repaired host or a lost replica, with no spare left
    RESTART = "restart"
    PREEMPTED = "preempted"
    STALL = "stall"  # replicas stand still because one is lost or comes back
    ABSENT = "absent"  # the lost replicas' part of the time in which the others train
    CHECK = "check"  # the checks' part of steps that are kept
    RECOMPUTED = "recomputed"  # steps in which a check found something


_OF_CHECKS = (Account.CHECK, Account.RECOMPUTED)


def accounts_of(campaign: Campaign) -> tuple[Account, ...]:
    """What its time can be spent on."""
    return tuple(one for one in Account if campaign.corruption or one not in _OF_CHECKS)


@dataclass(frozen=True, repr=False)
class Outcome(Answer):
    """Simulated campaigns, one a sample."""

    campaign: Campaign
    spent_ns: Int64s  # int64[samples, accounts], in the order of `Account`
    wall_ns: Int64s  # int64[samples]
    num_failures: Int64s  # int64[samples]
    num_waits: Int64s  # int64[samples]: failures for which no spare was left
    num_excluded: Int64s  # int64[samples]: hosts that another machine took the place of
    num_preemptions: Int64s  # int64[samples]
    is_finished: Bools  # bool[samples]: the work was done before the time was over
    # int64[samples, replicas + 1]: time in which so many replicas trained; `None` without.
    replicas_ns: Int64s | None = None
    num_silent: Int64s | None = None  # int64[samples]: wrong results that nobody noticed
    num_found: Int64s | None = None  # int64[samples]: those that a check found

    @property
    def effective(self) -> Float64s:
        """Share of wall time that is productive: float64[samples]."""
        return np.asarray(self.spent_ns[:, 0] / self.wall_ns, dtype=np.float64)

    @property
    def mean_effective(self) -> float:
        """Mean of `effective`."""
        return float(self.effective.mean())

    @property
    def standard_error(self) -> float:
        """Of `mean_effective`; zero for one sample, which cannot say."""
        samples = self.effective
        return float(samples.std(ddof=1) / np.sqrt(samples.size)) if samples.size > 1 else 0.0

    def share(self, account: Account) -> float:
        """Mean share of wall time."""
        place = list(Account).index(account)
        return float((self.spent_ns[:, place] / self.wall_ns).mean())

    def odds(self) -> dict[str, float]:
        """Effective time that 5%, half and 95% of campaigns stay below."""
        return {f"p{100 * each:.0f}": float(np.quantile(self.effective, each)) for each in _ODDS}

    @property
    def stall_per_failure_ns(self) -> float:
        """Mean time that all stand still for one failure; zero if nothing failed."""
        accounts = list(Account)
        standing = [
            accounts.index(each)
            for each in (
                Account.DETECTION, Account.QUEUE, Account.WAITING, Account.RESTART, Account.STALL,
            )
        ]  # fmt: skip
        return self._per_failure_ns(float(self.spent_ns[:, standing].sum()))

    @property
    def rework_per_failure_ns(self) -> float:
        """Mean work that one failure costs; zero if nothing failed."""
        return self._per_failure_ns(float(self.spent_ns[:, 1].sum()))

    def batch(self) -> dict[str, float]:
        """Batch size while training, as a share of the full one: mean, deviation, share of full.

        Each replica trains its own part of a batch, so a lost one makes it smaller.
        """
        if self.replicas_ns is None:
            return {"mean": 1.0, "deviation": 0.0, "full": 1.0}
        trained = self.replicas_ns.sum(axis=0).astype(np.float64)
        if not trained.sum():
            return {"mean": 0.0, "deviation": 0.0, "full": 0.0}
        weight = trained / trained.sum()
        size = np.arange(trained.size) / (trained.size - 1)
        mean = float((weight * size).sum())
        deviation = float(np.sqrt((weight * (size - mean) ** 2).sum()))
        return {"mean": mean, "deviation": deviation, "full": float(weight[-1])}

    @property
    def headline(self) -> str:
        """Effective time, and of what."""
        effective = cell_text(self.mean_effective, Unit.SHARE)
        return f"{effective} of the time is effective: {self.campaign.subject}"

    def parts(self) -> tuple[Told, ...]:
        """What matters first, then every account that something was spent on."""
        return Facts(tuple(Fact(*figure) for figure in self._figures())), self._accounts()

    def tables(self) -> tuple[Table, ...]:
        """Every campaign, with its wall time and all accounts in ns; and the accounts' shares."""
        accounts = accounts_of(self.campaign)
        campaigns = Table.of_columns(
            "campaigns",
            (Column("wall_ns"), self.wall_ns),
            *((Column(f"{each}_ns"), self.spent_ns[:, at]) for at, each in enumerate(accounts)),
            (Column("num_failures"), self.num_failures),
            (Column("num_waits"), self.num_waits),
            (Column("num_excluded"), self.num_excluded),
            (Column("num_preemptions"), self.num_preemptions),
            *(
                (Column(name), column)
                for name, column in (("num_silent", self.num_silent), ("num_found", self.num_found))
                if column is not None
            ),
            (Column("is_finished"), self.is_finished),
            (Column("effective", unit=Unit.NUMBER), self.effective),
        )
        return campaigns, self._accounts()

    def _figures(self) -> Iterator[tuple[str, str]]:
        odds = self.odds()
        yield "effective time", cell_text(self.mean_effective, Unit.SHARE)
        low, high = (cell_text(odds[each], Unit.SHARE) for each in ("p5", "p95"))
        yield "in 90% of campaigns", f"{low} to {high}"
        yield "failures", f"{self.num_failures.mean():,.0f} +- {self.num_failures.std():,.0f}"
        yield "stall per failure", long_duration_text(self.stall_per_failure_ns)
        yield "lost work per failure", long_duration_text(self.rework_per_failure_ns)
        if self.num_waits.any() and self.campaign.fleet.repair_ns:
            yield "without a spare", f"{self.num_waits.mean():,.0f} of these"
        if self.num_excluded.any():
            yield "hosts excluded", f"{self.num_excluded.mean():,.0f}"
        if self.num_preemptions.any():
            yield "preemptions", f"{self.num_preemptions.mean():,.0f}"
        if self.num_silent is not None and self.num_found is not None:
            found = f"{self.num_found.mean():,.3g} found"
            yield "silent corruptions", f"{self.num_silent.mean():,.3g}, {found}"
        if self.replicas_ns is not None:
            batch = self.batch()
            mean, varies = (cell_text(batch[each], Unit.SHARE) for each in ("mean", "deviation"))
            yield "batch while training", f"{mean} of full, +- {varies}"

    def _accounts(self) -> Table:
        shares = ((each, self.share(each)) for each in Account)
        return Table(
            "accounts",
            "where the time goes",
            (Column("account", "time"), Column("share")),
            tuple((each.value, share) for each, share in shares if share > 0),
        )

    def as_json(self) -> dict[str, object]:
        """Means over samples, and the odds of effective time."""
        return {
            "campaign": self.campaign.as_json(),
            "num_samples": int(self.wall_ns.size),
            "effective": self.mean_effective,
            "standard_error": self.standard_error,
            "odds": self.odds(),
            "shares": {each.value: self.share(each) for each in accounts_of(self.campaign)},
            "days": float(self.wall_ns.mean()) / NS_PER_DAY,
            "failures": float(self.num_failures.mean()),
            "waits": float(self.num_waits.mean()),
            "excluded": float(self.num_excluded.mean()),
            "preemptions": float(self.num_preemptions.mean()),
            "finished_share": float(self.is_finished.mean()),
            "stall_per_failure_ns": self.stall_per_failure_ns,
            "rework_per_failure_ns": self.rework_per_failure_ns,
            "batch": self.batch(),
            **{
                name: float(column.mean())
                for name, column in (("silent", self.num_silent), ("found", self.num_found))
                if column is not None
            },
        }

    def _per_failure_ns(self, sum_ns: float) -> float:
        failures = int(self.num_failures.sum())
        return sum_ns / failures if failures else 0.0

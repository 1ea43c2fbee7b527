"""`Outcome`: where the time of simulated campaigns went."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import NS_PER_DAY, Bools, Float64s, Int64s
from foretrace.risk.campaign.campaign import Campaign

if TYPE_CHECKING:
    import polars as pl

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


@dataclass(frozen=True)
class Outcome:
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

    def to_frame(self) -> pl.DataFrame:
        """One row a sample: wall time, every account in ns, failures, `effective`."""
        import polars as pl  # slow to import, wanted in tables only

        return pl.DataFrame(
            {
                "wall_ns": self.wall_ns,
                **{f"{each}_ns": self.spent_ns[:, at] for at, each in enumerate(Account)},
                "num_failures": self.num_failures,
                "num_waits": self.num_waits,
                "num_excluded": self.num_excluded,
                "num_preemptions": self.num_preemptions,
                "is_finished": self.is_finished,
                "effective": self.effective,
            }
        )

    def as_json(self) -> dict[str, object]:
        """Means over samples, and the odds of effective time."""
        return {
            "campaign": self.campaign.as_json(),
            "num_samples": int(self.wall_ns.size),
            "effective": self.mean_effective,
            "standard_error": self.standard_error,
            "odds": self.odds(),
            "shares": {each.value: self.share(each) for each in Account},
            "days": float(self.wall_ns.mean()) / NS_PER_DAY,
            "failures": float(self.num_failures.mean()),
            "waits": float(self.num_waits.mean()),
            "excluded": float(self.num_excluded.mean()),
            "preemptions": float(self.num_preemptions.mean()),
            "finished_share": float(self.is_finished.mean()),
            "stall_per_failure_ns": self.stall_per_failure_ns,
            "rework_per_failure_ns": self.rework_per_failure_ns,
            "batch": self.batch(),
        }

    def _per_failure_ns(self, sum_ns: float) -> float:
        failures = int(self.num_failures.sum())
        return sum_ns / failures if failures else 0.0

"""Silent corruptions: how many there are, how many checks leave, and what checks cost a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from foretrace.answer import Answer, Column, Sentences, Shown, Table, Told, Unit, number_text
from foretrace.base import NS_PER_DAY, RiskError
from foretrace.estimate import estimate
from foretrace.machine import Machine
from foretrace.risk.campaign.campaign import Campaign, Corruption
from foretrace.risk.campaign.outcome import Account, Outcome
from foretrace.risk.campaign.simulate import simulate_campaign
from foretrace.whatif import Check, predict_estimate
from foretrace.workload import Model, Plan

_DAYS = 30.0  # of a month
_SCALES = (1 / 64, 1 / 8, 1.0, 8.0)
# Corruptions of one host in a day that were noticed: 6 of 2,048 hosts in 54 days.
# Source: "The Llama 3 Herd of Models", arXiv:2407.21783, table 5.
OBSERVED_PER_HOST_DAY = 6 / (2048 * 54)

_HOURS = 24.0
_PER_FIT = 1e-9  # failures of an hour
_BITS_PER_MBIT = 1e6


@dataclass(frozen=True, kw_only=True)
class OperatorCheck:
    """What a check costs of a step, and which share of corruptions it finds."""

    name: str
    overhead: float = 0.0
    coverage: float = 0.0


@dataclass(frozen=True, kw_only=True)
class CorruptionAccount:
    """A campaign with one check; shares of wall time sum to 1."""

    check: OperatorCheck
    silent_per_month: float
    found_per_month: float
    productive_share: float
    check_share: float
    recomputed_share: float
    other_share: float  # all that failures cost
    restarted_share: float  # productive, if a find restarted the job from its checkpoint

    def __post_init__(self) -> None:
        """Time is neither made nor lost."""
        parts = (
            self.productive_share,
            self.check_share,
            self.recomputed_share,
            self.other_share,
        )
        if abs(sum(parts) - 1) > 1e-9:  # noqa: PLR2004  rounding of four sums
            raise ValueError(f"shares of time sum to {sum(parts)}")


@dataclass(frozen=True, repr=False)
class SilentCorruption(Answer):
    """No check, and each of several."""

    json_names: ClassVar = {"rows": "checks"}

    campaign: Campaign
    per_host_day: float
    rows: tuple[CorruptionAccount, ...]

    @property
    def headline(self) -> str:
        """What is left without a check, and with the best."""
        plain = self.rows[0]
        best = min(self.rows, key=lambda one: (one.silent_per_month, one.check_share))
        told = f"{number_text(plain.silent_per_month)} silent corruptions a month without a check"
        if best is plain:
            return f"{told}: {self.campaign.subject}"
        return (
            f"{told}, {number_text(best.silent_per_month)} with {best.check.name}, which takes "
            f"{number_text(100 * best.check_share)} % of the time: {self.campaign.subject}"
        )

    def parts(self) -> tuple[Told, ...]:
        """A row each."""
        table = Table.of(
            "checks",
            self.rows,
            Column("check", unit=Unit.WORD, value="check.name"),
            Column("overhead", "of a step", Unit.SHARE, "check.overhead"),
            Column("coverage", unit=Unit.SHARE, value="check.coverage"),
            Column("silent_per_month", "silent a month", Unit.NUMBER),
            Column("found_per_month", "found", Unit.NUMBER),
            Column("productive_share"),
            Column("check_share", shown=Shown.FILES),
            Column("recomputed_share"),
            Column("other_share", shown=Shown.FILES),
            Column("restarted_share", "productive, restarted"),
        )
        return table, self._scales(), Sentences.of("to know", self._notes())

    def _scales(self) -> Table:
        """Silent corruptions a month on fewer and more GPUs of the same kind."""
        gpus = self.campaign.num_gpus
        names = (row.check.name for row in self.rows)
        return Table(
            "scales",
            "silent corruptions a month by number of GPUs",
            (
                Column("gpus", unit=Unit.COUNT),
                *(Column(f"silent_{name}", name, Unit.NUMBER) for name in names),
            ),
            tuple(
                (round(gpus * share), *(row.silent_per_month * share for row in self.rows))
                for share in _SCALES
                if gpus * share >= 1
            ),
        )

    def _notes(self) -> Iterator[str]:
        yield (
            "a find costs the step that it is in, which is computed again; the last column is for "
            "jobs that restart from their checkpoint instead"
        )


def silent_corruption(
    campaign: Campaign,
    *,
    step_ns: int,
    upsets_per_host_day: float = OBSERVED_PER_HOST_DAY,
    vulnerability: float = 1.0,
    checks: Sequence[OperatorCheck] = (),
    num_samples: int = 200,
    seed: int = 0,
) -> SilentCorruption:
    """Silent corruptions of a campaign a month, without a check and with each.

    Args:
        campaign: the job, with the failures that stop it.
        step_ns: of training, without a check.
        upsets_per_host_day: faults of one host.
        vulnerability: share of them that make an output wrong (`foretrace numerics campaign`).
        checks: to compare.
        num_samples: simulated campaigns.
        seed: the same one gives the same result.

    Raises:
        RiskError: if a share is not between 0 and 1, or a time or rate below 0.
    """
    shares = (vulnerability, *(one.coverage for one in checks))
    if not all(0 <= one <= 1 for one in shares):
        raise RiskError("vulnerability and coverage are shares: give them between 0 and 1")
    if step_ns <= 0 or upsets_per_host_day < 0 or any(one.overhead < 0 for one in checks):
        raise RiskError(
            f"a step of {step_ns} ns and {upsets_per_host_day:g} upsets with these overheads: the "
            "step has to be above zero, all others zero or more"
        )
    per_host_day = upsets_per_host_day * vulnerability
    rows = []
    for one in (OperatorCheck(name="none"), *checks):
        corruption = Corruption(
            upsets_per_host_day=upsets_per_host_day,
            vulnerability=vulnerability,
            coverage=one.coverage,
            overhead=one.overhead,
            step_ns=step_ns,
        )
        outcomes = [
            simulate_campaign(
                replace(campaign, corruption=replace(corruption, restarts=restarts)),
                duration_ns=round(_DAYS * NS_PER_DAY),
                num_samples=num_samples,
                seed=seed,
            )
            for restarts in (False, True)
        ]
        rows.append(_account(corruption, one, outcomes))
    return SilentCorruption(campaign, per_host_day, tuple(rows))


def _account(
    corruption: Corruption, check: OperatorCheck, outcomes: Sequence[Outcome]
) -> CorruptionAccount:
    """Where a month goes if found steps are computed again, and if the job restarts."""
    again, restarted = outcomes
    hosts = again.campaign.num_hosts
    shares = {each: again.share(each) for each in Account}
    kept = shares.pop(Account.PRODUCTIVE)
    return CorruptionAccount(
        check=check,
        silent_per_month=hosts * corruption.silent_per_host_day * _DAYS,
        found_per_month=hosts * corruption.found_per_host_day * _DAYS,
        productive_share=kept,
        check_share=shares.pop(Account.CHECK),
        recomputed_share=shares.pop(Account.RECOMPUTED),
        other_share=sum(shares.values()),
        restarted_share=restarted.share(Account.PRODUCTIVE),
    )


@dataclass(frozen=True)
class CheckedStep:
    """A plan's step, and the same with each check."""

    step_ns: int
    num_hosts: int
    gpus_per_host: int
    parameter_bytes: int  # of one GPU
    checks: tuple[OperatorCheck, ...]

    def upsets_per_host_day(self, fit_per_mbit: float) -> float:
        """Upsets in the parameters that a host's GPUs hold."""
        mbit = 8 * self.parameter_bytes * self.gpus_per_host / _BITS_PER_MBIT
        return fit_per_mbit * mbit * _PER_FIT * _HOURS


def checked_step(
    model: Model, plan: Plan, machine: Machine, *, coverage: Mapping[str, float]
) -> CheckedStep:
    """The estimated step, and what each check makes of it.

    Args:
        model: what is trained.
        plan: on how many ranks.
        machine: the ranks' machine.
        coverage: of every check by its name, as `whatif --check` has them: "sums", "twice".

    Raises:
        RiskError: if the model has no footprint, or a host no GPUs.
        ScenarioError: for a check that does not exist.
    """
    base = estimate(model, plan, machine)
    if base.footprint is None:
        raise RiskError(f"{model.name} has no parameters that could be counted: name another model")
    gpus = min(machine.tiers[0].num_ranks, plan.num_ranks)
    checks = []
    for name, share in coverage.items():
        step_ns = predict_estimate(base, (Check(name),)).step_ns
        overhead = max(step_ns / base.step_ns - 1, 0.0)
        checks.append(OperatorCheck(name=name, overhead=overhead, coverage=share))
    return CheckedStep(
        step_ns=base.step_ns,
        num_hosts=-(-plan.num_ranks // gpus),
        gpus_per_host=gpus,
        parameter_bytes=base.footprint.peak.parameters,
        checks=tuple(checks),
    )

"""Answers about failures as tables of at most 80 columns, and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rich.console import Console

from foretrace.answer import bytes_text, count_text
from foretrace.base import NS_PER_S
from foretrace.cli.tables import (
    name_text,
    plain_table,
    print_section,
    print_sentences,
    share_text,
)
from foretrace.report import RiskPage, RiskTable
from foretrace.risk import (
    Account,
    Campaign,
    CampaignSweep,
    Ettr,
    FailureLog,
    FailureRates,
    Outcome,
    ReplicaSizes,
    SchemeComparison,
    TrainingTime,
    WhileDown,
)

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
_THREE_DIGITS, _TWO_DIGITS = 100, 10
_NO_DIGITS = 1_000
# A gap's distance beyond which the log's failures do not come at a constant rate is
# 1.36 / sqrt(n) for a known mean (Kolmogorov and Smirnov at 5%); estimating it makes that strict.
_KS_5_PERCENT = 1.36


def time_text(duration_ns: float) -> str:
    """A duration as campaigns have them: `7.9 min`, `3.1 h`, `54.0 d`, `12.0 s`."""
    if math.isinf(duration_ns):
        return "never"
    seconds = duration_ns / NS_PER_S
    if not seconds:
        return "0 s"
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds)} s"


def _digits(value: float) -> str:
    if value >= _THREE_DIGITS:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= _TWO_DIGITS else f"{value:.2f}"


def subject_text(campaign: Campaign) -> str:
    """What a campaign is, in a line."""
    hosts = f"{campaign.num_gpus:,} GPUs on {count_text(campaign.num_hosts, 'host')}"
    if math.isinf(campaign.mttf_ns):
        return f"{hosts}, which never fail"
    rate = f"{1000 * campaign.failures_per_host_day:.3g} failures per 1000 host-days"
    return f"{hosts}, {rate}: one every {time_text(campaign.mttf_ns)}"


def print_ettr(console: Console, found: Ettr) -> None:
    """Print effective time four ways, and the best interval."""
    campaign = found.campaign
    console.print(subject_text(campaign), style="bold")
    table = plain_table("", "effective", "", text_columns=(0, 2))
    for name, value, remark in ettr_rows(found):
        table.add_row(name, value, remark)
    print_section(console, "", table)
    print_sentences(console, "checkpoints", _interval_sentences(found))


def ettr_rows(found: Ettr) -> list[tuple[str, str, str]]:
    """Name, value and remark of every form."""
    loss = f"N r (u0 + dt/2) = {found.linear_loss:.3f}"
    holds = f"holds: {loss}" if found.linear_holds else f"does not hold: {loss} is above 0.1"
    rows = [("linear", f"{found.linear:.4f}", f"published; {holds}")]
    if found.campaign.queue_ns:
        rows.append(("queued", f"{found.queued:.4f}", "published, with queues; holds as linear"))
    rows.append(("renewal", f"{found.renewal:.4f}", "exact, for hosts enough"))
    samples = count_text(found.outcome.wall_ns.size, "campaign")
    error = f"+- {found.outcome.standard_error:.4f}, {samples}"
    rows.append(("simulated", f"{found.simulated:.4f}", error))
    return rows


def _interval_sentences(found: Ettr) -> Iterable[str]:
    checkpoint = found.campaign.checkpoint
    yield (
        f"every {time_text(checkpoint.interval_ns)} now, {time_text(checkpoint.blocking_ns)} each"
    )
    if found.target is not None and found.longest_restart_ns is not None:
        longest = time_text(found.longest_restart_ns)
        yield (
            f"{found.target:g} effective needs restarts of at most {longest}, all else as it is"
            if found.longest_restart_ns >= 0
            else f"{found.target:g} effective cannot be, however fast restarts are"
        )
    if found.best_renewal is None:
        yield "they cost no time, so the more the better; say with --checkpoint-time what one costs"
        return
    yield f"best by Young and Daly: every {time_text(found.best_interval_ns)}"
    yield (
        f"best by search: every {time_text(found.searched_interval_ns)}, which makes "
        f"{found.best_renewal:.4f} effective"
    )


def print_outcome(console: Console, found: Outcome) -> None:
    """Print where the time of a campaign goes."""
    console.print(subject_text(found.campaign), style="bold")
    table = plain_table("", "")
    for name, value in outcome_figures(found):
        table.add_row(name, value)
    print_section(console, "", table)
    table = plain_table("time", "share")
    for name, share in account_rows(found):
        table.add_row(name, share)
    print_section(console, "where it goes", table)


def outcome_figures(found: Outcome) -> list[tuple[str, str]]:
    """What matters first, as names and values."""
    odds = found.odds()
    rows = [
        ("effective time", share_text(found.mean_effective)),
        ("in 90% of campaigns", f"{share_text(odds['p5'])} to {share_text(odds['p95'])}"),
        ("failures", f"{found.num_failures.mean():,.0f} +- {found.num_failures.std():,.0f}"),
        ("stall per failure", time_text(found.stall_per_failure_ns)),
        ("lost work per failure", time_text(found.rework_per_failure_ns)),
    ]
    if found.num_waits.any() and found.campaign.fleet.repair_ns:
        rows.append(("without a spare", f"{found.num_waits.mean():,.0f} of these"))
    if found.num_excluded.any():
        rows.append(("hosts excluded", f"{found.num_excluded.mean():,.0f}"))
    if found.num_preemptions.any():
        rows.append(("preemptions", f"{found.num_preemptions.mean():,.0f}"))
    if found.replicas_ns is not None:
        batch = found.batch()
        text = f"{share_text(batch['mean'])} of full, +- {share_text(batch['deviation'])}"
        rows.append(("batch while training", text))
    return rows


def account_rows(found: Outcome) -> list[tuple[str, str]]:
    """Every account that something was spent on."""
    shares = ((each, found.share(each)) for each in Account)
    return [(each.value, share_text(share)) for each, share in shares if share > 0]


def training_figures(found: TrainingTime) -> list[tuple[str, str]]:
    """Days and cost."""
    rows = [("days without loss", f"{found.work_ns / 86_400 / NS_PER_S:,.1f}")]
    if not found.outcome.is_finished.all():
        share = float(found.outcome.is_finished.mean())
        rows.append(("finished at all", share_text(share)))
    rows.append(("days", _odds_text(found.days_odds())))
    costs = found.cost_odds()
    if costs is not None:
        rows.append(("cost", _odds_text(costs)))
    return rows


def _odds_text(odds: Mapping[str, float]) -> str:
    digits = 0 if odds["p50"] >= _NO_DIGITS else 1
    low, middle, high = (f"{odds[each]:,.{digits}f}" for each in ("p5", "p50", "p95"))
    return f"{middle} ({low} to {high})"


def print_training(console: Console, found: TrainingTime) -> None:
    """Print days and cost, and where the time goes."""
    table = plain_table("", "")
    for name, value in training_figures(found):
        table.add_row(name, value)
    print_outcome(console, found.outcome)
    print_section(console, "training", table)


_SCHEME_HEAD = ("", "effective", "formula", "stall", "lost work", "batch", "paid")


def print_comparison(console: Console, found: SchemeComparison) -> None:
    """Print schemes, best first."""
    campaign = found.results[0].outcome.campaign
    console.print(subject_text(campaign), style="bold")
    # Without spares the last column says nothing new.
    has_spares = any(each.outcome.campaign.fleet.num_spares for each in found.results)
    columns = slice(None) if has_spares else slice(-1)
    table = plain_table(*_SCHEME_HEAD[columns])
    for row in scheme_rows(found):
        table.add_row(*row[columns])
    print_section(console, "", table)
    print_sentences(console, "to know", comparison_notes(found))


def scheme_rows(found: SchemeComparison) -> list[tuple[str, ...]]:
    """One row a scheme."""
    rows: list[tuple[str, ...]] = []
    for each in found.results:
        outcome = each.outcome
        odds = outcome.odds()
        formula = each.renewal if each.renewal is not None else each.stalls_only
        rows.append(
            (
                each.scheme.value,
                f"{outcome.mean_effective:.3f} +-{(odds['p95'] - odds['p5']) / 2:.3f}",
                "" if formula is None else f"{formula:.3f}",
                time_text(outcome.stall_per_failure_ns),
                time_text(outcome.rework_per_failure_ns),
                f"+-{share_text(outcome.batch()['deviation'])}",
                f"{each.per_paid_gpu:.3f}",
            )
        )
    return rows


def comparison_notes(found: SchemeComparison) -> list[str]:
    """What a reader has to know."""
    what = "stall and lost work are of one failure, batch is how much its size varies"
    notes = [f"90% of campaigns lie within +-; {what}, paid is effective time with spares counted"]
    down = found.results[0].outcome.campaign.while_down
    words = {
        WhileDown.NONE: "nothing fails while the job is down",
        WhileDown.AGAIN: "a failure during a restart or stall begins it again",
        WhileDown.ADD: "failures come by the wall clock, and each costs its stall in full",
    }
    notes.append(words[down] + " (--while-down)")
    if any(each.outcome.campaign.replicas is not None for each in found.results):
        notes.append(
            "the formula for replicas is (1 - S/M) (1 - D/(K M)): it leaves out checkpoints and "
            "lost work, and counts a lost replica's absence during the stall twice"
        )
    return notes


_SIZE_HEAD = ("GPUs of a replica", "replicas", "effective", "formula", "batch +-", "memory", "fits")


def print_sizes(console: Console, found: ReplicaSizes) -> None:
    """Print sizes of replicas, and which one to take."""
    table = plain_table(*_SIZE_HEAD)
    for row in size_rows(found):
        table.add_row(*row)
    print_section(console, "size of a replica", table)
    print_sentences(console, "", size_notes(found))


def size_rows(found: ReplicaSizes) -> list[tuple[str, ...]]:
    """One row a size."""
    words = {True: "yes", False: "no", None: ""}
    return [
        (
            f"{each.gpus_per_replica:,}",
            f"{each.num_replicas:,}",
            f"{each.outcome.mean_effective:.3f}",
            f"{each.stalls_only:.3f}",
            share_text(each.outcome.batch()["deviation"]),
            "" if each.num_bytes is None else bytes_text(each.num_bytes),
            words[each.fits],
        )
        for each in found.sizes
    ]


def size_notes(found: ReplicaSizes) -> list[str]:
    """Which size is best, and what the memory leaves out."""
    best = found.best
    notes = ["none of these fits: take larger replicas, or more tensor or pipeline ranks"]
    if best is not None:
        size = f"best of those that fit: {best.gpus_per_replica:,} GPUs"
        notes = [f"{size}; all are taken to stall and to be away equally long"]
    if any(each.counts_states_only and each.num_bytes is not None for each in found.sizes):
        notes.append("memory is parameters, gradients and Adam's states: 18 bytes a parameter")
    return notes


def print_failures(console: Console, rates: FailureRates, log: FailureLog | None) -> None:
    """Print rates by component, and what a log says of hosts and gaps."""
    console.print(f"{rates.name}: {rates.title}", style="bold")
    table = plain_table("", "count", "rate", "95%", "share", "takes host")
    for row in _component_rows(rates):
        table.add_row(*row)
    print_section(console, "failures per 1000 hosts and day", table)
    print_sentences(console, "to know", _failure_notes(rates, log))


def _component_rows(rates: FailureRates) -> Iterable[tuple[str, ...]]:
    for row in rates.to_frame().to_dicts():
        low, high = row["low_per_host_day"], row["high_per_host_day"]
        yield (
            name_text(row["component"], 28),
            "" if row["count"] is None else f"{row['count']:,}",
            f"{1000 * row['per_host_day']:.3g}",
            "" if low is None else f"{1000 * low:.2g}..{1000 * high:.2g}",
            share_text(row["share"]),
            "yes" if row["takes_host"] else "no",
        )
    interval = rates.interval()
    yield (
        "all",
        "" if rates.count is None else f"{rates.count:,}",
        f"{1000 * rates.per_host_day:.3g}",
        "" if interval is None else f"{1000 * interval[0]:.3g}..{1000 * interval[1]:.3g}",
        "",
        share_text(rates.repaired_share),
    )


def _failure_notes(rates: FailureRates, log: FailureLog | None) -> Iterable[str]:
    if rates.note:
        yield rates.note
    for source in rates.sources.values():
        yield f"{source.title}, {source.url}"
    if log is None:
        return
    for each in log.lemons[:5]:
        yield (
            f"host {each.host} failed {each.count} times: so many have a chance of "
            f"{each.chance:.1g} if all hosts are alike"
        )
    failures = rates.count or 1
    if log.gap_distance > _KS_5_PERCENT / math.sqrt(failures):
        yield (
            f"failures come in bursts or by schedule, not at a constant rate (distance "
            f"{log.gap_distance:.2f}): formulas and simulations here take a constant one"
        )


def scale_table(console: Console, found: CampaignSweep) -> None:
    """Print effective time against scale."""
    table = plain_table("GPUs", *found.lines, text_columns=())
    for index, value in enumerate(found.values.tolist()):
        table.add_row(f"{value:,.0f}", *(f"{line[index]:.3f}" for line in found.lines.values()))
    print_section(console, "against scale", table)


def page_table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> RiskTable:
    """A table of the page."""
    return RiskTable(title, tuple(head), tuple(tuple(row) for row in rows))


def ettr_page(found: Ettr, sweep: CampaignSweep) -> RiskPage:
    """Everything about effective time, as a page."""
    return RiskPage(
        "Effective training time",
        subject_text(found.campaign),
        tuple((name, value) for name, value, _ in ettr_rows(found)),
        (page_table("ways of telling", ("form", "effective", "remark"), ettr_rows(found)),),
        (("against the checkpoint interval", sweep),),
        tuple(_interval_sentences(found)),
    )


def campaign_page(found: Outcome, training: TrainingTime | None, sweep: CampaignSweep) -> RiskPage:
    """A simulated campaign, as a page."""
    tables = [page_table("where the time goes", ("time", "share"), account_rows(found))]
    if training is not None:
        tables.append(page_table("training", ("", "median, 5% to 95%"), training_figures(training)))
    return RiskPage(
        found.campaign.name or "Campaign",
        subject_text(found.campaign),
        tuple(outcome_figures(found)[:5]),
        tuple(tables),
        (("against the checkpoint interval (full restarts)", sweep),),
    )


def comparison_page(
    found: SchemeComparison, sizes: ReplicaSizes | None, sweep: CampaignSweep
) -> RiskPage:
    """Ways to recover, as a page."""
    tables = [page_table("ways to recover", _SCHEME_HEAD, scheme_rows(found))]
    notes = comparison_notes(found)
    if sizes is not None:
        tables.append(page_table("size of a replica", _SIZE_HEAD, size_rows(sizes)))
        notes += size_notes(sizes)
    return RiskPage(
        "Ways to recover",
        subject_text(found.results[0].outcome.campaign),
        tuple((each.scheme.value, f"{each.outcome.mean_effective:.3f}") for each in found.results),
        tuple(tables),
        (("against the number of GPUs", sweep),),
        tuple(notes),
    )

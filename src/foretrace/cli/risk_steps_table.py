"""What `foretrace risk steps` and `placement` print, and the page of the first."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table

from foretrace.answer import milliseconds_text, signed_percent_text
from foretrace.base import NS_PER_HOUR
from foretrace.cli.tables import name_text, plain_table, print_section, print_sentences
from foretrace.report import RiskPage, RiskTable, distribution_plot, scale_plot
from foretrace.risk import SlowPlaces, StepDistribution, TrainingSpan, VarianceShare


def print_steps(
    console: Console, found: StepDistribution, training_steps: int, *, top: int
) -> None:
    """Print quantiles, who carries the variance, and the time of many steps."""
    console.print(f"{found.title}: {found.num_samples:,} sampled steps, {found.method}")
    console.print(
        f"mean {_ms(found.mean_ns)} ms, standard deviation "
        f"{100 * found.deviation_ns / found.mean_ns:.2f} %; with every duration at its mean "
        f"{_ms(found.fixed_ns)} ms"
    )
    table = plain_table("steps shorter", "ms", "95 % confidence", "", text_columns=())
    for one in found.quantiles:
        table.add_row(
            f"{100 * one.probability:.0f} %", _ms(one.step_ns), _ms(one.low_ns), _ms(one.high_ns)
        )
    print_section(console, "", table)
    for title, rows in (("operation", found.shares.operations), ("rank", found.shares.ranks)):
        print_section(console, "", _shares_table(title, rows[:top]))
    scales = plain_table("copies", "GPUs", "mean ms", "5 %", "50 %", "95 %", text_columns=())
    for scale in found.scales:
        scales.add_row(
            str(scale.num_replicas), f"{scale.num_ranks:,}", _ms(scale.mean_ns),
            _ms(scale.p5_ns), _ms(scale.p50_ns), _ms(scale.p95_ns),
        )  # fmt: skip
    print_section(console, "", scales)
    console.print(f"\n{_training_text(found.training(training_steps))}")
    print_sentences(console, "to know", found.notes)


def _shares_table(title: str, rows: tuple[VarianceShare, ...]) -> Table:
    table = plain_table(title, "of variance", "on path ms", "in slow steps ms")
    for one in rows:
        table.add_row(
            name_text(one.name), f"{100 * one.share:.1f} %", _ms(one.path_ns), _ms(one.tail_ns)
        )
    return table


def _training_text(span: TrainingSpan) -> str:
    low, high = span.interval_ns()
    return (
        f"{span.num_steps:,} steps: {span.mean_ns / NS_PER_HOUR:,.2f} h, 95 % from "
        f"{low / NS_PER_HOUR:,.2f} to {high / NS_PER_HOUR:,.2f} h; what averages out is "
        f"{_percent(span.averaging_ns, span.mean_ns)} of it, what lasts "
        f"{_percent(span.lasting_ns, span.mean_ns)} (standard deviations)"
    )


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3f} %"


def _ms(value: float) -> str:
    return "" if math.isnan(value) else milliseconds_text(round(value))


def print_placement(console: Console, found: SlowPlaces) -> None:
    """Print every place, the cheapest first."""
    share = signed_percent_text(100 * found.slowdown)
    console.print(
        f"{found.title}: one {found.unit} whose kernels take {share}; without it the step is "
        f"{_ms(found.mean_ns)} ms"
    )
    table = plain_table("place", "step ms", "cost", "95 % ms", "cost")
    for row in found.rows:
        table.add_row(
            row.place, _ms(row.mean_ns), signed_percent_text(100 * row.cost),
            _ms(row.p95_ns), signed_percent_text(100 * row.tail_cost),
        )  # fmt: skip
    print_section(console, "", table)
    console.print(
        f"\nthe worst place costs {100 * found.spread:.2f} % more than the best; a replacement "
        "brings back the place's cost",
        style="dim",
    )


def steps_page(found: StepDistribution, training_steps: int, top: int) -> RiskPage:
    """The page of a distribution: figures, quantiles, variance, plots."""
    middle, high = found.quantile(0.5), found.quantile(0.95)
    quantiles = tuple(
        (f"{100 * one.probability:.0f} %", _ms(one.step_ns), _ms(one.low_ns), _ms(one.high_ns))
        for one in found.quantiles
    )
    shares = tuple(
        (one.name, f"{100 * one.share:.1f} %", _ms(one.path_ns), _ms(one.tail_ns))
        for one in found.shares.operations[:top]
    )
    converging = tuple(
        (f"{samples:,}", _ms(mean), _ms(half), _ms(tail))
        for samples, mean, half, tail in found.convergence
    )
    drawings = [("sampled steps", distribution_plot(found))]
    if found.scales:
        drawings.append(("steps against the number of GPUs", scale_plot(found)))
    return RiskPage(
        title=f"step times of {found.title}",
        subject=f"{found.num_samples:,} sampled steps, {found.method}",
        figures=(
            ("median", f"{_ms(middle.step_ns)} ms"),
            ("95 % of steps are shorter than", f"{_ms(high.step_ns)} ms"),
            ("every duration at its mean", f"{_ms(found.fixed_ns)} ms"),
            ("standard deviation", _percent(found.deviation_ns, found.mean_ns)),
        ),
        tables=(
            RiskTable("quantiles", ("steps shorter", "ms", "from", "to"), quantiles),
            RiskTable(
                "who carries the variance",
                ("operation", "of variance", "on path ms", "in slow steps ms"),
                shares,
            ),
            RiskTable("as samples come in", ("samples", "mean ms", "50 %", "95 %"), converging),
        ),
        drawings=tuple(drawings),
        notes=(_training_text(found.training(training_steps)), *found.notes),
    )

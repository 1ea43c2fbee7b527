"""A replay as tables of at most 80 columns, the numbers that matter first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from foretrace.answer import (
    component_text,
    duration_text,
    milliseconds_text,
    percent_text,
    signed_percent_text,
)
from foretrace.api import Job
from foretrace.cli.tables import plain_table, sentences_table
from foretrace.graph import Ablation
from foretrace.report import component_rows, constant_rows, duration_shares, glance, null_model_rows
from foretrace.validate import ReplayReport

# More rows than this scroll the summary off the screen; `--json` has them all.
MAX_ROWS = 32


def print_replay(job: Job, replay: ReplayReport, *, without: Sequence[Ablation]) -> None:
    """Print the replay to stdout."""
    console = Console(highlight=False, soft_wrap=False)
    view = glance(replay, job.metas)
    console.print(Text.assemble((job.title, "bold"), f": {view.subject}"))
    if without:
        names = ", ".join(ablation.value for ablation in without)
        console.print(f"replayed without: {names}", style="bold yellow")
    for table in (
        _headline(replay, job),
        _components(replay),
        _null_models(replay),
        _steps(replay),
        _rests_on(replay),
        _constants(job),
    ):
        if table.row_count:
            console.print()
            console.print(table)
    _print_findings(console, replay)


def _headline(replay: ReplayReport, job: Job) -> Table:
    view, summary = glance(replay, job.metas), replay.summary
    table = plain_table("", "", "", text_columns=(0, 2))
    table.add_row("measured step of a rank", milliseconds_text(view.measured_ns) + " ms", "mean")
    table.add_row("replayed step of a rank", milliseconds_text(view.replayed_ns) + " ms", "mean")
    table.add_row(
        Text("error of the step's end", "bold"),
        Text(percent_text(summary.mean_step_error_percent), "bold"),
        f"mean; worst {percent_text(summary.worst_step_error_percent)}",
    )
    table.add_row(
        "error of a component",
        percent_text(summary.worst_component_error_percent),
        f"worst, of the step: {component_text(summary.worst_component)}",
    )
    table.add_row(
        "error of kernel starts",
        percent_text(summary.p95_kernel_start_error_percent),
        "95th percentile, of the step",
    )
    if view.unprofiled_ns is not None and view.profiler_cost_percent is not None:
        table.add_row(
            "step without profiler",
            milliseconds_text(view.unprofiled_ns) + " ms",
            f"median; profiling costs {signed_percent_text(view.profiler_cost_percent)}",
        )
    return table


def _components(replay: ReplayReport) -> Table:
    table = plain_table("where the time goes", "measured ms", "replayed ms", "share", "error")
    for row in component_rows(replay):
        table.add_row(
            component_text(row.name),
            milliseconds_text(row.measured_ns),
            milliseconds_text(row.replayed_ns),
            f"{row.measured_percent:.1f} %",
            signed_percent_text(row.error_percent),
        )
    return table


def _null_models(replay: ReplayReport) -> Table:
    table = plain_table(
        "errors beside null models", "end", "worst", "component", "starts", "collect."
    )
    for row in null_model_rows(replay):
        summary = row.summary
        collective = summary.worst_collective_error_percent
        table.add_row(
            row.short,
            percent_text(summary.mean_step_error_percent),
            percent_text(summary.worst_step_error_percent),
            percent_text(summary.worst_component_error_percent),
            percent_text(summary.p95_kernel_start_error_percent),
            "-" if collective is None else percent_text(collective),
            style="bold" if row.is_replay else "",
        )
    return table


def _steps(replay: ReplayReport) -> Table:
    table = plain_table(
        "step", "rank", "measured ms", "replayed ms", "error", "host ms", "starts p95"
    )
    pairs = [(step.name, rank) for step in replay.steps for rank in step.ranks]
    for name, rank in pairs[:MAX_ROWS]:
        step_ns = max(rank.measured_ns, 1)
        starts = rank.kernel_start_error
        table.add_row(
            name,
            str(rank.rank),
            milliseconds_text(rank.measured_ns),
            milliseconds_text(rank.replayed_ns),
            signed_percent_text(100 * (rank.replayed_ns - rank.measured_ns) / step_ns),
            milliseconds_text(rank.host_measured_ns),
            percent_text(100 * starts.p95_ns / step_ns) if starts.count else "-",
        )
    if len(pairs) > MAX_ROWS:
        table.add_row(f"and {len(pairs) - MAX_ROWS:,} more: --json")
    return table


def _rests_on(replay: ReplayReport) -> Table:
    table = plain_table("replayed time rests on", "share", "", text_columns=(0, 2))
    for share in duration_shares(replay.mix):
        table.add_row(share.name, f"{share.percent:.1f} %", share.text)
    return table


def _constants(job: Job) -> Table:
    table = plain_table("constants along edges", "constant", "10th", "90th", "samples")
    for row in constant_rows(job.graph):
        one = row.constant
        spread = (
            (duration_text(one.low_ns), duration_text(one.high_ns))
            if one.num_samples
            else ("default", "")
        )
        table.add_row(row.text, duration_text(one.lag_ns), *spread, f"{one.num_samples:,}")
    return table


def _print_findings(console: Console, replay: ReplayReport) -> None:
    if replay.findings:
        console.print("\nwhat the recording lacks", style="bold")
        console.print(sentences_table(f"{one.topic}: {one.text}" for one in replay.findings))

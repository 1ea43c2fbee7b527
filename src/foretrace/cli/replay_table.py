"""A replay as tables of at most 80 columns, the numbers that matter first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from foretrace.api import Job
from foretrace.graph import Ablation
from foretrace.report import (
    component_rows,
    component_text,
    constant_rows,
    duration_shares,
    duration_text,
    glance,
    milliseconds_text,
    null_model_rows,
    percent_text,
    signed_percent_text,
)
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
    console.print()
    console.print(_headline(replay, job))
    console.print(_components(replay))
    console.print(_null_models(replay))
    console.print(_steps(replay))
    num_rows = sum(len(step.ranks) for step in replay.steps)
    if num_rows > MAX_ROWS:
        console.print(f"and {num_rows - MAX_ROWS:,} more rows: --json\n")
    console.print(_rests_on(replay))
    console.print(_constants(replay))
    _print_findings(console, replay)


def _headline(replay: ReplayReport, job: Job) -> Table:
    view, summary = glance(replay, job.metas), replay.summary
    table = _plain("", "", "")
    table.add_row("measured step", milliseconds_text(view.measured_ns) + " ms", "mean")
    table.add_row("replayed step", milliseconds_text(view.replayed_ns) + " ms", "mean")
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
    table = _plain("where the time goes", "measured ms", "replayed ms", "share", "error")
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
    table = _plain("errors beside null models", "end", "worst", "component", "starts", "collect.")
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
    table = _plain("step", "rank", "measured ms", "replayed ms", "error", "host ms", "starts p95")
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
    return table


def _rests_on(replay: ReplayReport) -> Table:
    table = _plain("replayed time rests on", "share", "", text_columns=(2,))
    for share in duration_shares(replay.mix):
        table.add_row(share.name, f"{share.percent:.1f} %", share.text)
    return table


def _constants(replay: ReplayReport) -> Table:
    table = _plain("constants along edges", "constant", "10th", "90th", "samples")
    for row in constant_rows(replay.constants):
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
        console.print("what the recording lacks", style="bold")
    for finding in replay.findings:
        console.print(Text.assemble("  ", (f"{finding.topic}: ", "bold"), finding.text))


def _plain(*heads: str, text_columns: Sequence[int] = ()) -> Table:
    """A table without lines: text left in the first column, numbers right in the others."""
    table = Table(
        box=None, pad_edge=False, show_header=any(heads), header_style="bold", padding=(0, 2, 0, 0)
    )
    for index, head in enumerate(heads):
        is_text = index == 0 or index in text_columns or (not any(heads) and index > 1)
        table.add_column(head, justify="left" if is_text else "right", overflow="fold")
    return table

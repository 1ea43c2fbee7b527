"""Predictions of published runs as tables of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from foretrace.cli.tables import name_text, plain_table, print_section, print_sentences
from foretrace.validate import GroupError, RunPrediction, RunsReport, RunStatus, calibrated_groups

_ID_WIDTH = 28
_MOST_REASONS = 5


def print_runs(console: Console, report: RunsReport, *, top: int) -> None:
    """Print errors by source, then with one constant for each kind, then the worst runs."""
    print_section(console, "as predicted, nothing fitted on the source", _groups(report.groups))
    if report.calibrated:
        print_section(
            console,
            "with one constant per source, software, GPU and format, from a fifth of the rows",
            _groups(calibrated_groups(report)),
        )
    worst = sorted(
        (one for one in report.rows if one.error is not None), key=lambda one: -abs(one.error or 0)
    )
    if worst:
        print_section(console, "furthest off", _runs(worst[:top]))
    refused = [one for one in report.rows if one.status is RunStatus.REFUSED]
    if refused:
        reasons = list(dict.fromkeys(one.why for one in refused))[:_MOST_REASONS]
        print_sentences(console, f"{len(refused)} runs refused", reasons)
    print_sentences(
        console,
        "how to read it",
        (
            "known: predicted from all that decides the time; open: not printed was assumed",
            "errors in percent of the measured step time; mean: of their sizes; bias: with sign",
            "in: measured times inside the 80% interval; roof: a roofline's mean error",
            "memory: mean error of the peak, where a table prints it",
        ),
    )


def _groups(groups: Iterable[GroupError]) -> Table:
    heads = ("", "runs", "known", "open", "mean", "bias", "worst", "in", "roof", "memory")
    table = plain_table(*heads, text_columns=(0,))
    for one in groups:
        table.add_row(
            one.name,
            str(one.num_runs),
            str(one.num_predicted),
            str(one.num_assumed),
            _percent(one.mean_abs_error),
            _signed(one.mean_error),
            _signed(one.worst_error),
            _percent(one.inside),
            _percent(one.roofline_mean_abs_error),
            _percent(one.memory_mean_abs_error),
        )
    return table


def _runs(rows: Iterable[RunPrediction]) -> Table:
    table = plain_table("", "measured s", "predicted s", "low", "high", "error", text_columns=(0,))
    for one in rows:
        table.add_row(
            name_text(one.id, _ID_WIDTH),
            _seconds(one.measured_s),
            _seconds(one.predicted_s),
            _seconds(one.low_s),
            _seconds(one.high_s),
            _signed(one.error),
        )
    return table


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _signed(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:+.1f}"

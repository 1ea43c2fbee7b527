"""A live test as tables of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table

from foretrace.base import NS_PER_MS, NS_PER_US
from foretrace.cli.tables import plain_table, print_section, print_sentences
from foretrace.validate import LiveComponent, LiveReport, LiveRow

_SHORT = {
    "exposed_compute": "compute",
    "overlapped": "overlapped",
    "exposed_communication": "communic.",
    "idle": "idle",
}


def print_live(console: Console, report: LiveReport) -> None:
    """Print every configuration, then where its time goes, then the errors over all of them."""
    console.print(f"{report.device}, {report.num_cores} processor cores", style="bold")
    print_section(console, "", _rows((report.base, *report.rows)))
    print_section(console, "a rank's step, predicted | profiled, ms", _components(report))
    print_sentences(console, "over the list", _summary(report))
    print_sentences(
        console, "what is missing", (f"{row.name}: {row.why}" for row in _lacking(report))
    )
    print_sentences(
        console,
        "how to read it",
        (
            "measured: steps without the profiler, median of each run, then of runs",
            "of runs: the fastest and the slowest run's median",
            "predicted: from the base's recording and the machine's description alone",
            "interval: the middle 80 % of what it may be; errors in percent of measured",
            "naive: the error of the base's step times FLOPs over ranks",
            "profiled steps take longer than predicted ones, which have no profiler",
        ),
    )


def _rows(rows: Iterable[LiveRow]) -> Table:
    heads = ("ms a step", "measured", "of runs", "predicted", "interval", "error", "naive")
    table = plain_table(*heads, text_columns=(0,))
    for row in rows:
        table.add_row(
            row.name,
            _ms(row.measured_ns),
            _between(row.measured_low_ns, row.measured_high_ns),
            _ms(row.predicted_ns),
            _between(row.low_ns, row.high_ns),
            _signed(row.error),
            _signed(row.naive_error),
        )
    return table


def _components(report: LiveReport) -> Table:
    table = plain_table("", *_SHORT.values(), text_columns=(0,))
    missing = LiveComponent(None, None)
    for row in (report.base, *report.rows):
        found = [row.components.get(name, missing) for name in _SHORT]
        table.add_row(
            row.name, *(f"{_ms(one.predicted_ns)} | {_ms(one.measured_ns)}" for one in found)
        )
    return table


def _summary(report: LiveReport) -> Iterator[str]:
    run = [row for row in report.rows if row.measured_ns is not None]
    yield (
        f"mean error {_percent(report.mean_abs_error)}, of naive scaling "
        f"{_percent(report.naive_mean_abs_error)}, over {len(run)} of {len(report.rows)} "
        "configurations that were run"
    )
    yield f"{report.num_inside} of {len(run)} measured steps lie in their interval"
    yield (
        f"the profiler adds {report.profiler_ns / NS_PER_MS:.1f} ms to a step of the base, "
        f"{report.event_ns / NS_PER_US:.1f} us for each event, which predictions leave out"
    )


def _lacking(report: LiveReport) -> list[LiveRow]:
    return [row for row in (report.base, *report.rows) if row.why]


def _ms(time_ns: int | None) -> str:
    return "-" if time_ns is None else f"{time_ns / NS_PER_MS:.0f}"


def _between(low_ns: int | None, high_ns: int | None) -> str:
    return "-" if low_ns is None else f"{_ms(low_ns)}..{_ms(high_ns)}"


def _signed(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:+.1f}"


def _percent(share: float | None) -> str:
    return "not known" if share is None else f"{100 * share:.1f} %"

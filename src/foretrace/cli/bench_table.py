"""Benchmarks and their checks, as text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console

from foretrace.answer import count_text
from foretrace.base import NS_PER_MS
from foretrace.bench import BenchCheck, Benchmark
from foretrace.cli.tables import plain_table, print_section, share_text

_MOST_ROWS = 10


def print_benchmark(made: Benchmark, path: Path) -> None:
    """Say what a benchmark covers and what it leaves out."""
    console = Console(highlight=False)
    coverage, program = made.program.coverage, made.program
    console.print(f"{program.source}: {path}", style="bold")
    time_share = coverage.time_share
    of_time = "" if time_share is None else f", {share_text(time_share)} of their time"
    console.print(
        f"{coverage.num_replayed:,} of {count_text(coverage.num_operators, 'operator')} "
        f"({share_text(coverage.share)}){of_time}, in {count_text(len(program.calls), 'call')}; "
        f"{count_text(made.text.count(chr(10)), 'line')} of Python"
    )
    if 0 < coverage.num_timed < coverage.num_operators:
        console.print(f"times are known of {count_text(coverage.num_timed, 'operator')}")
    if program.world_size > 1:
        console.print(f"recorded in a job of {count_text(program.world_size, 'rank')}")
    table = plain_table("not replayed", "why", "calls", "ms", text_columns=(0, 1))
    for name, reason, count, duration_ns in coverage.unsupported:
        took = f"{duration_ns / NS_PER_MS:.3f}" if duration_ns else ""
        table.add_row(name, reason, str(count), took)
    print_section(console, "", table)
    if coverage.unsupported:
        console.print("give functions for them under REGISTERED in the program")


def print_check(found: BenchCheck) -> None:
    """Print both sides and what differs."""
    console = Console(highlight=False)
    words = "the same operators" if found.is_same else "not the same operators"
    console.print(
        f"{words} on {found.device}, {found.median_ns / NS_PER_MS:.3f} ms a step", style="bold"
    )
    table = plain_table("", "source", "benchmark")
    sides = (found.source, found.bench)
    table.add_row("operators", *(f"{one.operators.total():,}" for one in sides))
    table.add_row("GFLOP", *(f"{one.flops / 1e9:,.3f}" for one in sides))
    table.add_row("ms, profiled", *(_ms(one.span_ns) for one in sides))
    table.add_row("busy", *(_share(one.busy_share) for one in sides))
    print_section(console, "", table)
    if found.time_ratio is not None:
        console.print(f"benchmark over source, both under the profiler: {found.time_ratio:.3f}")
    if not found.has_collectives:
        console.print("collectives were left out on both sides: --ranks N runs them")
    _print_operators(console, "missing in the benchmark", found.missing)
    _print_operators(console, "in the benchmark alone", found.extra)


def _print_operators(console: Console, title: str, operators: Counter[tuple[str, str]]) -> None:
    table = plain_table("operator", "inputs", "calls", text_columns=(0, 1))
    for (name, shapes), count in operators.most_common(_MOST_ROWS):
        table.add_row(name, shapes, str(count))
    print_section(console, title, table)


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / NS_PER_MS:,.3f}" if duration_ns else "-"


def _share(share: float | None) -> str:
    return "-" if share is None else share_text(share)

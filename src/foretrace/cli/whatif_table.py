"""Predictions as tables of at most 80 columns, the numbers that matter first."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from foretrace.answer import bytes_text, duration_text, milliseconds_text, number_text
from foretrace.cli.tables import plain_table, print_section, print_sentences, share_text
from foretrace.report import (
    change_text,
    difference_rows,
    origin_text,
    reason_texts,
    signed_milliseconds,
    sweep_subject,
    whatif_facts,
    whatif_subject,
)
from foretrace.whatif import Prediction, Sweep

_LEAST_SHARE = 0.0005  # it would be shown as nothing
MAX_REASONS = 6  # sentences; `--json` has them all


def print_prediction(found: Prediction, title: str) -> None:
    """Print a prediction to stdout."""
    console = Console(highlight=False, soft_wrap=False)
    console.print(Text.assemble((title, "bold"), f": {whatif_subject(found)}"))
    console.print(_headline(found))
    print_section(console, "edits, each made after those before it", _effects(found))
    print_section(console, "where the difference goes, mean over ranks and steps", _parts(found))
    print_sentences(console, "why", reason_texts(found)[:MAX_REASONS])
    print_section(console, "memory", _memory(found))
    print_section(console, "the critical path after rests on", _sources(found))
    print_sentences(console, "notes", found.notes)


def print_sweep(found: Sweep, title: str) -> None:
    """Print many scenarios to stdout, the best first."""
    console = Console(highlight=False, soft_wrap=False)
    console.print(Text.assemble((title, "bold"), f": {sweep_subject(found)}"))
    print_section(console, "", _rows(found))
    print_sentences(
        console, "refused", (f"{row.name}: {row.refusal}" for row in found.rows if row.is_refused)
    )


def _headline(found: Prediction) -> Table:
    table = plain_table("", "", "", text_columns=(0, 2))
    for fact in whatif_facts(found):
        style = "bold" if fact.is_first else ""
        table.add_row(Text(fact.name, style), Text(fact.value, style), fact.remark)
    return table


def _effects(found: Prediction) -> Table:
    table = plain_table("", "step ms", "change")
    for one in found.effects:
        table.add_row(
            one.sentence,
            milliseconds_text(one.step_ns),
            Text(signed_milliseconds(one.change_ns), "bold"),
        )
    return table


def _parts(found: Prediction) -> Table:
    table = plain_table("", "before ms", "after ms", "difference")
    for row in difference_rows(found):
        is_whole = row.name == "step"
        table.add_row(
            row.text,
            milliseconds_text(row.before_ns),
            milliseconds_text(row.after_ns),
            signed_milliseconds(row.difference_ns),
            style="bold" if is_whole else "",
        )
    return table


def _memory(found: Prediction) -> Table:
    table = plain_table("fullest rank", "before", "after")
    if found.memory is None:
        return plain_table()
    before, after = found.memory.before.peak, found.memory.after.peak
    for name in ("parameters", "gradients", "optimizer", "activations", "buffers", "total"):
        sizes = (getattr(before, name), getattr(after, name))
        table.add_row(name, *map(bytes_text, sizes), style="bold" if name == "total" else "")
    return table


def _sources(found: Prediction) -> Table:
    table = plain_table("", "share", "", text_columns=(0, 2))
    for name, share in found.share_by_source.items():
        if share < _LEAST_SHARE:
            continue
        table.add_row(name, share_text(share), origin_text(name))
    return table


def _rows(found: Sweep) -> Table:
    rows = [row for row in found.rows if not row.is_refused]
    has_memory = any(row.peak_bytes is not None for row in rows)
    # Where all have the recording's ranks, a rank does what the job does.
    has_ranks = any(row.throughput != row.throughput_per_rank for row in rows)
    heads = ["step", "change", "middle 80 %, ms", "seq/s"]
    heads += ["per rank", "ranks"] if has_ranks else []
    heads += ["memory"] if has_memory else []
    table = plain_table("", *heads)
    for row in rows:
        cells = [
            row.name,
            duration_text(row.step_ns),
            change_text(row),
            f"{milliseconds_text(row.low_ns)}-{milliseconds_text(row.high_ns)}",
            f"{number_text(row.throughput)} x",
        ]
        if has_ranks:
            cells += [f"{number_text(row.throughput_per_rank)} x", f"{row.num_ranks:,}"]
        if has_memory:
            cells.append("" if row.peak_bytes is None else bytes_text(row.peak_bytes))
        table.add_row(*cells)
    return table

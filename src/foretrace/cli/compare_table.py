"""A comparison as tables of at most 80 columns, the largest causes first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from foretrace.analyze import Comparison, Contribution
from foretrace.answer import (
    component_text,
    count_text,
    milliseconds_text,
    percent_text,
    signed_percent_text,
)
from foretrace.cli.tables import name_text, plain_table, print_section, print_sentences

_SHOWN = ("component", "class", "kernel", "block", "collective")
_TITLES = {
    "component": "where the time goes",
    "class": "by class",
    "family": "by family of kernels",
    "kernel": "by kernel",
    "operator": "by operator and shapes",
    "phase": "by phase",
    "block": "by block",
    "collective": "by collective",
    "path": "on the critical path",
    "host": "time of host threads, beside the step",
}
_LABEL_WIDTH = 25


def print_comparison(
    console: Console,
    found: Comparison,
    titles: tuple[str, str],
    *,
    views: Sequence[str] | None,
    top: int,
) -> None:
    """Print a comparison; `views` are the tables to show, the most telling if None."""
    console.print(_headline(found, titles))
    print_sentences(console, "why", (one.sentence for one in found.reasons))
    if not found.reasons:
        console.print("\nnothing differs by more than 0.01 % of the step", style="bold")
    for view in found.views:
        if view.name in (views or _SHOWN):
            rows = [row for row in view.rows if _is_shown(view.name, row)]
            if rows:
                print_section(console, "", _view(view.name, rows, top))
    if len(found.ranks) > 1:
        print_section(console, "", _ranks(found, top))
    print_sentences(console, "to know", found.notes)


def _headline(found: Comparison, titles: tuple[str, str]) -> Table:
    table = plain_table("", "", "", text_columns=(0, 2))
    for name, title, side in (
        ("before", titles[0], found.before),
        ("after", titles[1], found.after),
    ):
        ranks, steps = count_text(len(side.ranks), "rank"), count_text(len(side.step_ns), "step")
        length = milliseconds_text(side.mean_ns) + " ms"
        table.add_row(name, length, f"{name_text(title)}, {side.label}, {ranks}, {steps}")
    noise = found.noise
    table.add_row(
        Text("difference", "bold"),
        Text(_signed(found.difference_ns) + " ms", "bold"),
        f"{signed_percent_text(found.percent)}; {noise.verdict.value}",
    )
    if noise.num_before > 1 or noise.num_after > 1:
        table.add_row(
            "interval",
            "",
            f"{_signed(noise.low_ns)} to {_signed(noise.high_ns)} ms, at "
            f"{percent_text(100 * noise.confidence)}, {noise.num_before} against "
            f"{count_text(noise.num_after, 'step')}",
        )
    return table


def _is_shown(view: str, row: Contribution) -> bool:
    """Whether a row says something that no view before said."""
    if view == "component":
        return True
    is_communication = row.label.startswith(("waiting in ", "transfer of "))
    if view in {"family", "kernel", "operator"}:
        return bool(row.difference_ns) and not (is_communication or row.label == "idle")
    return bool(row.difference_ns) and (is_communication or view != "collective")


def _view(view: str, rows: Sequence[Contribution], top: int) -> Table:
    table = plain_table(
        _TITLES[view], "before ms", "after ms", "diff.", "calls", "length", "overlap"
    )
    for row in rows[:top]:
        effects = (row.count_effect_ns, row.call_effect_ns, row.overlap_effect_ns)
        has_calls = row.before.count or row.after.count
        table.add_row(
            _label(view, row.label),
            milliseconds_text(row.before.step_ns),
            milliseconds_text(row.after.step_ns),
            Text(_signed(row.difference_ns), "bold"),
            *(_effect(effect_ns) if has_calls else "" for effect_ns in effects),
        )
    if len(rows) > top:
        table.add_row(Text(f"and {len(rows) - top:,} more", "dim"))
    return table


def _label(view: str, label: str) -> str:
    """A label as the table has room for it; blocks and collectives may take two lines."""
    if view == "component":
        return component_text(label)
    if view in {"block", "collective"}:
        return label.replace(", microbatch ", " mb ")
    return name_text(label, _LABEL_WIDTH)


def _ranks(found: Comparison, top: int) -> Table:
    """What each rank's own time and waiting changed by, largest first."""
    heads = ("compute", "transfer", "waiting", "idle")
    table = plain_table("rank, difference in ms", *heads)
    both = [one for one in found.ranks if one.before is not None and one.after is not None]
    rows: list[tuple[int, list[int]]] = []
    for one in both:
        if one.before is None or one.after is None:
            continue
        before, after = one.before, one.after
        differences = [
            after.compute_ns - before.compute_ns,
            after.transfer_ns - before.transfer_ns,
            after.wait_ns - before.wait_ns,
            after.idle_ns - before.idle_ns,
        ]
        rows.append((one.rank, differences))
    rows.sort(key=lambda row: -max(map(abs, row[1])))
    for rank, differences in rows[:top]:
        if any(differences):
            table.add_row(str(rank), *map(_effect, differences))
    return table


def _effect(difference_ns: int) -> str:
    return _signed(difference_ns) if difference_ns else "-"


def _signed(difference_ns: int) -> str:
    text = milliseconds_text(abs(difference_ns))
    if not text.strip("0.,"):
        return text
    return f"{'-' if difference_ns < 0 else '+'}{text}"

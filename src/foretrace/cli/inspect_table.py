"""What files contain and lack, as tables of at most 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from foretrace.answer import bytes_text, count_text, duration_text
from foretrace.cli.tables import plain_table, sentences_table
from foretrace.graph import Links
from foretrace.trace import Contents

# More rows than this scroll the summary off the screen; `--json` has them all.
MAX_FILES = 24
MAX_STEPS = 12
MAX_REASONS = 12

_PARTS: tuple[tuple[str, Callable[[Contents], bool]], ...] = (
    ("device work", lambda one: one.has_device_work),
    ("launches", lambda one: one.has_launches),
    ("sync events", lambda one: one.has_sync_events),
    ("event records", lambda one: one.has_event_records),
    ("stream waits", lambda one: one.has_stream_waits),
    ("collective metadata", lambda one: one.has_collective_metadata),
    ("shapes", lambda one: one.has_shapes),
    ("backward pass", lambda one: one.has_backward),
    ("forward to backward arrows", lambda one: one.has_forward_backward_arrows),
    ("Python stacks", lambda one: one.has_stacks),
    ("memory events", lambda one: one.has_memory),
)


def print_contents(contents: Sequence[Contents]) -> None:
    """Print what the files hold to stdout."""
    console = Console(highlight=False)
    console.print(_subject(contents))
    console.print()
    console.print(_files(contents))
    for title, table in (
        ("contains", _parts(contents)),
        ("steps", _steps(contents)),
        ("read but not kept", _dropped(contents)),
    ):
        if table.row_count:
            console.print(f"\n{title}", style="bold")
            console.print(Padding(table, (0, 0, 0, 1), expand=False))
    _print_sentences(console, "notes", _with_files(contents, lambda one: one.notes))
    _print_sentences(
        console, "what a replay must do without", _with_files(contents, lambda one: one.lacks)
    )
    advice = dict.fromkeys(sentence for one in contents for sentence in one.advice)
    _print_sentences(console, "how to record a better one", list(advice))
    if not any(one.lacks for one in contents):
        console.print("\nnothing is missing for a replay", style="bold")


def _subject(contents: Sequence[Contents]) -> Text:
    ranks = {one.rank for one in contents if one.rank is not None}
    sizes = {one.world_size for one in contents if one.world_size is not None}
    devices = sorted({name for one in contents for name in one.device_names})
    text = f": {count_text(len(ranks), 'rank')}" if ranks else ""
    if ranks and len(sizes) == 1:
        text += f" of {sizes.pop()}"
    text += "".join(f", {name}" for name in devices[:3])
    return Text.assemble((count_text(len(contents), "file"), "bold"), text)


def _files(contents: Sequence[Contents]) -> Table:
    heads = ("rank", "file", "size", "records", "kept", "kernels", "comm.", "steps")
    table = plain_table(*heads, text_columns=(1,))
    for one in contents[:MAX_FILES]:
        table.add_row(
            "?" if one.rank is None else str(one.rank),
            Path(one.path).name + (" (cut off)" if one.is_truncated else ""),
            bytes_text(one.file_bytes),
            f"{one.num_events:,}",
            f"{one.num_kept:,}",
            f"{one.events_by_category.get('kernel', 0):,}",
            f"{sum(one.communication.values()):,}",
            str(len(one.steps)),
        )
    if len(contents) > MAX_FILES:
        table.add_row("", f"and {len(contents) - MAX_FILES:,} more: --json")
    return table


def _parts(contents: Sequence[Contents]) -> Table:
    table = plain_table("", "", text_columns=(0, 1))
    for name, has in _PARTS:
        count = sum(map(has, contents))
        answer = "yes" if count == len(contents) else "no" if not count else f"in {count} files"
        table.add_row(name, answer, style="" if count else "dim")
    return table


def _steps(contents: Sequence[Contents]) -> Table:
    """Each step's mark on the host, over the files that have it."""
    table = plain_table("", "", text_columns=(0, 1))
    lengths_ns: dict[str, list[int]] = {}
    for one in contents:
        for mark in one.steps:
            lengths_ns.setdefault(mark.name, []).append(mark.duration_ns)
    for name, lengths in list(lengths_ns.items())[:MAX_STEPS]:
        low, high = duration_text(min(lengths)), duration_text(max(lengths))
        table.add_row(name, low if low == high else f"{low} to {high}")
    if len(lengths_ns) > MAX_STEPS:
        table.add_row(f"and {len(lengths_ns) - MAX_STEPS:,} more: --json", "")
    return table


def _dropped(contents: Sequence[Contents]) -> Table:
    table = plain_table("", "", text_columns=(1,))
    total: Counter[str] = Counter()
    for one in contents:
        total.update(one.dropped)
    for reason, count in total.most_common(MAX_REASONS):
        table.add_row(f"{count:,}", reason)
    if len(total) > MAX_REASONS:
        table.add_row("", f"and {len(total) - MAX_REASONS:,} more reasons: --json")
    return table


def _with_files(
    contents: Sequence[Contents], sentences_of: Callable[[Contents], Sequence[str]]
) -> list[str]:
    """Each sentence once, with how many files it is about where that is not all."""
    count = Counter(sentence for one in contents for sentence in sentences_of(one))
    return [
        sentence
        if number == len(contents)
        else f"{sentence} ({count_text(number, 'file')} of {len(contents)})"
        for sentence, number in count.items()
    ]


def _print_sentences(console: Console, title: str, sentences: Sequence[str]) -> None:
    if not sentences:
        return
    console.print(f"\n{title}", style="bold")
    console.print(sentences_table(sentences))


def print_links(links: Links) -> None:
    """Print which operators of execution traces beside the files are which of their events."""
    if not links.by_rank:
        return
    table = plain_table("rank", "execution trace", "schema", "by", "operators", "linked",
                        text_columns=(1, 2, 3))  # fmt: skip
    for one in links.by_rank[:MAX_FILES]:
        table.add_row(
            "?" if one.rank is None else str(one.rank),
            one.execution_trace.path.name,
            one.execution_trace.schema,
            one.method.value + (" (first that fits)" if one.is_ambiguous else ""),
            f"{one.num_operators:,}",
            f"{one.coverage:.1%}",
        )
    if len(links.by_rank) > MAX_FILES:
        table.add_row("", f"and {len(links.by_rank) - MAX_FILES:,} more: --json", "", "", "", "")
    console = Console(highlight=False)
    console.print("\nexecution traces", style="bold")
    console.print(table)

"""Results as small HTML tables, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from foretrace.answer import milliseconds_text, percent_text, signed_percent_text
from foretrace.validate import ReplayReport

MAX_ROWS = 40


def replay_html(replay: ReplayReport) -> str:
    """Every step on every rank, measured beside replayed, in ms."""
    head = ["step", "rank", "measured ms", "replayed ms", "error", "kernel starts p95"]
    pairs = [(step.name, rank) for step in replay.steps for rank in step.ranks]
    rows = (
        [
            name,
            str(rank.rank),
            milliseconds_text(rank.measured_ns),
            milliseconds_text(rank.replayed_ns),
            signed_percent_text(
                100 * (rank.replayed_ns - rank.measured_ns) / max(rank.measured_ns, 1)
            ),
            percent_text(100 * rank.kernel_start_error.p95_ns / max(rank.measured_ns, 1)),
        ]
        for name, rank in pairs[:MAX_ROWS]
    )
    return html_table(head, rows, num_left_out=len(pairs) - MAX_ROWS)


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, num_left_out: int) -> str:
    """A table whose every cell is escaped, and how many rows it leaves out."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    rest = f"<p>and {num_left_out} more rows</p>" if num_left_out > 0 else ""
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>{rest}"

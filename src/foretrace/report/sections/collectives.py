"""Collectives: the longest waits and transfers, and how much each rank waited."""

from __future__ import annotations

import numpy as np

from foretrace.analyze import CollectiveTable
from foretrace.answer import Column, SideBySide, Stretch, Table, Unit
from foretrace.base import Int64s
from foretrace.report.document import Section

NUM_TOP = 8

_COLUMNS = (
    Column("collective", "collective", Unit.WORD),
    Column("group", "group", Unit.WORD),
    Column("position", "#", Unit.IDENTIFIER),
    Column("num_bytes", "size", Unit.BYTES),
    Column("rank", "rank", Unit.IDENTIFIER),
    Column("last_rank", "last", Unit.IDENTIFIER),
    Column("wait_ns", "wait", Unit.NS),
    Column("transfer_ns", "transfer", Unit.NS),
)


def collective_section(table: CollectiveTable) -> Section | None:
    """The measured collectives; `None` without any."""
    if not len(table):
        return None
    is_estimated = any(one.is_transfer_estimated for one in table.collectives)
    return Section(
        key="collectives",
        title="Collectives",
        short="Collectives",
        parts=(
            SideBySide(
                (
                    _top(table, "Longest waits", table.wait_ns),
                    _top(table, "Longest transfers", table.transfer_ns),
                )
            ),
            _by_rank(table),
        ),
        note=(
            "Transfers are estimated where not every member was recorded." if is_estimated else ""
        ),
    )


def _top(table: CollectiveTable, title: str, length_ns: Int64s) -> Table:
    """The collectives with the longest wait or transfer on any rank, each once."""
    order = np.lexsort((np.arange(len(table)), -length_ns))
    _, first = np.unique(table.collective[order], return_index=True)
    rows = order[np.sort(first)[:NUM_TOP]]
    cells = []
    for row in rows.tolist():
        collective = table.collectives[table.collective[row]]
        cells.append(
            (
                collective.name,
                collective.group,
                collective.position,
                None if collective.num_bytes < 0 else collective.num_bytes,
                int(table.rank[row]),
                int(table.last_rank[row]),
                int(table.wait_ns[row]),
                int(table.transfer_ns[row]),
            )
        )
    return Table(
        key=title.lower().replace(" ", "-"),
        title=title,
        columns=_COLUMNS,
        rows=tuple(cells),
        stretches=tuple(_stretch(table, row) for row in rows[:NUM_TOP].tolist()),
    )


def longest_wait_for(table: CollectiveTable, rank: int) -> Stretch | None:
    """The longest wait of any rank at a collective to which this rank came last."""
    rows = np.flatnonzero((table.last_rank == rank) & (table.rank != rank))
    return _stretch(table, int(rows[np.argmax(table.wait_ns[rows])])) if len(rows) else None


def _stretch(table: CollectiveTable, row: int) -> Stretch:
    begin_ns, end_ns = int(table.arrive_ns[row]), int(table.finish_ns[row])
    return Stretch(int(table.rank[row]), begin_ns, end_ns)


def _by_rank(table: CollectiveTable) -> Table:
    return Table.of(
        "collectives-by-rank",
        table.by_rank(),
        Column("rank", "rank", Unit.IDENTIFIER),
        Column("num_collectives", "count", Unit.COUNT),
        Column("num_last", "came last", Unit.COUNT),
        Column("wait_ns", "wait ms", Unit.MS),
        Column("transfer_ns", "transfer ms", Unit.MS),
        title="Per rank, whole recording",
        max_rows=32,
        note="The rank that came last kept the others waiting.",
    )

"""What device time is made of: operator classes, families, operators with shapes."""

from __future__ import annotations

from foretrace.analyze import COMMUNICATION, WAITING, OperatorRow, OperatorTable
from foretrace.answer import (
    Cell,
    Chart,
    ChartKind,
    Column,
    Series,
    SideBySide,
    Table,
    Told,
    Unit,
    duration_text,
    percent_text,
)
from foretrace.base import NS_PER_S
from foretrace.operators import OperatorClass
from foretrace.report.document import Section
from foretrace.report.signatures import shapes_text
from foretrace.report.subjects import shortened

MAX_BARS = 14
NUM_NAMES = 3


def operator_section(table: OperatorTable | None) -> Section | None:
    """Device time of all ranks by class, by family and by operator; `None` without any."""
    if table is None or not table.time_ns:
        return None
    parts: list[Told] = [
        SideBySide((_summed(table, "class"), _summed(table, "family"))),
        _operators(table),
    ]
    step = f"{table.step_name}: d" if table.step_name else "D"
    return Section(
        key="operators",
        title="Operators",
        short="Operators",
        lead=(
            f"{step}evice time of all ranks, {duration_text(table.time_ns)} added up over "
            "streams, by what kernels do. FLOPs and bytes are those that the shapes demand."
        ),
        parts=tuple(parts),
        note=_unrecognised(table),
    )


def _summed(table: OperatorTable, by: str) -> Table:
    """Rows added up by class, or by class and family."""
    rows = table.by("class" if by == "class" else "family")
    collectives = {row.kind for row in table.rows if row.family == COMMUNICATION}
    colours = [_colour(row, is_collective=row.kind in collectives) for row in rows]
    return Table(
        key=f"operators-by-{by}",
        title=f"By {by}",
        columns=(
            Column(by, by),
            Column("time_ns", "ms", Unit.MS),
            Column("share_percent", "share", Unit.PERCENT),
            Column("num_kernels", "kernels", Unit.COUNT),
            Column("flops_per_s", "rate", Unit.FLOPS_PER_S),
            Column("bytes_per_s", "traffic", Unit.BYTES_PER_S),
        ),
        rows=tuple(
            (
                row.kind if by == "class" or row.kind in collectives else row.family,
                row.time_ns,
                100 * row.share,
                row.num_kernels,
                *_rates(row),
            )
            for row in rows
        ),
        colours=tuple(colours),
        chart=Chart(
            kind=ChartKind.BARS,
            label=f"device time by {by}",
            category=by,
            series=(Series("time_ns", "device time", "compute"),),
            unit=Unit.NS,
            max_rows=MAX_BARS,
        ),
    )


def _colour(row: OperatorRow, *, is_collective: bool) -> str:
    """What the rest of the page draws this work in."""
    if row.kind == WAITING:
        return "wait"
    if is_collective:
        return "communication"
    return "copy" if row.kind == OperatorClass.COPY else "compute"


def _rates(row: OperatorRow) -> tuple[Cell, Cell]:
    flops, num_bytes = row.flops_per_ns, row.bytes_per_ns
    return (
        None if flops is None else flops * NS_PER_S,
        None if num_bytes is None else num_bytes * NS_PER_S,
    )


def _operators(table: OperatorTable) -> Table:
    return Table(
        key="operators",
        title="Operators with their shapes",
        columns=(
            Column("operator", "operator"),
            Column("class", "class", Unit.WORD),
            Column("family", "kernels"),
            Column("signature", "shapes"),
            Column("num_calls", "calls", Unit.COUNT),
            Column("time_ns", "ms", Unit.MS),
            Column("share_percent", "share", Unit.PERCENT),
            Column("flops_per_s", "rate", Unit.FLOPS_PER_S),
            Column("bytes_per_s", "traffic", Unit.BYTES_PER_S),
        ),
        rows=tuple(
            (
                row.operator or (row.kind if row.family == COMMUNICATION else row.family),
                row.kind,
                row.family,
                shapes_text(row.signature) if row.signature else "",
                row.num_calls or row.num_kernels,
                row.time_ns,
                100 * row.share,
                *_rates(row),
            )
            for row in table.rows
        ),
        max_rows=12,
    )


def _unrecognised(table: OperatorTable) -> str:
    found = table.unrecognised
    share = f"{percent_text(100 * found.share)} of device time is unrecognised"
    names = ", ".join(
        f"{shortened(name)} ({duration_text(time_ns)})" for name, time_ns in found.names[:NUM_NAMES]
    )
    return f"{share}: {names}." if names else f"{share}."

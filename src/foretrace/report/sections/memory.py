"""Memory over the step: the curve, the peak with what was at work then, and what held it."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.analyze import Holder, MemoryPlace, MemoryUse
from foretrace.answer import Cell, Chart, ChartKind, Column, Series, SideBySide, Table, Told, Unit
from foretrace.report.document import Section
from foretrace.report.subjects import shortened

MAX_CURVES = 2  # places whose curve is drawn: those with the highest peaks
MAX_HOLDERS = 10


def memory_section(use: MemoryUse | None) -> Section | None:
    """Memory of every rank; `None` if none was recorded."""
    if use is None or not len(use):
        return None
    highest = sorted(use.places, key=lambda place: (not place.is_device, -place.peak_bytes))
    first = highest[0]
    holders = [
        _holders("memory-allocated-by", f"Asked for, {first.label}", first.allocated_by),
        _holders("memory-alive-at-peak", f"Alive at the peak, {first.label}", first.alive_at_peak),
    ]
    parts: list[Told] = [
        _curve(place) for place in highest[:MAX_CURVES] if len(place.curve.begin_ns)
    ]
    parts.append(_peaks(use.places))
    parts.append(SideBySide(tuple(table for table in holders if table.rows)))
    is_relative = any(place.is_relative for place in use.places)
    return Section(
        key="memory",
        title="Memory",
        short="Memory",
        lead=(
            f"{'An allocator snapshot' if use.is_snapshot else 'Profiler memory events'}"
            f"{f' of {use.step_name}' if use.step_name else ''}; the curves of the places with "
            "the highest peaks."
        ),
        parts=tuple(parts),
        note=(
            "Where totals were not recorded, bytes count from the least in use."
            if is_relative
            else ""
        ),
    )


def _curve(place: MemoryPlace) -> Table:
    curve = place.curve
    begin_ns = int(curve.begin_ns[0])
    has_reserved = bool((curve.reserved_bytes >= 0).any())
    columns = [
        Column("time_ns", "time", Unit.NS),
        Column("high_bytes", "most in use", Unit.BYTES),
        Column("low_bytes", "least in use", Unit.BYTES),
    ]
    values = [curve.begin_ns - begin_ns, curve.high_bytes, curve.low_bytes]
    series = [
        Series("high_bytes", "most in use", "compute"),
        Series("low_bytes", "least in use", "compute", is_faint=True),
    ]
    if has_reserved:
        columns.append(Column("reserved_bytes", "reserved", Unit.BYTES))
        values.append(curve.reserved_bytes)
        series.append(Series("reserved_bytes", "reserved", "idle"))
    return Table(
        key=f"memory-{place.label.replace(' ', '-')}",
        title=f"Over the step, {place.label}",
        columns=tuple(columns),
        rows=tuple(zip(*(column.tolist() for column in values), strict=True)),
        chart=Chart(
            kind=ChartKind.STEPS,
            label=f"memory in use over time, {place.label}",
            category="time_ns",
            category_unit=Unit.NS,
            series=tuple(series),
            unit=Unit.BYTES,
        ),
        max_rows=10,
    )


def _peaks(places: Sequence[MemoryPlace]) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            place.label,
            place.begin_bytes,
            place.peak_bytes,
            place.end_bytes,
            place.peak_reserved_bytes if place.peak_reserved_bytes >= 0 else None,
            shortened(place.peak.operator),
            place.peak.block,
        )
        for place in places
    )
    return Table(
        key="memory-peaks",
        title="Peaks",
        columns=(
            Column("place", "memory", Unit.WORD),
            Column("begin_bytes", "at the begin", Unit.BYTES),
            Column("peak_bytes", "peak", Unit.BYTES),
            Column("end_bytes", "at the end", Unit.BYTES),
            Column("peak_reserved_bytes", "reserved, most", Unit.BYTES),
            Column("peak_operator", "at work at the peak"),
            Column("peak_block", "block"),
        ),
        rows=rows,
        max_rows=16,
    )


def _holders(key: str, title: str, holders: tuple[Holder, ...]) -> Table:
    return Table(
        key=key,
        title=title,
        columns=(
            Column("what", "by"),
            Column("num_allocations", "allocations", Unit.COUNT),
            Column("num_bytes", "bytes", Unit.BYTES),
        ),
        rows=tuple(
            (shortened(one.what) or "unknown", one.num_allocations, one.num_bytes)
            for one in holders
        ),
        max_rows=MAX_HOLDERS,
    )

"""Roofline and attention: operators against what their chip allows, and sequence lengths."""

from __future__ import annotations

from foretrace.analyze import AttentionProfile, Roofline, RooflinePoint
from foretrace.answer import (
    Cell,
    Chart,
    ChartKind,
    Column,
    Level,
    Series,
    Table,
    Unit,
    percent_text,
)
from foretrace.base import NS_PER_S
from foretrace.report.document import Section
from foretrace.report.signatures import shapes_text

# Roofs are drawn a little beyond the points, so that a point at the border can be judged.
_BEYOND = 2.0


def roofline_section(roofline: Roofline | None) -> Section | None:
    """Achieved rates by intensity, under the chip's roofs; `None` if no shapes tell any work."""
    if roofline is None or not any(point.intensity for point in roofline.points):
        return None
    chip = (
        f"{roofline.chip_name}, dense peaks"
        if roofline.chip_name
        else "The chip is unknown, so there are no roofs"
    )
    return Section(
        key="roofline",
        title="Roofline",
        short="Roofline",
        lead=(
            f"{chip}. A point is all calls of one operator with one signature, its area their "
            "time; FLOPs and least traffic as the shapes demand. The points hold "
            f"{percent_text(100 * roofline.covered)} of the time of what is not communication."
        ),
        parts=(_points(roofline),),
    )


def attention_section(profile: AttentionProfile | None) -> Section | None:
    """Sequence lengths of attention, call by call; `None` without attention."""
    if profile is None or not len(profile):
        return None
    first = int(profile.rank[0])
    rows: list[tuple[Cell, ...]] = [
        (call, int(profile.query_length[row]), int(profile.kv_length[row]))
        for call, row in enumerate((profile.rank == first).nonzero()[0].tolist())
    ]
    lengths: list[tuple[Cell, ...]] = [
        (
            row["query_length"],
            row["kv_length"],
            "backward" if row["is_backward"] else "forward",
            "fused" if row["is_fused"] else "by its softmax",
            row["num_calls"],
            row["time_ns"],
        )
        for row in profile.by_length().to_dicts()
    ]
    return Section(
        key="attention",
        title="Attention",
        short="Attention",
        lead=(
            f"Sequence lengths of attention, {percent_text(100 * profile.share)} of the time of "
            "all kernels; drawn call by call where they differ."
        ),
        parts=(
            *([_profile(rows, first)] if len({row[1:] for row in rows}) > 1 else []),
            _lengths(tuple(lengths)),
        ),
    )


def _points(roofline: Roofline) -> Table:
    return Table(
        key="roofline-points",
        title="",
        columns=(
            Column("operator", "operator"),
            Column("class", "class", Unit.WORD),
            Column("signature", "shapes"),
            Column("dtype", "format", Unit.WORD),
            Column("num_calls", "calls", Unit.COUNT),
            Column("time_ns", "time", Unit.NS),
            Column("intensity_flops_per_byte", "intensity", Unit.FLOPS_PER_BYTE),
            Column("flops_per_s", "rate", Unit.FLOPS_PER_S),
            Column("bytes_per_s", "traffic", Unit.BYTES_PER_S),
            Column("bound", "bound by", Unit.WORD),
            Column("share_of_bound_percent", "of the bound", Unit.PERCENT),
        ),
        rows=tuple(map(_cells, roofline.points)),
        chart=Chart(
            kind=ChartKind.POINTS,
            label="achieved rate of every operator over its arithmetic intensity",
            category="intensity_flops_per_byte",
            category_unit=Unit.FLOPS_PER_BYTE,
            series=(Series("flops_per_s", "achieved", "compute"),),
            unit=Unit.FLOPS_PER_S,
            name="operator",
            colour_by="class",
            size_by="time_ns",
            levels=_roofs(roofline),
        ),
    )


def _cells(point: RooflinePoint) -> tuple[Cell, ...]:
    return (
        point.operator or point.family,
        point.kind,
        shapes_text(point.signature),
        point.dtype,
        point.num_calls,
        point.time_ns,
        point.intensity,
        point.flops_per_ns * NS_PER_S,
        None if point.bytes_per_ns is None else point.bytes_per_ns * NS_PER_S,
        point.bound,
        None if point.share is None else 100 * point.share,
    )


def _roofs(roofline: Roofline) -> tuple[Level, ...]:
    """One roof per number format: up along the memory's bandwidth, then flat at the peak."""
    bandwidth = roofline.bytes_limit_per_ns
    if not bandwidth:
        return ()
    intensities = [point.intensity for point in roofline.points if point.intensity]
    low, high = min(intensities) / _BEYOND, max(intensities) * _BEYOND
    roofs = []
    for dtype, peak in sorted(roofline.flops_limit_by_dtype.items()):
        ridge = peak / bandwidth
        line = [(low, low * bandwidth), (ridge, peak), (max(high, ridge * _BEYOND), peak)]
        points = tuple((x, y * NS_PER_S) for x, y in line)
        roofs.append(Level(dtype, points))
    return tuple(roofs)


def _profile(rows: list[tuple[Cell, ...]], rank: int) -> Table:
    return Table(
        key="attention-calls",
        title=f"Call by call, rank {rank}",
        columns=(
            Column("call", "call", Unit.IDENTIFIER),
            Column("query_length", "query length", Unit.COUNT),
            Column("kv_length", "key length", Unit.COUNT),
        ),
        rows=tuple(rows),
        chart=Chart(
            kind=ChartKind.STEPS,
            label="sequence length of each attention call in the order of calls",
            category="call",
            category_unit=Unit.IDENTIFIER,
            series=(
                Series("query_length", "query length", "compute"),
                Series("kv_length", "key length", "path", is_faint=True),
            ),
            unit=Unit.COUNT,
        ),
    )


def _lengths(rows: tuple[tuple[Cell, ...], ...]) -> Table:
    return Table(
        key="attention-lengths",
        title="By length, all ranks",
        columns=(
            Column("query_length", "query length", Unit.COUNT),
            Column("kv_length", "key length", Unit.COUNT),
            Column("direction", "direction", Unit.WORD),
            Column("seen_by", "seen by", Unit.WORD),
            Column("num_calls", "calls", Unit.COUNT),
            Column("time_ns", "ms", Unit.MS),
        ),
        rows=rows,
        max_rows=12,
    )

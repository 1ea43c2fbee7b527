"""`Roofline`: how near each operator comes to what its chip allows.

An operator cannot take less than its FLOPs at the chip's peak, nor less than its least traffic at
the memory's bandwidth. The larger of both bounds it; that bound over its time is its share.
Source of the model: Williams, Waterman, Patterson, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from foretrace.analyze.comparison.views import shapes_text
from foretrace.analyze.operators import COMMUNICATION, OperatorRow, OperatorTable
from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Level,
    Plain,
    Series,
    Shown,
    Table,
    Told,
    Unit,
    percent_text,
)
from foretrace.machine import Chip, chip_named
from foretrace.operators import HOST_COPY

# Roofs are drawn a little beyond the points, so that a point at the border can be judged.
_BEYOND = 2.0


@dataclass(frozen=True)
class RooflinePoint(Plain):
    """All calls of one operator with one signature, on all ranks."""

    json_names: ClassVar = {
        "kind": "class", "flops_limit_per_ns": "", "bytes_limit_per_ns": "",
    }  # fmt: skip
    json_also: ClassVar = (
        "intensity", "flops_per_ns", "bytes_per_ns", "compute_share", "memory_share", "bound",
        "share",
    )  # fmt: skip

    kind: str  # operator class
    family: str  # of its longest kernels
    operator: str
    signature: str
    dtype: str  # "tf32" where fp32 was multiplied on matrix units
    num_calls: int
    time_ns: int  # of all kernels of these calls
    flops: int
    num_bytes: (
        int | None
    )  # least traffic; of a copy from or to the host, over the link; None: unknown
    flops_limit_per_ns: float | None  # the chip's peak in this format; None: chip unknown
    bytes_limit_per_ns: float | None  # of memory, or of the link to the host; None: unknown

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte."""
        return self.flops / self.num_bytes if self.num_bytes else None

    @property
    def flops_per_ns(self) -> float:
        """Achieved: 1,000 are 1 TFLOP/s."""
        return self.flops / self.time_ns

    @property
    def bytes_per_ns(self) -> float | None:
        """Achieved: 1 is 1 GB/s."""
        return None if self.num_bytes is None else self.num_bytes / self.time_ns

    @property
    def compute_share(self) -> float | None:
        """Achieved part of the peak rate."""
        return self.flops_per_ns / self.flops_limit_per_ns if self.flops_limit_per_ns else None

    @property
    def memory_share(self) -> float | None:
        """Achieved part of the memory bandwidth; above 1 where caches served."""
        if self.bytes_per_ns is None or not self.bytes_limit_per_ns:
            return None
        return self.bytes_per_ns / self.bytes_limit_per_ns

    @property
    def bound(self) -> str:
        """`compute` or `memory`: which limit is nearer; empty if either is unknown."""
        if self.compute_share is None or self.memory_share is None:
            return ""
        return "compute" if self.compute_share >= self.memory_share else "memory"

    @property
    def share(self) -> float | None:
        """Least possible time over the time taken; None if a limit is unknown."""
        if self.compute_share is None or self.memory_share is None:
            return None
        return max(self.compute_share, self.memory_share)


@dataclass(frozen=True, repr=False)
class Roofline(Answer):
    """Points, the longest first, and the chip's limits."""

    json_names: ClassVar = {"chip_name": "chip"}

    chip_name: str | None  # None: unknown, so no shares
    bytes_limit_per_ns: float | None
    flops_limit_by_dtype: dict[str, float]  # per ns, of the formats that occur in products
    points: tuple[RooflinePoint, ...]
    covered: float  # share of device time without communication that the points hold

    @property
    def headline(self) -> str:
        """Which chip, and how much of the time the points hold."""
        chip = f"{self.chip_name}, dense peaks" if self.chip_name else "chip not known: no shares"
        covered = percent_text(100 * self.covered)
        return f"{chip}; {covered} of the time without communication has shapes"

    @property
    def lead(self) -> str:
        """Which chip, and what a point is."""
        return (
            f"{self.headline}. A point is all calls of one operator with one signature, its area "
            "their time; FLOPs and least traffic as the shapes demand."
        )

    @property
    def is_empty(self) -> bool:
        """Whether no shapes tell any work."""
        return not any(point.intensity for point in self.points)

    def parts(self) -> tuple[Told, ...]:
        """The points under the chip's roofs."""
        return (
            Table.of(
                "points",
                self.points,
                Column("operator", unit=Unit.NAME, value=lambda one: one.operator or one.family),
                Column("class", "class", Unit.WORD, "kind", Shown.WIDE),
                Column("signature", shown=Shown.FILES),
                Column("shapes", value=lambda one: shapes_text(one.signature)),
                Column("dtype", "format", Unit.WORD),
                Column("num_calls", shown=Shown.WIDE),
                Column("time_ns", "ms"),
                Column("flops", shown=Shown.FILES),
                Column("num_bytes", shown=Shown.FILES),
                Column("intensity", "intensity", Unit.FLOPS_PER_BYTE, shown=Shown.WIDE),
                Column("flops_per_ns", "rate"),
                Column("bytes_per_ns", "traffic"),
                Column("compute_share", shown=Shown.FILES),
                Column("memory_share", shown=Shown.FILES),
                Column("share", "of limit"),
                Column("bound", "bound by", Unit.WORD),
                chart=self._chart(),
            ),
        )

    def _chart(self) -> Chart:
        return Chart(
            kind=ChartKind.POINTS,
            label="achieved rate of every operator over its arithmetic intensity",
            category="intensity",
            category_unit=Unit.FLOPS_PER_BYTE,
            series=(Series("flops_per_ns", "achieved", "compute"),),
            unit=Unit.FLOPS_PER_NS,
            name="operator",
            colour_by="class",
            size_by="time_ns",
            levels=self._roofs(),
        )

    def _roofs(self) -> tuple[Level, ...]:
        """One roof per number format: up along the memory's bandwidth, then flat at the peak."""
        bandwidth = self.bytes_limit_per_ns
        if not bandwidth or self.is_empty:
            return ()
        intensities = [point.intensity for point in self.points if point.intensity]
        low, high = min(intensities) / _BEYOND, max(intensities) * _BEYOND
        roofs = []
        for dtype, peak in sorted(self.flops_limit_by_dtype.items()):
            ridge = peak / bandwidth
            line = ((low, low * bandwidth), (ridge, peak), (max(high, ridge * _BEYOND), peak))
            roofs.append(Level(dtype, line))
        return tuple(roofs)


def chip_of(device_names: Iterable[str]) -> Chip | None:
    """The one chip that all these devices are; none if they differ or are unknown."""
    chips = {name: chip_named(name) for name in set(device_names)}
    found = list(chips.values())
    return found[0] if found and all(chip == found[0] for chip in found) else None


def roofline(table: OperatorTable, *, chip: Chip | None = None) -> Roofline:
    """Achieved rates of every operator whose shapes tell its work.

    Args:
        table: of `operators`.
        chip: what the ranks ran on, as from `chip_of`; without it there are rates, no shares.
    """
    rows = [row for row in table.rows if row.worked_ns and row.flops is not None]
    points = tuple(_point(row, chip) for row in rows)
    limits = {
        point.dtype: point.flops_limit_per_ns
        for row, point in zip(rows, points, strict=True)
        if row.is_product and point.flops_limit_per_ns is not None
    }
    own_ns = sum(row.time_ns for row in table.rows if row.family != COMMUNICATION)
    return Roofline(
        chip_name=None if chip is None else chip.name,
        bytes_limit_per_ns=None if chip is None else chip.memory_bytes_per_ns,
        flops_limit_by_dtype=limits,
        points=points,
        covered=sum(point.time_ns for point in points) / own_ns if own_ns else 0.0,
    )


def _point(row: OperatorRow, chip: Chip | None) -> RooflinePoint:
    limit = None
    if chip is not None and row.dtype:
        limit = chip.peak_flops_per_ns(row.dtype, on_matrix_units=row.is_product)
    return RooflinePoint(
        kind=row.kind,
        family=row.family,
        operator=row.operator,
        signature=row.signature,
        dtype=row.dtype,
        num_calls=row.num_calls,
        time_ns=row.worked_ns,
        flops=row.flops or 0,
        num_bytes=row.num_bytes,
        flops_limit_per_ns=limit,
        bytes_limit_per_ns=_bytes_limit(row, chip),
    )


def _bytes_limit(row: OperatorRow, chip: Chip | None) -> float | None:
    """The memory's bandwidth, of copies from or to the host the link's."""
    if chip is None:
        return None
    return chip.host_bytes_per_ns if row.family == HOST_COPY else chip.memory_bytes_per_ns

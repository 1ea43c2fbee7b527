"""`BusyFraction`: how much of each millisecond a rank's device was executing something."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze.activity import activity_by_rank
from foretrace.answer import Answer, Column, Table, Told, Unit, count_text, percent_text
from foretrace.base import NS_PER_S, Float64s, TraceError
from foretrace.graph import Timeline

BIN_NS = 1_000_000  # the width in which Lumos (arXiv:2504.09307) reports SM utilisation
_MOST_BINS = 1 << 27  # of all ranks: 1 GiB, 30 ranks for an hour


@dataclass(frozen=True, repr=False)
class BusyFraction(Answer):
    """Part of each bin in which at least one stream executes, on each rank.

    Bin k covers k * bin_ns to (k + 1) * bin_ns from the timeline's zero; the last one counts as
    whole. A collective that waits for other ranks executes. On a rank without a device stream
    operators and collectives on any thread count.
    """

    bin_ns: int
    ranks: tuple[int, ...]
    fraction: Float64s  # float64[ranks, bins], 0 to 1

    @property
    def num_bins(self) -> int:
        """Bins per rank."""
        return int(self.fraction.shape[1])

    def of_rank(self, rank: int) -> Float64s:
        """One rank's fractions; float64[bins]."""
        if rank not in self.ranks:
            raise ValueError(f"no rank {rank}: ranks are {list(self.ranks[:8])}")
        row: Float64s = self.fraction[self.ranks.index(rank)]
        return row

    @property
    def headline(self) -> str:
        """How busy all ranks are."""
        mean = float(self.fraction.mean()) if self.fraction.size else 0.0
        return f"{count_text(len(self.ranks), 'rank')}, {percent_text(100 * mean)} busy"

    def parts(self) -> tuple[Told, ...]:
        """One row per rank and bin."""
        begin_ns = np.tile(np.arange(self.num_bins) * self.bin_ns, len(self.ranks))
        return (
            Table.of_columns(
                "bins",
                (Column("rank"), np.repeat(np.array(self.ranks, np.int32), self.num_bins)),
                (Column("begin_ns"), begin_ns),
                (Column("busy", unit=Unit.SHARE), self.fraction.reshape(-1)),
            ),
        )


def busy_fraction(timeline: Timeline, *, bin_ns: int = BIN_NS) -> BusyFraction:
    """How much of each bin every rank's device executes something.

    Raises:
        ValueError: if `bin_ns` is below 1.
        TraceError: if the run is too long for bins of that width.
    """
    if bin_ns < 1:
        raise ValueError(f"bin_ns must be at least 1, got {bin_ns}")
    busy_by_rank = {rank: activity.busy for rank, activity in activity_by_rank(timeline).items()}
    last_ns = max((int(busy.end_ns[-1]) for busy in busy_by_rank.values() if len(busy)), default=0)
    num_bins = -(-last_ns // bin_ns)
    if num_bins * len(busy_by_rank) > _MOST_BINS:
        most_ns = _MOST_BINS * bin_ns // len(busy_by_rank)
        raise TraceError(
            f"how busy devices were in a run of {last_ns / NS_PER_S:,.0f} s cannot be held: at "
            f"most {most_ns / NS_PER_S:,.0f} s are expected of {len(busy_by_rank)} ranks; look for "
            "a timestamp that is far from the others"
        )
    rows = [busy.by_bin_ns(bin_ns, num_bins) / bin_ns for busy in busy_by_rank.values()]
    fraction = np.stack(rows) if rows else np.zeros((0, num_bins), dtype=np.float64)
    return BusyFraction(bin_ns=bin_ns, ranks=tuple(busy_by_rank), fraction=fraction)

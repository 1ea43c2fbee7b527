"""Transfers of one recording: a start, and the bytes on the links at a rate, for each group.

A group that was not recorded takes what its kind of collective takes elsewhere, else what all do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s, MachineError
from foretrace.cost.network.domain import collective_named
from foretrace.cost.of_recording.lines import Line, Points, fitted_line

_FAR = 8  # times as many bytes: then most of the smaller one's time is its start
_NO_START_NS = 1.0
# Up to here a transfer is its start alone: NCCL's own switch to protocols for bandwidth is later.
_SMALL_BYTES = 16_384


@dataclass(frozen=True)
class MeasuredTransfer:
    """One kind of collective as it was recorded: the median of its calls."""

    group: Hashable  # ranks that communicate alike: "tp", ...
    collective: str  # any name
    num_ranks: int
    num_bytes: int  # as the recording counts them
    transfer_ns: float  # from the last arrival on


@dataclass(frozen=True)
class LineReach:
    """A line, and the most bytes that were recorded for it."""

    line: Line
    most_bytes: float  # one way, on one rank's links

    def covers(self, traffic: float) -> bool:
        """Whether a transfer is of a size that the line tells anything of."""
        return traffic <= max(self.most_bytes * _FAR, _SMALL_BYTES)


@dataclass(frozen=True)
class TransferLines:
    """Lines of each group, of each kind of collective, and one through all."""

    by_group: Mapping[Hashable, LineReach]
    by_kind: Mapping[Hashable, LineReach]
    of_all: LineReach

    def costs_ns(
        self, group: Hashable, collective: str, *, num_ranks: int, num_bytes: int
    ) -> tuple[float, float, float]:
        """Duration and both ends of its interval.

        Raises:
            MachineError: for a collective that is not known, or far larger than any recorded one.
        """
        traffic = np.array([_traffic(collective, num_ranks, num_bytes)])
        known = (self.by_group.get(group), self.by_kind.get(collective_named(collective)))
        lines = [one for one in (*known, self.of_all) if one is not None]
        line = next((one.line for one in lines if one.covers(float(traffic[0]))), None)
        if line is None:
            raise MachineError(
                f"{collective} of {num_bytes:,} bytes among {num_ranks} ranks cannot be told from "
                f"what was recorded, at most {max(one.most_bytes for one in lines):,.0f} bytes a "
                "rank: name the machine, or give costs from a table that `foretrace measure` makes."
            )
        nothing = np.zeros(1)
        ns = float(line.predicted_ns(nothing, traffic)[0])
        low, high = line.ends(nothing, traffic)
        return ns, ns * float(low[0]), ns * float(high[0])


def fitted_transfers(measured: Sequence[MeasuredTransfer]) -> TransferLines:
    """Lines through what was recorded.

    Raises:
        MachineError: if nothing was, or a collective is not known.
    """
    kept = [one for one in measured if one.transfer_ns > 0 and one.num_ranks > 1]
    if not kept:
        raise MachineError(
            "no transfer between ranks was recorded that another could be predicted from: name "
            "the machine, or give costs from a table that `foretrace measure` makes."
        )

    def lines(key: Callable[[MeasuredTransfer], Hashable]) -> dict[Hashable, LineReach]:
        found: dict[Hashable, list[MeasuredTransfer]] = {}
        for one in kept:
            found.setdefault(key(one), []).append(one)
        return {name: _line(rows, kept) for name, rows in found.items()}

    kinds = lines(lambda one: collective_named(one.collective))
    by_group = lines(lambda one: one.group)
    return TransferLines(by_group, kinds, _line(kept, kept))


def _line(rows: Sequence[MeasuredTransfer], kept: Sequence[MeasuredTransfer]) -> LineReach:
    """A start is what far smaller transfers take, of whatever group; without any there is none."""
    points = _points(rows)
    largest = points.num_bytes.max()
    small = [
        one.transfer_ns
        for one in kept
        if _traffic(one.collective, one.num_ranks, one.num_bytes) * _FAR <= largest
    ]
    line = fitted_line(points, min(small, default=_NO_START_NS))
    return LineReach(line, float(largest))


def _points(measured: Sequence[MeasuredTransfer]) -> Points:
    traffic = [_traffic(one.collective, one.num_ranks, one.num_bytes) for one in measured]
    times: Float64s = np.array([one.transfer_ns for one in measured])
    names = list(dict.fromkeys(collective_named(one.collective) for one in measured))
    kinds = [names.index(collective_named(one.collective)) for one in measured]
    return Points(np.zeros(len(times)), np.array(traffic), times, np.array(kinds, np.int64), times)


def _traffic(collective: str, num_ranks: int, num_bytes: int) -> float:
    """Bytes that one rank's links carry one way.

    Raises:
        MachineError: for a collective that is not known.
    """
    known = collective_named(collective)
    if known is None:
        raise MachineError(
            f"the collective {collective!r} has no cost: all-reduce, reduce-scatter, all-gather, "
            "all-to-all, broadcast, reduce and send/receive do."
        )
    share = known.bus_share(np.array([float(max(num_ranks, 2))]))
    return max(num_bytes, 0) * float(share[0])

"""`Traffic`: which nodes move bytes over which links, and how much of these they take alone.

A *flow* is the transfer of one collective on all its links: it has one rate, as a ring has, and
slows all its members alike. At rate 1 it takes the time that it takes alone, and of each of its
links a share. Where flows ask more of a link than it has, they share it by max-min fairness: the
rates of all rise together, each by its pace, until a full link or their own speed holds them.
Flows that are much alike make the same *pattern*; equal ranks make one flow whose shares are those
of all of them.

Fairness between flows is what long messages come to; short ones are over before their senders have
found their share, so their times are less sure (arXiv:2503.01770).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s, Int32s, Int64s, SimulationError

NO_FLOW = -1


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What the nodes of one graph ask of links."""

    flow: Int32s  # int32[nodes], the flow that a node is part of; NO_FLOW
    delay_ns: Int64s  # int64[nodes], of its duration what passes before it asks for links
    pattern: Int32s  # int32[flows]
    first_use: Int64s  # int64[patterns + 1], of the columns below
    link: Int32s  # int32[uses], no link twice in a pattern
    share: Float64s  # float64[uses], of the link's capacity, at rate 1; above 0
    # float64[patterns], rates of flows that have as much as each other: channels over what one of
    # them moves at rate 1.
    pace: Float64s
    num_links: int

    @property
    def num_flows(self) -> int:
        """Number of transfers."""
        return len(self.pattern)

    @classmethod
    def private(cls, num_nodes: int) -> Traffic:
        """Nothing is shared."""
        empty, none = np.empty(0, np.int32), np.empty(0)
        return cls(
            flow=np.full(num_nodes, NO_FLOW, np.int32),
            delay_ns=np.zeros(num_nodes, np.int64),
            pattern=empty,
            first_use=np.zeros(1, np.int64),
            link=empty,
            share=none,
            pace=none,
            num_links=0,
        )

    def check(self, num_nodes: int) -> None:
        """Refuse columns that the compiled loop would read past the end of, and idle flows.

        Raises:
            SimulationError: if columns do not fit each other, or a share or pace is not above 0.
        """
        sizes = len(self.flow), len(self.delay_ns)
        if sizes != (num_nodes, num_nodes):
            raise SimulationError(
                f"traffic must say of every node what it asks of links: {sizes} entries for "
                f"{num_nodes} nodes"
            )
        for what, column, end in (
            ("flow", self.flow + 1, self.num_flows + 1),
            ("pattern", self.pattern, len(self.first_use) - 1),
            ("link", self.link, self.num_links),
        ):
            if len(column) and not (column.min() >= 0 and column.max() < end):
                raise SimulationError(f"traffic names a {what} that there is not, of {end}")
        fits = self.first_use[0] == 0 and (np.diff(self.first_use) >= 0).all()
        if not fits or not self.first_use[-1] == len(self.link) == len(self.share):
            raise SimulationError("uses of links must go from 0 to their number, rising")
        if len(self.pace) != len(self.first_use) - 1 or (self.delay_ns < 0).any():
            raise SimulationError("every pattern has a pace, and no delay is below 0")
        for what, values in (("share of a link", self.share), ("pace", self.pace)):
            if not (np.isfinite(values) & (values > 0)).all():
                raise SimulationError(
                    f"a {what} must be above 0 and finite, got {values[~(values > 0)][:3].tolist()}"
                    ": a link without bandwidth carries nothing"
                )


@dataclass(frozen=True)
class LinkTimes:
    """What became of the links of a simulation."""

    crowded_ns: Float64s  # float64[links], time in which more was asked of it than it has
    held_ns: Float64s  # float64[links], time in which flows that were watched were held by it
    num_events: int  # begins and ends of flows

"""`CollectiveTable`: who waited for whom at each collective, and how long the transfer took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze.activity import participations
from foretrace.answer import Answer, Column, Table, Told, count_text, duration_text
from foretrace.base import Int32s, Int64s, turns_within
from foretrace.graph import Collectives, Timeline


@dataclass(frozen=True)
class RankCollectives:
    """One rank's communication over the whole timeline."""

    rank: int
    num_collectives: int
    num_last: int  # collectives at which this rank came last: the others waited for it
    wait_ns: int  # for other ranks
    transfer_ns: int

    @property
    def total_ns(self) -> int:
        """Arrival to finish, summed over collectives."""
        return self.wait_ns + self.transfer_ns


@dataclass(frozen=True, repr=False)
class CollectiveTable(Answer):
    """One row per collective and recorded rank that takes part; by collective, then rank."""

    collectives: Collectives
    collective: Int32s  # int32[rows], position in `collectives`
    step: Int32s  # int32[rows], position in the graph's `step_names`; NO_STEP outside
    rank: Int32s  # int32[rows]
    arrive_ns: Int64s  # int64[rows], when the rank was ready
    transfer_begin_ns: Int64s  # int64[rows], when its wait was over
    finish_ns: Int64s  # int64[rows]
    arrival: Int32s  # int32[rows], 0 for the first rank to arrive; ties by rank
    last_rank: Int32s  # int32[rows], recorded rank that arrived last at this collective

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.collective)

    @property
    def wait_ns(self) -> Int64s:
        """Time from arrival to the begin of the transfer; int64[rows]."""
        return self.transfer_begin_ns - self.arrive_ns

    @property
    def transfer_ns(self) -> Int64s:
        """Time from the begin of the transfer to the finish; int64[rows]."""
        return self.finish_ns - self.transfer_begin_ns

    @property
    def total_ns(self) -> Int64s:
        """Time from arrival to finish; int64[rows]."""
        return self.finish_ns - self.arrive_ns

    @property
    def headline(self) -> str:
        """How many there are, and how long ranks wait in them."""
        met = count_text(len(np.unique(self.collective)), "collective")
        return f"{met}, {duration_text(int(self.wait_ns.sum()))} of waiting on all ranks"

    def parts(self) -> tuple[Told, ...]:
        """One row per collective and rank."""
        each = [self.collectives[index] for index in self.collective.tolist()]
        facts = ("name", "group", "position", "num_bytes", "is_transfer_estimated")
        arrays = ("step", "rank", "arrive_ns", "wait_ns", "transfer_ns", "arrival", "last_rank")
        return (
            Table.of_columns(
                "rows",
                *((Column(key), [getattr(one, key) for one in each]) for key in facts),
                *((Column(key), getattr(self, key)) for key in arrays),
            ),
        )

    def by_rank(self) -> tuple[RankCollectives, ...]:
        """Totals of every rank that takes part in any collective, by rank."""
        return tuple(
            RankCollectives(
                rank=int(rank),
                num_collectives=int(chosen.sum()),
                num_last=int((self.last_rank[chosen] == rank).sum()),
                wait_ns=int(self.wait_ns[chosen].sum()),
                transfer_ns=int(self.transfer_ns[chosen].sum()),
            )
            for rank in np.unique(self.rank)
            for chosen in (self.rank == rank,)
        )


def collective_times(timeline: Timeline) -> CollectiveTable:
    """Wait, transfer and order of arrival of every rank at every collective."""
    graph = timeline.graph
    pairs = participations(graph)
    arrive_ns = timeline.start_ns[pairs.arrive]
    # by collective, then arrival, ties by rank: rows are in order of rank already
    order = np.lexsort((pairs.rank, arrive_ns, pairs.collective))
    _, first, count = np.unique(pairs.collective, return_index=True, return_counts=True)
    arrival = np.empty(len(pairs), dtype=np.int32)
    arrival[order] = turns_within(pairs.collective[order])
    last_rank = np.repeat(pairs.rank[order[first + count - 1]], count)
    return CollectiveTable(
        collectives=graph.collectives,
        collective=pairs.collective,
        step=graph.step[pairs.finish],
        rank=pairs.rank,
        arrive_ns=arrive_ns,
        transfer_begin_ns=timeline.start_ns[pairs.finish],
        finish_ns=timeline.end_ns[pairs.finish],
        arrival=arrival,
        last_rank=last_rank.astype(np.int32),
    )

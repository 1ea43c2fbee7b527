"""`Exchanges`: where each collective of a recording stands in the model and the step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import CollectiveKind, Int64s
from foretrace.graph import ExecutionGraph, NodeKind, Part, Phase

REDUCE = CollectiveKind.ALL_REDUCE
GATHER = CollectiveKind.ALL_GATHER
SCATTER = CollectiveKind.REDUCE_SCATTER
BARRIER = "barrier"
_PAIR = 2


@dataclass(frozen=True)
class RecordedExchange:
    """Collectives of the same ranks that do the same, at the same kind of place."""

    ranks: tuple[int, ...]
    name: CollectiveKind
    part: Part
    phase: Phase
    dtype: str
    num_bytes: int  # payload per rank, of all together; 0 where none says
    largest_bytes: int  # of one; -1 unknown
    transfer_ns: int  # of all members, of all together
    num_microbatches: int  # in which they are, of a step
    collectives: Int64s  # int64[those], position in the graph's collectives

    @property
    def is_pair(self) -> bool:
        """Whether it sends from one rank to one other."""
        return self.name.is_transfer and len(self.ranks) <= _PAIR

    @property
    def is_shuffle(self) -> bool:
        """Whether every rank sends something of its own to every other."""
        return self.name is CollectiveKind.ALL_TO_ALL or (
            self.name.is_transfer and len(self.ranks) > _PAIR
        )


def exchanges_of(graph: ExecutionGraph) -> tuple[RecordedExchange, ...]:
    """All collectives of a recording, those that are alike together."""
    size = len(graph.collectives)
    finishes = graph.nodes_of(NodeKind.FINISH)
    owner = np.full(size, -1, np.int64)
    owner[graph.collective[finishes][::-1]] = finishes[::-1]
    transfer_ns = np.zeros(size, np.int64)
    np.add.at(transfer_ns, graph.collective[finishes], graph.measured_ns[finishes])
    alike: dict[tuple[tuple[int, ...], CollectiveKind, int, int, str], list[int]] = {}
    for position in np.flatnonzero(owner >= 0).tolist():
        each, node = graph.collectives[position], owner[position]
        key = (
            each.ranks,
            each.kind,
            int(graph.part[node]),
            int(graph.phase[node]),
            each.dtype.lower(),
        )
        alike.setdefault(key, []).append(position)
    found = []
    for (ranks, name, part, phase, dtype), positions in alike.items():
        num_bytes = [graph.collectives[each].num_bytes for each in positions]
        exchange = RecordedExchange(
            ranks=ranks,
            name=name,
            part=Part(part),
            phase=Phase(phase),
            dtype=dtype,
            num_bytes=sum(max(each, 0) for each in num_bytes),
            largest_bytes=max(num_bytes),
            transfer_ns=int(transfer_ns[positions].sum()),
            num_microbatches=len(np.unique(graph.microbatch[owner[positions]])),
            collectives=np.array(positions, np.int64),
        )
        found.append(exchange)
    return tuple(found)

"""Device streams, events, and what a transfer costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.truth.config import Link
from tests.truth.structure import Collective


class Event(NamedTuple):
    """What an event record captured: the last operations that it stands for."""

    event_id: int
    correlation: int
    stream: int
    nodes: tuple[tuple[int, int], ...]  # node, its stream


@dataclass(slots=True)
class Stream:
    """One device stream: operations in launch order, and waits that the next will carry."""

    number: int
    operations: list[int] = field(default_factory=list)
    pending: dict[int, int] = field(default_factory=dict)  # stream -> latest node on it

    def captured(self) -> tuple[tuple[int, int], ...]:
        """What must have ended when everything given to this stream so far has."""
        own = ((self.operations[-1], self.number),) if self.operations else ()
        return own + tuple((node, stream) for stream, node in self.pending.items())


def transfer_ns(collective: Collective, link: Link) -> int:
    """Base duration of a transfer once all have arrived: latency, and bytes over bandwidth."""
    num_ranks = len(collective.expected)
    is_ring = collective.name == "allreduce"
    share = 2.0 * (num_ranks - 1) / num_ranks if is_ring else 1.0
    return link.latency_ns + round(collective.num_bytes * share / link.bytes_per_ns)

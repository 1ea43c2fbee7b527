"""`Exchange`: one communication among the ranks of a group, and where in its work it stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from foretrace.base import CollectiveKind, Dispatched, in_channels
from foretrace.graph import Phase
from foretrace.workload.blocks.signatures import num_bytes
from foretrace.workload.plan.plan import Group


@dataclass(frozen=True)
class Exchange:
    """One communication among the ranks of a group, on that group's own stream."""

    label: str
    collective: CollectiveKind
    group: Group
    num_bytes: int  # as nccl-tests counts them: all-gather: total output
    dtype: str
    phase: Phase
    after: tuple[int, ...] = ()  # positions of earlier items whose results it sends
    measured_ns: int = 0
    is_weight_gradient: bool = False
    dispatched: Dispatched | None = None  # by which library, where that is not NCCL
    channels: int | None = None  # `None`: as many as NCCL takes by itself

    @property
    def name(self) -> str:
        """What graphs call it."""
        if self.dispatched:
            return self.dispatched.name
        own = self.collective.value
        return own if self.channels is None else in_channels(own, self.channels)


class Turn(IntEnum):
    """Which product of a weight it is."""

    FORWARD = 0
    INPUT_GRADIENT = 1
    WEIGHT_GRADIENT = 2


@dataclass(frozen=True)
class Anchored:
    """An exchange beside products of the same input: behind which, before which."""

    exchange: Exchange
    turn: Turn  # of the products that it stands before or behind
    is_behind: bool  # the last of them; else before the first
    awaited_by: Turn | None = None  # the first of which waits for it; `None`: what comes next


def standing(
    around: Iterable[Anchored], turn: Turn, *, is_behind: bool, group: Group | None = None
) -> tuple[Exchange, ...]:
    """Exchanges that stand before or behind the products of a turn; of one group or of all."""
    return tuple(
        one.exchange
        for one in around
        if (one.turn, one.is_behind) == (turn, is_behind) and group in {None, one.exchange.group}
    )


def exchange(
    label: str,
    collective: CollectiveKind,
    group: Group,
    size: tuple[int, str],
    *after: int,
    is_weight_gradient: bool = False,
) -> Exchange:
    """An exchange of so many numbers of a format; `after` are distances to what it sends."""
    count, dtype = size
    return Exchange(
        label,
        collective,
        group,
        num_bytes(count, dtype),
        dtype,
        Phase.FORWARD,
        after=after,
        is_weight_gradient=is_weight_gradient,
    )

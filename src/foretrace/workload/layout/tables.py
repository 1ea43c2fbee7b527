"""Distinct texts, exchanges and blocks of a layout, each kept once and named by a number."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from foretrace.base import USUAL_CHANNELS, Bools, Float64s
from foretrace.graph import NamePool, weight_layers
from foretrace.workload.blocks.block import NO_SIGNATURE, Item
from foretrace.workload.exchanges.exchange import Exchange
from foretrace.workload.plan.plan import Channels, Group

NOTHING = -1  # in place of a number: there is none
COMPUTE = 0  # stream of operators; groups have theirs behind it
_GROUPS = tuple(Group)
STREAM_OF_GROUP = {group: 1 + place for place, group in enumerate(_GROUPS)}
# Transfers between stages leave and come at once: a link has two directions.
SENDS, RECEIVES = STREAM_OF_GROUP[Group.PIPELINE], 1 + len(_GROUPS)
NUM_STREAMS = 2 + len(_GROUPS)


def group_of_stream(stream: int) -> Group:
    """The group whose exchanges a stream carries."""
    return Group.PIPELINE if stream == RECEIVES else _GROUPS[stream - 1]


def stream_weights(channels: Channels) -> Float64s:
    """Of communication on every stream, by its channels; float64[streams]."""
    groups = (group_of_stream(stream) for stream in range(1, NUM_STREAMS))
    taken = [channels.of(group) or USUAL_CHANNELS for group in groups]
    return np.array([USUAL_CHANNELS, *taken]) / USUAL_CHANNELS


@cache
def stream_layers(channels: Channels) -> tuple[Float64s, Bools]:
    """`weight_layers` of streams, as columns."""
    more, counts = zip(*weight_layers(stream_weights(channels)), strict=True)
    return np.array(more), np.array(counts)


@dataclass(frozen=True)
class ExchangeKind:
    """What exchanges share that differ only in when they happen."""

    name: str  # as `Exchange.name`
    group: Group
    num_bytes: int
    dtype: str


class Tables:
    """Takes texts and exchanges; says which numbers they got."""

    def __init__(self) -> None:
        self.names = NamePool(())
        self._kinds: dict[ExchangeKind, int] = {}

    @property
    def kinds(self) -> tuple[ExchangeKind, ...]:
        """All kinds of exchange, by number."""
        return tuple(self._kinds)

    def operator(self, item: Item) -> tuple[int, int]:
        """Numbers of an item's operator and of its signature; NOTHING."""
        if isinstance(item, Exchange):
            return NOTHING, NOTHING
        if item.signature == NO_SIGNATURE:
            return self.names.of(item.name), NOTHING
        return self.names.of(item.name), self.names.of(item.signature)

    def kind(self, item: Item) -> int:
        """Number of an exchange's kind; NOTHING for an operator."""
        if not isinstance(item, Exchange):
            return NOTHING
        kind = ExchangeKind(item.name, item.group, item.num_bytes, item.dtype)
        return self._kinds.setdefault(kind, len(self._kinds))

"""The true graph of a whole job: every rank's program run, then its communications joined."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.truth.config import JobConfig
from tests.truth.host import Host
from tests.truth.layout import groups_of, place_of
from tests.truth.program import TrainingRank
from tests.truth.structure import (
    Collective,
    Columns,
    Dependency,
    Node,
    RankItems,
    Structure,
)

Program = Callable[[TrainingRank], None]


def training(rank: TrainingRank) -> None:
    """The whole training loop."""
    rank.run()


def built(
    config: JobConfig, start_skews_ns: tuple[int, ...], program: Program = training
) -> Structure:
    """The true graph of the whole job."""
    columns = Columns()
    collectives: dict[tuple[object, ...], Collective] = {}
    ranks = []
    with _no_collection():
        for rank in range(config.num_ranks):
            groups = groups_of(config, place_of(config, rank))
            items = RankItems(rank=rank, groups=groups.used)
            host = Host(config, columns, collectives, items)
            program(TrainingRank(host, config, start_skews_ns[rank]))
            ranks.append(items)
        found = tuple(collectives.values())
        for collective in found:
            _join(columns, collective)
        return columns.structure(found, tuple(ranks))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Millions of small tuples that all live on: the collector would only walk them again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _join(columns: Columns, collective: Collective) -> None:
    """Connect the members of one communication."""
    if set(collective.arrives) != set(collective.expected):
        missing = sorted(set(collective.expected) - set(collective.arrives))
        raise ValueError(
            f"{collective.name} of group {collective.group.name} lacks ranks {missing}"
        )
    if collective.is_exchange:
        ring = collective.expected
        for index, rank in enumerate(ring):
            near = (ring[index - 1], rank, ring[(index + 1) % len(ring)])
            for slot, other in zip(collective.slots[rank], near, strict=True):
                columns.predecessor[slot] = collective.arrives[other]
                columns.edge_kind[slot] = Dependency.ARRIVAL
        return
    for arrive in collective.arrives.values():
        columns.edge(arrive, 0, Dependency.ARRIVAL)
    collective.hub = columns.node(Node.HUB, -1)
    for slots in collective.slots.values():
        columns.predecessor[slots[0]] = collective.hub

"""`Collective`: one communication, and `Collectives`: those of a graph.

A training step repeats few exchanges many times: what they share is kept once, and an object for
one of them is made when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, overload

import numpy as np

from foretrace.base import Bools, CollectiveKind, Int32s, Int64s, collective_kind_of

_PAIR = 2
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Collective:
    """One communication operation, over all ranks that take part."""

    name: str  # "allreduce", "send_recv", ...
    group: str  # process group name, or what stands for it where the trace has none
    ranks: tuple[int, ...]  # all members, recorded or not
    recorded_ranks: tuple[int, ...]
    position: int  # number of this operation inside its group, from 0
    num_bytes: int  # payload per rank; -1 unknown
    dtype: str  # "" unknown
    is_transfer_estimated: bool  # some member was not recorded, so the split is an estimate

    @property
    def kind(self) -> CollectiveKind:
        """What its name says that it does."""
        return collective_kind_of(self.name)

    @property
    def is_transfer(self) -> bool:
        """Whether it goes from rank to rank."""
        return self.kind.is_transfer

    @property
    def is_pair(self) -> bool:
        """Whether it is point to point."""
        return len(self.ranks) == _PAIR and self.is_transfer


@dataclass(frozen=True, eq=False)
class Collectives(Sequence[Collective]):
    """All collectives of a graph, in order; equal to any other sequence of equal ones."""

    makes: tuple[Collective, ...]  # what those share that differ in their position alone
    make: Int32s  # int32[collectives], place in `makes`
    position: Int32s  # int32[collectives], number of each inside its group

    @staticmethod
    def of(collectives: Sequence[Collective]) -> Collectives:
        """Collectives that were made one by one."""
        if isinstance(collectives, Collectives):
            return collectives
        makes = tuple(collectives)
        position = np.array([one.position for one in makes], np.int32)
        return Collectives(makes, np.arange(len(makes), dtype=np.int32), position)

    def each(self, read: Callable[[Collective], _Value]) -> list[_Value]:
        """What `read` says of every collective.

        It is asked once per make, in the order in which they first come, and not for positions.
        """
        known: dict[int, _Value] = {}
        for make in self.make.tolist():
            if make not in known:
                known[make] = read(self.makes[make])
        return [known[make] for make in self.make.tolist()]

    def __len__(self) -> int:
        """Number of collectives."""
        return len(self.make)

    @overload
    def __getitem__(self, at: int) -> Collective: ...

    @overload
    def __getitem__(self, at: slice | Bools | Int64s) -> Collectives: ...

    def __getitem__(self, at: int | slice | Bools | Int64s) -> Collective | Collectives:
        """One of them; those of a slice, of a mask or at some places."""
        if isinstance(at, slice | np.ndarray):
            return Collectives(self.makes, self.make[at], self.position[at])
        return _placed(self.makes[self.make[at]], int(self.position[at]))

    def __iter__(self) -> Iterator[Collective]:
        """One after the other."""
        for make, position in zip(self.make.tolist(), self.position.tolist(), strict=True):
            yield _placed(self.makes[make], position)

    def __eq__(self, other: object) -> bool:
        """Whether the same collectives stand in the same order."""
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Equal sequences have equal numbers."""
        return hash(tuple(self))


def _placed(make: Collective, position: int) -> Collective:
    return make if make.position == position else replace(make, position=position)

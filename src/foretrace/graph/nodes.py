"""What a graph is made of: kinds of nodes and edges, and `Collective`s.

A node starts when all its predecessors have ended, each plus its edge's lag, and ends its
duration later. So a call that waits (a synchronisation, a launch into a full queue) *starts*,
as a node, when it stops waiting; the time before is nobody's work.

A training step repeats few exchanges many times: what they share is kept once, and an object for
one of them is made when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, TypeVar, overload

import numpy as np

from foretrace.base import Bools, CollectiveKind, Int32s, Int64s, collective_kind_of

NO_NODE = -1
NO_STEP = -1
WHOLE = "trace"  # the only step of a recording without marks
NO_COLLECTIVE = -1
NO_LANE = -1
NO_LAYER = -1
NO_MICROBATCH = -1


class NodeKind(IntEnum):
    """What a node is."""

    # 1. marks, without duration
    RANK_START = 0  # where a rank's first thread begins; duration = its skew, the clocks aligned
    STEP_BEGIN = 1  # host mark of a step
    STEP_END = 2
    # 2. host work
    HOST_SEGMENT = 3  # time between two calls, and before a thread's first
    OPERATOR = 4  # an operator that runs on the host itself (traces without a device)
    CALL = 5  # a runtime call that neither launches nor waits (event record, stream wait, ...)
    LAUNCH = 6  # a runtime call that starts device operations
    SYNC = 7  # a runtime call that waits for the device
    THREAD_WAIT = 8  # where a thread waits for another thread
    # 3. device work
    KERNEL = 9
    MEMCPY = 10
    MEMSET = 11
    # 4. communication
    ARRIVE = 12  # a rank is ready for a collective: on its stream (or thread), no duration
    HUB = 13  # all ranks of a collective have arrived: belongs to no lane, no duration
    FINISH = 14  # a rank leaves a collective: duration = transfer, waits removed
    GHOST = 15  # what a rank that was not recorded does between two collectives


class EdgeKind(IntEnum):
    """Why a node waits for another."""

    HOST_ORDER = 0  # same thread, next in order
    THREAD = 1  # another thread of the same process
    LAUNCH = 2  # launch call to device operation
    QUEUE = 3  # device operation to the launch that needed its place in the launch queue
    WAKE = 4  # device operation to the synchronisation that waits for it
    STREAM = 5  # same stream, next in order
    INTER_STREAM = 6  # event record / stream wait, known from the trace's ids
    INTER_STREAM_INFERRED = 7  # the same, inferred
    ARRIVAL = 8  # arrive to hub
    TRANSFER = 9  # hub to finish
    GHOST = 10  # along a ghost's chain
    ISSUE = 11  # host call to a collective's arrival on a host worker (gloo)
    PROGRAMMATIC = 12  # same stream, next in order, begun before the one before had ended
    STATED = 13  # a file of dependencies states it, and not why (Chakra)
    GRAPH = 14  # same stream, next in order, both launched by one CUDA graph


class Part(IntEnum):
    """Which part of the model, or of the step, a node's work belongs to.

    A *block* is a part, its phase, its layer and its microbatch: one unit of a model's work.
    """

    UNKNOWN = 0
    DATA = 1  # loading and copying the inputs
    EMBEDDING = 2
    LAYER = 3  # one of the layers that repeat; `layer` counts them from 0, over all stages
    HEAD = 4  # what follows the last layer: final normalisation, output projection
    LOSS = 5
    OPTIMIZER = 6  # gradient clipping, zeroing and the parameters' update
    BUCKET = 7  # communication of gradients or of sharded parameters; `layer` where it is known
    TRANSFER = 8  # activations or their gradients between pipeline stages


class Phase(IntEnum):
    """When in a step a node's work is done."""

    UNKNOWN = 0
    DATA = 1
    FORWARD = 2
    BACKWARD = 3
    RECOMPUTE = 4  # forward work repeated for the backward pass
    OPTIMIZER = 5


def block_words(part: int, phase: int, layer: int, *, microbatch: int = NO_MICROBATCH) -> str:
    """A block in words, "layer 3 forward, microbatch 0"; what is not known is left out.

    A part that is its phase, as the optimizer is, is said once.
    """
    words = [Part(part).name.lower()] if part != Part.UNKNOWN else []
    if layer != NO_LAYER:
        words.append(str(layer))
    if phase != Phase.UNKNOWN and Phase(phase).name != Part(part).name:
        words.append(Phase(phase).name.lower())
    text = " ".join(words)
    return f"{text}, microbatch {microbatch}" if text and microbatch != NO_MICROBATCH else text


# Kinds that may start when launched, in `NodeKind` order; what a device stream holds.
DEVICE_KINDS = (NodeKind.KERNEL, NodeKind.MEMCPY, NodeKind.MEMSET)
HOST_KINDS = (
    NodeKind.HOST_SEGMENT,
    NodeKind.OPERATOR,
    NodeKind.CALL,
    NodeKind.LAUNCH,
    NodeKind.SYNC,
    NodeKind.THREAD_WAIT,
)


class NodeColumn(NamedTuple):
    """How a graph holds what it knows of every node."""

    dtype: type[np.generic]
    neutral: int  # of a node of which nothing is known
    table: str = ""  # field of the graph that it is a position in


# Everything that an `ExecutionGraph` holds for every node, in the order of its fields.
NODE_COLUMNS: Mapping[str, NodeColumn] = {
    "kind": NodeColumn(np.uint8, 0),
    "rank": NodeColumn(np.int32, -1),
    "lane": NodeColumn(np.int32, NO_LANE, "lanes"),
    "step": NodeColumn(np.int32, NO_STEP, "step_names"),
    "name": NodeColumn(np.int32, 0, "names"),
    "signature": NodeColumn(np.int32, -1, "names"),
    "operator": NodeColumn(np.int32, -1, "names"),
    "operator_signature": NodeColumn(np.int32, -1, "names"),
    "part": NodeColumn(np.uint8, Part.UNKNOWN),
    "phase": NodeColumn(np.uint8, Phase.UNKNOWN),
    "layer": NodeColumn(np.int16, NO_LAYER),
    "microbatch": NodeColumn(np.int16, NO_MICROBATCH),
    "collective": NodeColumn(np.int32, NO_COLLECTIVE, "collectives"),
    "measured_ns": NodeColumn(np.int64, 0),
    "inflation": NodeColumn(np.float32, 1),
}


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

"""The kinds of nodes and edges; what each means for a simulation.

A node starts when all its predecessors have ended, each plus its edge's lag, and ends its
duration later. So a call that waits (a synchronisation, a launch into a full queue) *starts*,
as a node, when it stops waiting; the time before is nobody's work.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np

NO_NODE = -1
NO_STEP = -1
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

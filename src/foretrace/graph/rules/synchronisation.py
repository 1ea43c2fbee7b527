"""Rule 5: the host waits for the device: stream, device and event synchronisation, blocking copies.

With `cuda_sync` events the trace says what was waited for. Without, a device synchronisation
waits for every stream; a stream synchronisation for the stream whose last operation ended just
before the call returned, or, if it did not wait, the stream that the thread launched on last;
an event synchronisation for the operation whose end explains its return, or for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph.assembly import Edges, Places
from foretrace.graph.nodes import NO_LANE, EdgeKind, NodeKind
from foretrace.graph.operations import NOT_LAUNCHED, Operations
from foretrace.graph.operations.events import NO_OP, ExactWaits, LaunchOrder
from foretrace.trace import RuntimeRole

RETURN_WITHIN_NS = 200_000  # an end that explains a synchronisation's return is this close to it
ROUNDING_NS = 1_000  # timestamps in whole microseconds


@dataclass(frozen=True)
class Synchronisations:
    """Edges from device operations to the calls that wait for them."""

    edges: Edges
    is_waiting: Bools  # bool[items], calls that were still waiting when the operation ended
    wake_ns: Int64s  # samples: operation's end to the waiting call's return


def synchronisations(
    operations: Operations,
    order: LaunchOrder,
    exact: Sequence[ExactWaits | None],
    places: Places,
) -> Synchronisations:
    """What every synchronising call of every rank waits for.

    Args:
        operations: all items and operations.
        order: what was launched when.
        exact: per trace what its `cuda_sync` events state; None where it has none.
        places: numbering of the edges' ends.
    """
    items, ops = operations.items, operations.ops
    calls = np.flatnonzero(items.kind == NodeKind.SYNC)
    source: list[int] = []
    target: list[int] = []
    is_waiting = np.zeros(len(items), np.bool_)
    wake_ns: list[int] = []
    for call in calls.tolist():
        stated = exact[int(items.rank[call])]
        known = None
        if stated is not None:
            known = stated.waited_by_call.get(int(items.correlation[call]))
        if items.role[call] == RuntimeRole.BLOCKING_COPY:
            waited = _own_operation(operations, call)
        elif known is not None:
            waited = list(known)
        else:
            waited = _inferred(operations, order, call)
        if not waited:
            continue
        source.extend(waited)
        target.extend([call] * len(waited))
        last_ns = int(ops.end_ns[waited].max())
        if last_ns > items.start_ns[call]:
            is_waiting[call] = True
            wake_ns.append(int(items.end_ns[call]) - last_ns)
    return Synchronisations(
        Edges.of(EdgeKind.WAKE, places.op(np.array(source, np.int64)), np.array(target, np.int64)),
        is_waiting,
        np.array(wake_ns, np.int64),
    )


def _inferred(operations: Operations, order: LaunchOrder, call: int) -> list[int]:
    items, ops = operations.items, operations.ops
    position = int(items.rank[call])
    at_ns, return_ns = int(items.start_ns[call]), int(items.end_ns[call])
    lasts = [
        op
        for lane in order.streams_of_rank[position]
        if (op := order.last_before(lane, at_ns)) != NO_OP
        and ops.end_ns[op] <= return_ns + ROUNDING_NS
    ]
    if items.role[call] == RuntimeRole.SYNC_DEVICE:
        return lasts
    explaining = [
        op
        for op in lasts
        if at_ns < ops.end_ns[op] and ops.end_ns[op] >= return_ns - RETURN_WITHIN_NS
    ]
    if explaining:
        return [max(explaining, key=lambda op: int(ops.end_ns[op]))]
    if items.role[call] == RuntimeRole.SYNC_STREAM:
        launch = int(operations.launch_before[call])
        lane = ops.lane[operations.op_of_launch[launch]] if launch >= 0 else NO_LANE
        return [op for op in lasts if ops.lane[op] == lane]
    return _explaining_operation(operations, order, call)


def _explaining_operation(operations: Operations, order: LaunchOrder, call: int) -> list[int]:
    """The operation whose end is the last before an event synchronisation returned."""
    items, ops = operations.items, operations.ops
    best = NO_OP
    for lane in order.streams_of_rank[int(items.rank[call])]:
        low, high = int(order.first_op[lane]), int(order.first_op[lane + 1])
        ended = low + int(np.searchsorted(ops.end_ns[low:high], items.end_ns[call], side="right"))
        op = ended - 1
        is_in_call = op >= low and ops.end_ns[op] > items.start_ns[call]
        if is_in_call and (best == NO_OP or ops.end_ns[op] > ops.end_ns[best]):
            best = op
    is_close = best != NO_OP and ops.end_ns[best] >= items.end_ns[call] - RETURN_WITHIN_NS
    return [best] if is_close else []


def _own_operation(operations: Operations, call: int) -> list[int]:
    """The copy that the launch half of a blocking copy started."""
    op = int(operations.op_of_launch[call - 1])
    return [op] if op != NOT_LAUNCHED else []

"""What had been launched on a stream when the host did something."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.operations import Operations

NO_OP = -1


@dataclass(frozen=True)
class LaunchOrder:
    """Operations of every device stream in the order they were enqueued."""

    first_op: Int64s  # int64[lanes + 1], operations of lane i are first_op[i] .. first_op[i + 1]
    launched_ns: Int64s  # int64[ops], raw start of the launch; rising within a lane
    streams_of_rank: tuple[tuple[int, ...], ...]  # lanes with operations, per trace
    lane_of_stream: dict[tuple[int, int], int]  # (trace, stream number) -> lane

    def last_before(self, lane: int, at_ns: int) -> int:
        """The last operation of `lane` whose launch began before `at_ns`; NO_OP if none."""
        low, high = int(self.first_op[lane]), int(self.first_op[lane + 1])
        found = low + int(np.searchsorted(self.launched_ns[low:high], at_ns, side="left"))
        return found - 1 if found > low else NO_OP

    def first_after(self, lane: int, at_ns: int) -> int:
        """The first operation of `lane` whose launch began at `at_ns` or later; NO_OP if none."""
        low, high = int(self.first_op[lane]), int(self.first_op[lane + 1])
        found = low + int(np.searchsorted(self.launched_ns[low:high], at_ns, side="left"))
        return found if found < high else NO_OP

    def lasts_before(self, lane: int, at_ns: Int64s) -> Int64s:
        """`last_before` for many moments."""
        low, high = int(self.first_op[lane]), int(self.first_op[lane + 1])
        found = low + np.searchsorted(self.launched_ns[low:high], at_ns, side="left")
        return np.where(found > low, found - 1, NO_OP)


def launch_order(operations: Operations) -> LaunchOrder:
    """The enqueue order of every stream.

    Operations of a stream run in the order they were enqueued, so their own order is the launch
    order; a launch recorded later than that of a following operation (another thread's call,
    rounded timestamps) is read as no later. Operations without a recorded launch that precede
    all others of their stream were launched before the recording began.
    """
    ops = operations.ops
    first_op = np.searchsorted(ops.lane, np.arange(len(operations.lanes) + 1))
    launch = np.maximum(ops.launch, 0)
    launched_ns = np.where(ops.launch >= 0, operations.items.start_ns[launch], ops.start_ns)
    streams: list[list[int]] = [[] for _ in operations.ranks]
    lane_of_stream: dict[tuple[int, int], int] = {}
    for lane in np.unique(ops.lane).tolist():
        low, high = int(first_op[lane]), int(first_op[lane + 1])
        is_launched = ops.launch[low:high] >= 0
        num_early = int(np.argmax(is_launched)) if is_launched.any() else high - low
        launched_ns[low : low + num_early] = operations.first_ns[ops.rank[low]] - 1
        # From the end: no launch is later than the one after it.
        launched_ns[low:high] = np.minimum.accumulate(launched_ns[low:high][::-1])[::-1]
        if operations.lanes[lane].is_device:
            position = int(ops.rank[low])
            streams[position].append(lane)
            lane_of_stream[position, operations.lanes[lane].number] = lane
    return LaunchOrder(
        first_op=first_op.astype(np.int64),
        launched_ns=launched_ns,
        streams_of_rank=tuple(tuple(own) for own in streams),
        lane_of_stream=lane_of_stream,
    )

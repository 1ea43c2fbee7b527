"""`staged_run`: requests go in batches through stages, each batch behind the one before.

What has no tokens is served so: a recommender whose tables lie on some cards and whose networks on
others, a generator of pictures that denoises a batch. A batch takes what waits when the first
stage is free. Nothing lies between stages: one hands a batch on when a copy of the next takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

import numpy as np

from foretrace.base import Float64s, Int64s, WorkloadError
from foretrace.serve.requests import Requests
from foretrace.serve.step_times import along


@dataclass(frozen=True, eq=False)
class ServingStage:
    """One stage: how long a batch takes in it, and how many batches it has room for."""

    name: str
    where: str  # what works on it: "host", "4 cards"
    copies: int  # that each work on a batch of their own
    batch_ns: Float64s  # float64[samples + 1], by samples of a batch

    def scaled(self, factor: float) -> ServingStage:
        """The same, so many times as long."""
        return replace(self, batch_ns=self.batch_ns * factor)

    def rate(self, batch: int) -> float:
        """Samples in a second that it gets done at most."""
        return float(self.copies * batch * 1e9 / self.batch_ns[batch])


def batch_times(sizes: Sequence[int], ns: Sequence[float]) -> Float64s:
    """Times of batches of 0, 1, ... samples from those of some sizes: on the line between them."""
    found = along(np.array(sizes, np.float64), np.array(ns, np.float64), np.arange(sizes[-1] + 1))
    found[0] = 0.0
    return found


def sizes_up_to(most: int) -> list[int]:
    """Batches that are costed: powers of two, and the largest."""
    return sorted({most, *(2**at for at in range(most.bit_length()) if 2**at <= most)})


@dataclass(frozen=True, eq=False)
class StagedRun:
    """What became of requests: one row a request, and one a batch."""

    requests: Requests
    first_ns: Int64s  # int64[requests], when its batch began
    last_ns: Int64s  # int64[requests], when it was done
    sizes: Int64s  # int64[batches]
    start_ns: Int64s  # int64[batches, stages]
    end_ns: Int64s  # int64[batches, stages], when the stage's own work was done


def staged_run(
    requests: Requests, stages: Sequence[ServingStage], *, most_batch: int = 1
) -> StagedRun:
    """Send requests through stages.

    Args:
        requests: in the order in which they come; each is one sample.
        stages: in order.
        most_batch: samples of a batch at most.

    Raises:
        WorkloadError: if there is no stage, or a batch is larger than their times reach.
    """
    reach = min((len(one.batch_ns) - 1 for one in stages), default=0)
    if not 1 <= most_batch <= reach:
        raise WorkloadError(
            f"a batch of {most_batch} cannot be timed: expected 1 to {reach} samples"
        )
    arrival = requests.arrival_ns.tolist()
    times = [np.rint(one.batch_ns).astype(np.int64).tolist() for one in stages]
    free = [[0] * one.copies for one in stages]
    for heap in free:
        heapify(heap)
    first, last = [0] * len(arrival), [0] * len(arrival)
    sizes: list[int] = []
    starts: list[list[int]] = []
    ends: list[list[int]] = []
    at = 0
    while at < len(arrival):
        begin = max(arrival[at], free[0][0])
        size = 1
        while at + size < len(arrival) and size < most_batch and arrival[at + size] <= begin:
            size += 1
        now, own_starts, own_ends = begin, [], []
        for stage, heap in enumerate(free):
            now = max(now, heappop(heap))
            if stage:
                heappush(free[stage - 1], now)
            own_starts.append(now)
            now += times[stage][size]
            own_ends.append(now)
        heappush(free[-1], now)
        first[at : at + size] = [begin] * size
        last[at : at + size] = [now] * size
        sizes.append(size)
        starts.append(own_starts)
        ends.append(own_ends)
        at += size
    return StagedRun(
        requests,
        first_ns=np.array(first, np.int64),
        last_ns=np.array(last, np.int64),
        sizes=np.array(sizes, np.int64),
        start_ns=np.array(starts, np.int64),
        end_ns=np.array(ends, np.int64),
    )

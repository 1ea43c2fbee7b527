"""Compiled loops of the graph floor; each has its plain-Python twin in `tests/oracles/graph.py`."""

from __future__ import annotations

import numpy as np
from numba import njit

from foretrace.base import Bools, Int32s, Int64s


@njit(cache=True, nogil=True)
def topological_order(
    first_edge: Int64s, successor: Int32s, num_waits: Int32s, order: Int32s
) -> int:
    """Nodes so that every edge points forward; ties follow the order of becoming ready.

    Out: `order`, `num_waits` (consumed). Returns the number of nodes placed; fewer than all
    means a circle.
    """
    tail = 0
    for node in range(num_waits.size):
        if num_waits[node] == 0:
            order[tail] = node
            tail += 1
    head = 0
    while head < tail:
        node = order[head]
        head += 1
        for edge in range(first_edge[node], first_edge[node + 1]):
            after = successor[edge]
            num_waits[after] -= 1
            if num_waits[after] == 0:
                order[tail] = after
                tail += 1
    return tail


@njit(cache=True, nogil=True)
def counted_order(key: Int64s, first: Int64s, order: Int64s) -> None:
    """Positions in the order of their keys, equal keys in their own order.

    `first` holds where each key's positions begin; it is consumed. Out: `order`.
    """
    for position in range(key.size):
        order[first[key[position]]] = position
        first[key[position]] += 1


@njit(cache=True, nogil=True)
def last_not_after(values: Int64s, low: int, high: int, limit: int) -> int:
    """Last position in the rising `values[low:high]` with at most `limit`; low - 1: none."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] <= limit:
            low = middle + 1
        else:
            high = middle
    return low - 1


@njit(cache=True, nogil=True)
def stream_predecessors(
    lane: Int32s,
    start_ns: Int64s,
    end_ns: Int64s,
    tolerance_ns: int,
    source: Int32s,
    target: Int32s,
) -> int:
    """Stream order, where operations of one stream may run side by side (CUDA graphs).

    Operations are sorted by lane, then start. Each waits for the earlier ones of its stream
    that had ended when it began and that no other already waits for. Out: `source`, `target`,
    room for two per operation and 64 more. Returns the number of edges.
    """
    num_edges = 0
    open_ops = np.empty(64, np.int32)  # ended or running, and waited for by nobody yet
    num_open = 0
    for op in range(lane.size):
        if op > 0 and lane[op] != lane[op - 1]:
            num_open = 0
        kept = 0
        is_waiting = False
        for index in range(num_open):
            other = open_ops[index]
            if end_ns[other] <= start_ns[op] + tolerance_ns and num_edges < source.size:
                source[num_edges] = other
                target[num_edges] = op
                num_edges += 1
                is_waiting = True
            else:
                open_ops[kept] = other
                kept += 1
        if not is_waiting and op > 0 and lane[op] == lane[op - 1]:
            # Every open one still runs: wait for the last that had ended, if there is one.
            for other in range(op - 1, max(op - 65, -1), -1):
                if lane[other] != lane[op]:
                    break
                if end_ns[other] <= start_ns[op] + tolerance_ns:
                    if num_edges < source.size:
                        source[num_edges] = other
                        target[num_edges] = op
                        num_edges += 1
                    break
        num_open = kept
        if num_open == open_ops.size:  # forget the oldest
            for index in range(1, num_open):
                open_ops[index - 1] = open_ops[index]
            num_open -= 1
        open_ops[num_open] = op
        num_open += 1
    return num_edges


@njit(cache=True, nogil=True)
def pending_at_launch(
    stream: Int32s, launch_end_ns: Int64s, op_end_ns: Int64s, first_op: Int64s, pending: Int32s
) -> None:
    """Operations of a stream that are launched and not finished when each launch returns.

    Operations are sorted by stream, then place in the stream; ends rise within a stream.
    Out: `pending`, the operation itself counted.
    """
    for op in range(stream.size):
        low = first_op[stream[op]]
        done = last_not_after(op_end_ns, low, first_op[stream[op] + 1], launch_end_ns[op]) + 1
        pending[op] = op + 1 - done if done <= op + 1 else 0


@njit(cache=True, nogil=True)
def covered_times(
    start_ns: Int64s,
    end_ns: Int64s,
    other_start_ns: Int64s,
    other_end_ns: Int64s,
    overlap_ns: Int64s,
) -> None:
    """Time of each span that is covered by the other spans, which are sorted and disjoint.

    Out: `overlap_ns`.
    """
    for span in range(start_ns.size):
        first = last_not_after(other_end_ns, 0, other_end_ns.size, start_ns[span]) + 1
        covered = 0
        for other in range(first, other_start_ns.size):
            if other_start_ns[other] >= end_ns[span]:
                break
            low = max(start_ns[span], other_start_ns[other])
            high = min(end_ns[span], other_end_ns[other])
            covered += max(high - low, 0)
        overlap_ns[span] = covered


@njit(cache=True, nogil=True)
def working_operators(
    lane: Int32s, start_ns: Int64s, end_ns: Int64s, may_work: Bools, is_chosen: Bools
) -> None:
    """Operators that do the work of their thread: the outermost whose time is mostly their own.

    Operators are sorted by lane, then start, longer first. One is chosen if none around it is,
    and it calls no other, or `may_work` and at least half of its time lies in none that it
    calls. Out: `is_chosen`.
    """
    parent = np.full(lane.size, -1, np.int32)
    inside_ns = np.zeros(lane.size, np.int64)  # of the operators that each calls itself
    calls = np.zeros(lane.size, np.int32)
    above = -1
    for row in range(lane.size):
        while above >= 0 and (lane[above] != lane[row] or end_ns[above] <= start_ns[row]):
            above = parent[above]
        parent[row] = above
        if above >= 0:
            inside_ns[above] += min(end_ns[row], end_ns[above]) - start_ns[row]
            calls[above] += 1
        above = row
    is_inside = np.zeros(lane.size, np.bool_)
    for row in range(lane.size):
        around = parent[row]
        is_inside[row] = around >= 0 and (is_inside[around] or is_chosen[around])
        own_ns = end_ns[row] - start_ns[row] - inside_ns[row]
        works = may_work[row] and 2 * own_ns >= end_ns[row] - start_ns[row]
        is_chosen[row] = not is_inside[row] and (calls[row] == 0 or works)

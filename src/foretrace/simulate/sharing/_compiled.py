"""Compiled loop of hosts that share their cores; checks no lengths.

See `shared` for the safe way in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from foretrace.base import Float64s, Int32s, Int64s, UInt8s, njit

# As `foretrace.simulate._compiled.Status`.
OK, NEGATIVE_DURATION, ORDER, OVERFLOW, EDGES = 0, 1, 2, 3, 4
_LIMIT_EXACT_NS = 2.0**53


@njit
def _speed(speed: Float64s, running: float) -> Any:
    """Speed of each while `running` work at once; straight between whole numbers."""
    count = speed.size
    if running <= 1.0:
        return speed[0]
    if running >= count:
        return speed[count - 1] * count / running
    below = int(running)
    return speed[below - 1] + (running - below) * (speed[below] - speed[below - 1])


@njit
def _push(key: Float64s, item: Int32s, first: int, size: int, value: float, node: int) -> None:
    """Add to a heap of `size` entries from `first` on; the least (key, item) stands first."""
    at = int(size)
    while at > 0:
        above = (at - 1) // 2
        other = key[first + above]
        if other < value or (other == value and item[first + above] < node):
            break
        key[first + at] = other
        item[first + at] = item[first + above]
        at = above
    key[first + at] = value
    item[first + at] = node


@njit
def _pop(key: Float64s, item: Int32s, first: int, size: int) -> None:
    """Remove the first of a heap of `size` entries."""
    last = int(size - 1)
    value = key[first + last]
    node = item[first + last]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        right = below + 1
        if right < last:
            is_less = key[first + right] < key[first + below]
            is_tied = key[first + right] == key[first + below]
            if is_less or (is_tied and item[first + right] < item[first + below]):
                below = right
        other = key[first + below]
        if value < other or (value == other and node < item[first + below]):
            break
        key[first + at] = other
        item[first + at] = item[first + below]
        at = below
    key[first + at] = value
    item[first + at] = node


@njit
def _shared_ends(
    first_edge: Int64s,
    predecessor: Int32s,
    lag_ns: Int32s,
    duration_ns: Int64s,
    need: UInt8s,
    host: Int32s,
    num_hosts: int,
    speed: Float64s,
    transfers: float,
    start_ns: Float64s,
    end_ns: Float64s,
) -> tuple[int, int]:
    """Events in order of time; of equal times ends before starts, then hosts, then nodes.

    All that works on one host goes at one speed, so each host has a clock that runs at that speed
    and a heap of the readings at which its nodes end; a second clock and heap for transfers, which
    `transfers` slow only as far as they need a core. What needs no core ends when it is known to
    start; it makes no event.

    In: the graph's columns; `duration_ns` int64[nodes]; `need` uint8[nodes], 0 none, 1 a core, 2
    a transfer's share; `host` int32[nodes]; `speed` float64[counts] above 0. Out: `start_ns` and
    `end_ns` float64[nodes]. Returns (status, the node it stopped at; the number of nodes if OK).
    """
    num_nodes = duration_ns.size
    num_edges = predecessor.size

    # Successors, and where the heap of each (host, need) begins.
    first_after = np.zeros(num_nodes + 1, np.int64)
    first_place = np.zeros(2 * num_hosts + 1, np.int64)
    waits = np.empty(num_nodes, np.int32)
    for node in range(num_nodes):
        if duration_ns[node] < 0:
            return NEGATIVE_DURATION, node
        if first_edge[node + 1] < first_edge[node] or first_edge[node + 1] > num_edges:
            return EDGES, node
        waits[node] = first_edge[node + 1] - first_edge[node]
        for edge in range(first_edge[node], first_edge[node + 1]):
            before = predecessor[edge]
            if before < 0 or before >= node:
                return ORDER, node
            first_after[before + 1] += 1
        if need[node] > 0:
            first_place[2 * host[node] + need[node]] += 1
    for node in range(num_nodes):
        first_after[node + 1] += first_after[node]
    for heap in range(2 * num_hosts):
        first_place[heap + 1] += first_place[heap]
    num_places = first_place[2 * num_hosts]
    after = np.empty(num_edges, np.int32)
    lag_after = np.empty(num_edges, np.int32)
    filled = first_after[:num_nodes].copy()
    for node in range(num_nodes):
        for edge in range(first_edge[node], first_edge[node + 1]):
            place = filled[predecessor[edge]]
            filled[predecessor[edge]] += 1
            after[place] = node
            lag_after[place] = lag_ns[edge]

    # What works, by reading of its host's clock at its end; what waits for its start.
    reading = np.empty(num_places, np.float64)
    working = np.empty(num_places, np.int32)
    size = np.zeros(2 * num_hosts, np.int64)
    due_ns = np.empty(num_places, np.float64)
    due = np.empty(num_places, np.int32)
    num_due = 0
    clock = np.zeros(2 * num_hosts, np.float64)
    rate = np.ones(2 * num_hosts, np.float64)
    at_ns = np.zeros(num_hosts, np.float64)

    # When the first of each heap ends: leaves of a tree whose every node holds the least below.
    num_leaves = 1
    while num_leaves < 2 * num_hosts:
        num_leaves *= 2
    next_ns = np.full(2 * num_leaves, np.inf)

    # Nodes that wait for nobody any more, last first.
    known = np.empty(num_nodes, np.int32)
    num_known = 0
    for node in range(num_nodes - 1, -1, -1):
        start_ns[node] = 0.0
        if waits[node] == 0:
            known[num_known] = node
            num_known += 1

    num_ended = 0
    while True:
        ended = -1
        if num_known > 0:
            num_known -= 1
            node = int(known[num_known])
            if need[node] > 0 and duration_ns[node] > 0:
                _push(due_ns, due, 0, num_due, start_ns[node], node)
                num_due += 1
                continue
            end_ns[node] = start_ns[node] + duration_ns[node]
            ended = node
        else:
            here = -1
            if num_due > 0 and due_ns[0] < next_ns[1]:
                begin_ns = due_ns[0]
                node = int(due[0])
                _pop(due_ns, due, 0, num_due)
                num_due -= 1
                here = int(host[node])
                heap = 2 * here + need[node] - 1
                passed_ns = begin_ns - at_ns[here]
                if passed_ns > 0.0:
                    clock[2 * here] += passed_ns * rate[2 * here]
                    clock[2 * here + 1] += passed_ns * rate[2 * here + 1]
                    at_ns[here] = begin_ns
                    passed_ns = 0.0
                # Behind a lag below zero a node may begin before its host's latest event: up to
                # that it works as if alone.
                alone = speed[0]
                if need[node] > 1:
                    alone = 1.0 - transfers * (1.0 - alone)
                left_ns = duration_ns[node] + passed_ns * alone
                if left_ns <= 0.0:
                    end_ns[node] = begin_ns + duration_ns[node] / alone
                    ended = node
                else:
                    base = first_place[heap]
                    _push(reading, working, base, size[heap], clock[heap] + left_ns, node)
                    size[heap] += 1
            elif next_ns[1] < np.inf:
                leaf = 1
                while leaf < num_leaves:
                    leaf *= 2
                    if next_ns[leaf] > next_ns[leaf + 1]:
                        leaf += 1
                heap = leaf - num_leaves
                here = heap // 2
                now_ns = next_ns[leaf]
                other = heap ^ 1
                clock[other] += (now_ns - at_ns[here]) * rate[other]
                at_ns[here] = now_ns
                base = first_place[heap]
                clock[heap] = reading[base]
                node = int(working[base])
                _pop(reading, working, base, size[heap])
                size[heap] -= 1
                end_ns[node] = now_ns
                ended = node
                if size[heap] + size[other] == 0:
                    clock[heap] = 0.0
                    clock[other] = 0.0
            else:
                break

            # Another number works on this host: its speeds, and when the first of them end.
            running = size[2 * here] + transfers * size[2 * here + 1]
            one = _speed(speed, running)
            rate[2 * here] = one
            rate[2 * here + 1] = 1.0 - transfers * (1.0 - one)
            for heap in range(2 * here, 2 * here + 2):
                leaf = num_leaves + heap
                next_ns[leaf] = np.inf
                if size[heap] > 0:
                    left_ns = max(0.0, reading[first_place[heap]] - clock[heap])
                    next_ns[leaf] = at_ns[here] + left_ns / rate[heap]
            leaf = (num_leaves + 2 * here) // 2
            while leaf > 0:
                next_ns[leaf] = min(next_ns[2 * leaf], next_ns[2 * leaf + 1])
                leaf //= 2

        if ended >= 0:
            end = end_ns[ended]
            if not end < _LIMIT_EXACT_NS:
                return OVERFLOW, ended
            num_ended += 1
            for place in range(first_after[ended + 1] - 1, first_after[ended] - 1, -1):
                later = after[place]
                ready_ns = end + lag_after[place]
                start_ns[later] = max(start_ns[later], ready_ns)
                waits[later] -= 1
                if waits[later] == 0:
                    known[num_known] = later
                    num_known += 1
    if num_ended < num_nodes:
        return ORDER, num_ended
    return OK, num_nodes

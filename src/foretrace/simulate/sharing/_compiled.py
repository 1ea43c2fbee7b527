"""Compiled loop of what is shared, cores of hosts and links of a network; checks no lengths.

See `shared` for the safe way in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from foretrace.base import Float64s, Int32s, Int64s, UInt8s, njit
from foretrace.simulate.sharing.fairness._compiled import _fair, _joins, _leaves, _met

# As `foretrace.simulate._compiled.Status`.
OK, NEGATIVE_DURATION, ORDER, OVERFLOW, EDGES = 0, 1, 2, 3, 4
_LIMIT_EXACT_NS = 2.0**53
_NOWHERE = -1


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
def _turned(
    num_flows: int,
    flows: Int32s,
    first_seat: int,
    now_ns: float,
    new_rate: Float64s,
    new_held_at: Int32s,
    held_at: Int32s,
    is_watched: UInt8s,
    held_ns: Float64s,
    clock: Float64s,
    rate: Float64s,
    at_ns: Float64s,
    end_reading: Float64s,
    next_ns: Float64s,
    num_leaves: int,
) -> None:
    """Flows go on at other rates. Out: their clocks, and when the first of each ends."""
    for at in range(num_flows):
        flow = flows[at]
        own = first_seat + flow
        if is_watched[flow] > 0 and held_at[flow] != _NOWHERE:
            held_ns[held_at[flow]] += now_ns - at_ns[own]
        is_same = new_rate[flow] == rate[own]
        if not is_same or held_at[flow] != _NOWHERE:
            clock[own] += (now_ns - at_ns[own]) * rate[own]
            at_ns[own] = now_ns
            rate[own] = new_rate[flow]
        held_at[flow] = new_held_at[flow]
        if not is_same:
            left_ns = max(0.0, end_reading[flow] - clock[own])
            _end_first(next_ns, num_leaves, own, now_ns + left_ns / rate[own])


@njit
def _end_first(next_ns: Float64s, num_leaves: int, clock: int, end_ns: float) -> None:
    """State when the first on a clock ends. Out: `next_ns`, a tree whose nodes hold the least."""
    at = num_leaves + clock
    next_ns[at] = end_ns
    at //= 2
    while at > 0:
        least = min(next_ns[2 * at], next_ns[2 * at + 1])
        if next_ns[at] == least:
            break
        next_ns[at] = least
        at //= 2


@njit
def _shared_ends(
    first_edge: Int64s,
    predecessor: Int32s,
    lag_ns: Int32s,
    duration_ns: Int64s,
    delay_ns: Int64s,
    clock_of: Int32s,
    num_hosts: int,
    speed: Float64s,
    transfers: float,
    pattern: Int32s,
    first_use: Int64s,
    link: Int32s,
    share: Float64s,
    pace: Float64s,
    num_links: int,
    watched: UInt8s,
    start_ns: Float64s,
    end_ns: Float64s,
    held_ns: Float64s,
    crowded_ns: Float64s,
) -> tuple[int, int, int]:
    """Events in order of time; of equal times ends before starts, then clocks, then nodes.

    All that works on one host goes at one speed, so each host has a clock that runs at that speed
    and a heap of the readings at which its nodes end; a second clock and heap for transfers, which
    `transfers` slow only as far as they need a core. A flow, the transfer of one collective on all
    its links, has a clock of its own that runs at its rate, 1 while nothing holds it. What shares
    nothing ends when it is known to start; it makes no event.

    In: the graph's columns; `duration_ns` int64[nodes]; `delay_ns` int64[nodes], of its duration
    what passes before a node shares anything; `clock_of` int32[nodes], 2 * host for a core,
    2 * host + 1 for a transfer's share, 2 * hosts + flow, or -1; `speed` float64[counts] above 0;
    `pattern` int32[flows]; `first_use` int64[patterns + 1], `link` int32[uses] and `share`
    float64[uses], of a link's capacity at rate 1; `pace` float64[patterns], rates of flows that
    have as much as each other; `watched` uint8[flows]. Out: `start_ns` and `end_ns`
    float64[nodes]; `held_ns` float64[links], time in which watched flows were held there;
    `crowded_ns` float64[links]. Returns (status, the node it stopped at; the number of nodes if
    OK, begins and ends of flows).
    """
    num_nodes = duration_ns.size
    num_edges = predecessor.size
    num_flows = pattern.size
    num_clocks = 2 * num_hosts + num_flows

    # Successors, and where the heap of each clock begins.
    first_after = np.zeros(num_nodes + 1, np.int64)
    first_place = np.zeros(num_clocks + 1, np.int64)
    waits = np.empty(num_nodes, np.int32)
    for node in range(num_nodes):
        if duration_ns[node] < 0:
            return NEGATIVE_DURATION, node, 0
        if first_edge[node + 1] < first_edge[node] or first_edge[node + 1] > num_edges:
            return EDGES, node, 0
        waits[node] = first_edge[node + 1] - first_edge[node]
        for edge in range(first_edge[node], first_edge[node + 1]):
            before = predecessor[edge]
            if before < 0 or before >= node:
                return ORDER, node, 0
            first_after[before + 1] += 1
        if clock_of[node] >= 0:
            first_place[clock_of[node] + 1] += 1
    for node in range(num_nodes):
        first_after[node + 1] += first_after[node]
    for heap in range(num_clocks):
        first_place[heap + 1] += first_place[heap]
    num_places = first_place[num_clocks]
    after = np.empty(num_edges, np.int32)
    lag_after = np.empty(num_edges, np.int32)
    filled = first_after[:num_nodes].copy()
    for node in range(num_nodes):
        for edge in range(first_edge[node], first_edge[node + 1]):
            place = filled[predecessor[edge]]
            filled[predecessor[edge]] += 1
            after[place] = node
            lag_after[place] = lag_ns[edge]

    # What works, by reading of its clock at its end; what waits for its start.
    reading = np.empty(num_places, np.float64)
    working = np.empty(num_places, np.int32)
    size = np.zeros(num_clocks, np.int64)
    due_ns = np.empty(num_places, np.float64)
    due = np.empty(num_places, np.int32)
    num_due = 0
    clock = np.zeros(num_clocks, np.float64)
    rate = np.ones(num_clocks, np.float64)
    at_ns = np.zeros(num_clocks, np.float64)

    # When the first of each heap ends: leaves of a tree whose every node holds the least below.
    num_leaves = 1
    while num_leaves < num_clocks:
        num_leaves *= 2
    next_ns = np.full(2 * num_leaves, np.inf)

    # Who is on which link, as `fairness` keeps it.
    demand = np.zeros(num_links, np.float64)
    first_on = np.full(num_links, _NOWHERE, np.int32)
    own = np.full(num_flows, _NOWHERE, np.int32)
    first_seat = 2 * num_hosts
    seat_of = np.full(num_flows, _NOWHERE, np.int32)
    flow_on = np.empty(num_flows, np.int32)
    idle = np.empty(num_flows, np.int32)
    num_idle = 0
    num_seats = 0
    seat_pace = np.empty(num_flows, np.float64)
    is_watched = np.empty(num_flows, np.uint8)
    end_reading = np.empty(num_flows, np.float64)
    num_met = 0  # flows whose rates other flows' begins or ends may change
    mark = 0
    on_link = np.empty(0, np.int32)
    before_on = np.empty(0, np.int32)
    free = _NOWHERE
    num_free = 0
    flows = np.empty(num_flows, np.int32)
    met_flow = np.zeros(num_flows, np.int64)
    links = np.empty(num_links, np.int32)
    met_link = np.zeros(num_links, np.int64)
    room = np.empty(num_links, np.float64)
    weight = np.empty(num_links, np.float64)
    new_rate = np.ones(num_flows, np.float64)
    new_held_at = np.full(num_flows, _NOWHERE, np.int32)
    held_at = np.full(num_flows, _NOWHERE, np.int32)
    since_ns = np.zeros(num_links, np.float64)
    latest_ns = 0.0
    num_events = 0

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
            if clock_of[node] >= 0 and duration_ns[node] > delay_ns[node]:
                _push(due_ns, due, 0, num_due, start_ns[node] + delay_ns[node], node)
                num_due += 1
                continue
            end_ns[node] = start_ns[node] + duration_ns[node]
            ended = node
        else:
            if num_met > 0:
                following_ns = next_ns[1]
                if num_due > 0:
                    following_ns = min(following_ns, due_ns[0])
                if following_ns > latest_ns:
                    num_met, num_full = _met(
                        num_met, flows, met_flow, links, met_link, mark, demand, first_on, own,
                        link, on_link,
                    )  # fmt: skip
                    _fair(
                        num_met, flows, num_full, links, first_on, on_link, share, seat_pace, room,
                        weight, new_rate, new_held_at,
                    )  # fmt: skip
                    _turned(
                        num_met, flows, first_seat, latest_ns, new_rate, new_held_at, held_at,
                        is_watched, held_ns, clock, rate, at_ns, end_reading, next_ns, num_leaves,
                    )  # fmt: skip
                    num_met = 0
            heap = -1
            is_begin = num_due > 0 and due_ns[0] < next_ns[1]
            if is_begin:
                begin_ns = due_ns[0]
                node = int(due[0])
                _pop(due_ns, due, 0, num_due)
                num_due -= 1
                heap = int(clock_of[node])
            elif next_ns[1] < np.inf:
                leaf = 1
                while leaf < num_leaves:
                    leaf *= 2
                    if next_ns[leaf] > next_ns[leaf + 1]:
                        leaf += 1
                heap = leaf - num_leaves
                if heap >= first_seat:
                    heap = first_seat + flow_on[heap - first_seat]
            else:
                break

            flow = heap - first_seat
            here = heap
            seat = 0
            if flow >= 0:
                if num_met == 0:
                    mark = num_events + 1
                if seat_of[flow] == _NOWHERE:
                    if num_idle > 0:
                        num_idle -= 1
                        seat_of[flow] = idle[num_idle]
                    else:
                        seat_of[flow] = num_seats
                        num_seats += 1
                    flow_on[seat_of[flow]] = flow
                    seat_pace[seat_of[flow]] = pace[pattern[flow]]
                    is_watched[seat_of[flow]] = watched[flow]
                seat = int(seat_of[flow])
                here = first_seat + seat
            if flow >= 0 and is_begin:
                # Behind a lag below zero a flow may begin before the latest event of links: up to
                # that it works as if alone.
                if size[heap] == 0:
                    clock[here] = 0.0
                    rate[here] = 1.0
                    at_ns[here] = max(begin_ns, latest_ns)
                elif begin_ns > at_ns[here] and rate[here] != 1.0:
                    if is_watched[seat] > 0:
                        held_ns[held_at[seat]] += begin_ns - at_ns[here]
                    clock[here] += (begin_ns - at_ns[here]) * rate[here]
                    at_ns[here] = begin_ns
                left_ns = duration_ns[node] - delay_ns[node] + (begin_ns - at_ns[here])
                if left_ns <= 0.0:
                    end_ns[node] = begin_ns + duration_ns[node] - delay_ns[node]
                    ended = node
                    if size[heap] == 0:
                        seat_of[flow] = _NOWHERE
                        idle[num_idle] = seat
                        num_idle += 1
                else:
                    base = first_place[heap]
                    _push(reading, working, base, size[heap], clock[here] + left_ns, node)
                    size[heap] += 1
                    end_reading[seat] = reading[base]
                    first_ns = at_ns[here] + (reading[base] - clock[here]) / rate[here]
                    _end_first(next_ns, num_leaves, here, first_ns)
                    if size[heap] == 1:
                        num_events += 1
                        latest_ns = max(begin_ns, latest_ns)
                        first, last = first_use[pattern[flow]], first_use[pattern[flow] + 1]
                        if num_free < last - first:
                            size_before = before_on.size
                            wanted = max(2 * size_before, size_before + last - first)
                            more = np.empty(4 * wanted, np.int32)
                            more[: 4 * size_before] = on_link
                            more_before = np.empty(wanted, np.int32)
                            more_before[:size_before] = before_on
                            for at in range(size_before, wanted):
                                more[4 * at + 3] = free
                                free = at
                            num_free += wanted - size_before
                            on_link = more
                            before_on = more_before
                        num_free -= last - first
                        free, is_crowded = _joins(
                            seat, free, first, last, link, share, demand, first_on, own,
                            on_link, before_on, latest_ns, since_ns,
                        )  # fmt: skip
                        held_at[seat] = _NOWHERE
                        if is_crowded and met_flow[seat] != mark:
                            flows[num_met] = seat
                            met_flow[seat] = mark
                            num_met += 1
            elif flow >= 0:
                now_ns = next_ns[leaf]
                if is_watched[seat] > 0 and held_at[seat] != _NOWHERE:
                    held_ns[held_at[seat]] += now_ns - at_ns[here]
                base = first_place[heap]
                clock[here] = reading[base]
                at_ns[here] = now_ns
                node = int(working[base])
                _pop(reading, working, base, size[heap])
                size[heap] -= 1
                end_ns[node] = now_ns
                ended = node
                first_ns = np.inf
                if size[heap] > 0:
                    end_reading[seat] = reading[base]
                    left_ns = max(0.0, reading[base] - clock[here])
                    first_ns = now_ns + left_ns / rate[here]
                _end_first(next_ns, num_leaves, here, first_ns)
                if size[heap] == 0:
                    num_events += 1
                    latest_ns = max(now_ns, latest_ns)
                    last = first_use[pattern[flow] + 1]
                    num_free += last - first_use[pattern[flow]]
                    free, num_met = _leaves(
                        seat, free, num_met, link, share, demand, first_on, own, on_link,
                        before_on, flows, met_flow, mark, latest_ns, since_ns, crowded_ns,
                    )  # fmt: skip
                    seat_of[flow] = _NOWHERE
                    idle[num_idle] = seat
                    num_idle += 1
            else:
                here = heap // 2
                if is_begin:
                    passed_ns = begin_ns - at_ns[2 * here]
                    if passed_ns > 0.0:
                        clock[2 * here] += passed_ns * rate[2 * here]
                        clock[2 * here + 1] += passed_ns * rate[2 * here + 1]
                        at_ns[2 * here] = begin_ns
                        passed_ns = 0.0
                    # As of a flow: before its host's latest event it works as if alone.
                    alone = speed[0]
                    if heap != 2 * here:
                        alone = 1.0 - transfers * (1.0 - alone)
                    left_ns = duration_ns[node] + passed_ns * alone
                    if left_ns <= 0.0:
                        end_ns[node] = begin_ns + duration_ns[node] / alone
                        ended = node
                    else:
                        base = first_place[heap]
                        _push(reading, working, base, size[heap], clock[heap] + left_ns, node)
                        size[heap] += 1
                else:
                    now_ns = next_ns[leaf]
                    other = heap ^ 1
                    clock[other] += (now_ns - at_ns[2 * here]) * rate[other]
                    at_ns[2 * here] = now_ns
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

                # Another number works on this host: its speeds, and when the first of them end.
                running = size[2 * here] + transfers * size[2 * here + 1]
                one = _speed(speed, running)
                rate[2 * here] = one
                rate[2 * here + 1] = 1.0 - transfers * (1.0 - one)
                for heap in range(2 * here, 2 * here + 2):
                    first_ns = np.inf
                    if size[heap] > 0:
                        left_ns = max(0.0, reading[first_place[heap]] - clock[heap])
                        first_ns = at_ns[2 * here] + left_ns / rate[heap]
                    _end_first(next_ns, num_leaves, heap, first_ns)

        if ended >= 0:
            end = end_ns[ended]
            if not end < _LIMIT_EXACT_NS:
                return OVERFLOW, ended, num_events
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
        return ORDER, num_ended, num_events
    return OK, num_nodes, num_events

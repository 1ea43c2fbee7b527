"""Compiled loops of flows on links: who begins, who ends, max-min fair rates; checks no lengths.

Flows are told by their seats, of which there are as many as flows at once. A *place* is a flow on
a link: four numbers of `place`, which are its use, the flow, the next place on the link, and the
flow's next place; free places hang together by the last. `first_on` is the first place of a link,
`own` that of a flow, and `before` the one before a place on its link.
"""

from __future__ import annotations

import numpy as np

from foretrace.base import Float64s, Int32s, Int64s, njit

# A link is crowded where more is asked of it than it has; sums of shares are off by rounding.
_FULL = 1.0 + 1e-9
_TIED = 1.0 + 1e-12
_NOWHERE = -1


@njit
def _met(
    num_flows: int,
    flows: Int32s,
    met_flow: Int64s,
    links: Int32s,
    met_link: Int64s,
    mark: int,
    demand: Float64s,
    first_on: Int32s,
    own: Int32s,
    link: Int32s,
    place: Int32s,
) -> tuple[int, int]:
    """Flows that crowded links join to the first ones of `flows` that are there, and these links.

    Out: `flows`, `links`. Returns how many of each.
    """
    num_links = 0
    num_there = 0
    for at in range(num_flows):
        flow = flows[at]
        if own[flow] != _NOWHERE:
            flows[num_there] = flow
            num_there += 1
        else:
            met_flow[flow] = 0
    num_flows = num_there
    at = 0
    while at < num_flows:
        use = own[flows[at]]
        at += 1
        while use != _NOWHERE:
            here = link[place[4 * use]]
            if demand[here] > _FULL and met_link[here] != mark:
                met_link[here] = mark
                links[num_links] = here
                num_links += 1
                other = first_on[here]
                while other != _NOWHERE:
                    flow = place[4 * other + 1]
                    if met_flow[flow] != mark:
                        met_flow[flow] = mark
                        flows[num_flows] = flow
                        num_flows += 1
                    other = place[4 * other + 2]
            use = place[4 * use + 3]
    return num_flows, num_links


@njit
def _fair(
    num_flows: int,
    flows: Int32s,
    num_links: int,
    links: Int32s,
    first_on: Int32s,
    place: Int32s,
    share: Float64s,
    pace: Float64s,
    room: Float64s,
    weight: Float64s,
    rate: Float64s,
    held_at: Int32s,
) -> None:
    """Max-min fair rates: all rise together until their own speed, or a full link, holds them.

    Out: `rate` and `held_at` (the full link; _NOWHERE at a flow's own speed) of these flows.
    """
    for at in range(num_flows):
        rate[flows[at]] = -1.0
    for at in range(num_links):
        here = links[at]
        room[here] = 1.0
        weight[here] = 0.0
        use = first_on[here]
        while use != _NOWHERE:
            weight[here] += share[place[4 * use]] * pace[place[4 * use + 1]]
            use = place[4 * use + 2]
    left = num_flows
    while left > 0:
        level = np.inf
        for at in range(num_links):
            here = links[at]
            if weight[here] > 0.0:
                level = min(level, max(room[here], 0.0) / weight[here])
        is_held = True
        for at in range(num_flows):
            flow = flows[at]
            if rate[flow] < 0.0 and level * pace[flow] >= 1.0:
                rate[flow] = 1.0
                held_at[flow] = _NOWHERE
                is_held = False
        if is_held:
            for at in range(num_links):
                here = links[at]
                if weight[here] > 0.0 and max(room[here], 0.0) / weight[here] <= level * _TIED:
                    use = first_on[here]
                    while use != _NOWHERE:
                        flow = place[4 * use + 1]
                        if rate[flow] < 0.0:
                            rate[flow] = level * pace[flow]
                            held_at[flow] = here
                        use = place[4 * use + 2]
        # What flows that rise no more leave of every link, and how fast the others fill it.
        left = 0
        for at in range(num_flows):
            left += rate[flows[at]] < 0.0
        if left == 0:
            break
        for at in range(num_links):
            here = links[at]
            room[here] = 1.0
            weight[here] = 0.0
            use = first_on[here]
            while use != _NOWHERE:
                flow = place[4 * use + 1]
                if rate[flow] < 0.0:
                    weight[here] += share[place[4 * use]] * pace[flow]
                else:
                    room[here] -= share[place[4 * use]] * rate[flow]
                use = place[4 * use + 2]


@njit
def _joins(
    flow: int,
    free: int,
    first: int,
    last: int,
    link: Int32s,
    share: Float64s,
    demand: Float64s,
    first_on: Int32s,
    own: Int32s,
    place: Int32s,
    before: Int32s,
    now_ns: float,
    since_ns: Float64s,
) -> tuple[int, bool]:
    """A flow begins: it stands on each of its links.

    Out: `since_ns` of links that it crowds. Returns the next free place, and whether any of its
    links is crowded now.
    """
    is_crowded = False
    for use in range(first, last):
        at = free
        free = int(place[4 * at + 3])
        here = link[use]
        place[4 * at] = use
        place[4 * at + 1] = flow
        place[4 * at + 2] = first_on[here]
        before[at] = _NOWHERE
        if first_on[here] != _NOWHERE:
            before[first_on[here]] = at
        first_on[here] = at
        place[4 * at + 3] = own[flow]
        own[flow] = at
        was_crowded = demand[here] > _FULL
        demand[here] += share[use]
        if demand[here] > _FULL:
            is_crowded = True
            if not was_crowded:
                since_ns[here] = now_ns
    return free, is_crowded


@njit
def _leaves(
    flow: int,
    free: int,
    num_flows: int,
    link: Int32s,
    share: Float64s,
    demand: Float64s,
    first_on: Int32s,
    own: Int32s,
    place: Int32s,
    before: Int32s,
    flows: Int32s,
    met_flow: Int64s,
    mark: int,
    now_ns: float,
    since_ns: Float64s,
    crowded_ns: Float64s,
) -> tuple[int, int]:
    """A flow ends. Out: `flows`, further who shared a crowded link; `crowded_ns` of its links.

    Returns the next free place, and how many flows there are.
    """
    at = int(own[flow])
    while at != _NOWHERE:
        use = place[4 * at]
        here = link[use]
        was_crowded = demand[here] > _FULL
        after = place[4 * at + 2]
        if before[at] == _NOWHERE:
            first_on[here] = after
        else:
            place[4 * before[at] + 2] = after
        if after != _NOWHERE:
            before[after] = before[at]
        demand[here] = 0.0 if first_on[here] == _NOWHERE else demand[here] - share[use]
        if was_crowded:
            if not demand[here] > _FULL:
                crowded_ns[here] += now_ns - since_ns[here]
            other = first_on[here]
            while other != _NOWHERE:
                shared_with = place[4 * other + 1]
                if met_flow[shared_with] != mark and shared_with != flow:
                    met_flow[shared_with] = mark
                    flows[num_flows] = shared_with
                    num_flows += 1
                other = place[4 * other + 2]
        following = int(place[4 * at + 3])
        place[4 * at + 3] = free
        free = at
        at = following
    own[flow] = _NOWHERE
    return free, num_flows

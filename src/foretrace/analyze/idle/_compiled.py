"""Compiled loops that walk back over what each node waited for; see `walks`."""

from __future__ import annotations

import numpy as np

from foretrace.base import Int32s, Int64s, UInt8s, njit

OWN, LAG, UNEXPLAINED, NOTHING_BEFORE = 0, 1, 2, 3


@njit
def _binding_edges(
    first_edge: Int64s, predecessor: Int32s, lag_ns: Int32s, end_ns: Int64s, binding: Int64s
) -> None:
    """The edge over which each node became ready last; of equally late ones the first.

    Out: `binding`, int64[nodes], -1 where a node has no predecessor.
    """
    for node in range(binding.size):
        best = np.int64(-1)
        best_ns = np.int64(0)
        for edge in range(first_edge[node], first_edge[node + 1]):
            ready_ns = end_ns[predecessor[edge]] + lag_ns[edge]
            if best < 0 or ready_ns > best_ns:
                best = np.int64(edge)
                best_ns = ready_ns
        binding[node] = best


@njit
def _walk_back(
    predecessor: Int32s,
    lag_ns: Int32s,
    start_ns: Int64s,
    end_ns: Int64s,
    binding: Int64s,
    from_node: Int64s,
    begin_ns: Int64s,
    until_ns: Int64s,
    first_walk: int,
    out_walk: Int32s,
    out_node: Int32s,
    out_edge: Int64s,
    out_what: UInt8s,
    out_begin_ns: Int64s,
    out_end_ns: Int64s,
) -> tuple[int, int]:
    """Cut the time before each node, back to a moment, into pieces of nodes and lags.

    Walks begin at `first_walk`, since the outputs may be too short for all. Out: the `out_`
    columns, from 0 on. Returns the first walk that was not finished (its pieces do not count)
    and the number of pieces of finished ones.
    """
    room = out_walk.size
    kept = 0
    for walk in range(first_walk, from_node.size):
        count = kept
        node = np.int64(from_node[walk])
        begin = begin_ns[walk]
        until = until_ns[walk]
        while until > begin:
            if count + 3 > room:
                return walk, kept
            edge = binding[node]
            if edge < 0:
                out_walk[count], out_node[count], out_edge[count] = walk, node, -1
                out_what[count] = NOTHING_BEFORE
                out_begin_ns[count], out_end_ns[count] = begin, until
                count += 1
                break
            before = np.int64(predecessor[edge])
            ready_ns = end_ns[before] + max(lag_ns[edge], 0)
            for what, low_ns in (
                (UNEXPLAINED, ready_ns),
                (LAG, end_ns[before]),
                (OWN, start_ns[before]),
            ):
                low = max(low_ns, begin)
                if low < until:
                    out_walk[count], out_edge[count], out_what[count] = walk, edge, what
                    out_node[count] = before if what == OWN else node
                    out_begin_ns[count], out_end_ns[count] = low, until
                    count += 1
                    until = low
            node = before
        kept = count
    return from_node.size, kept


@njit
def _walk_apart(
    predecessor: Int32s,
    lag_ns: Int32s,
    start_ns: Int64s,
    end_ns: Int64s,
    binding: Int64s,
    from_node: Int64s,
    from_edge: Int64s,
    until_ns: Int64s,
    first_pair: int,
    out_walk: Int32s,
    out_node: Int32s,
    out_edge: Int64s,
    out_what: UInt8s,
    out_begin_ns: Int64s,
    out_end_ns: Int64s,
) -> tuple[int, int]:
    """Walk back from two nodes at once until their ways meet, and cut both into pieces.

    Walks 2k and 2k + 1 are a pair. Each first goes over its `from_edge`, then over `binding`;
    of a pair the one at the later node moves, so that neither passes where they meet. Out: the
    `out_` columns, from 0 on. Returns the first pair that was not finished (its pieces do not
    count) and the number of pieces of finished ones.
    """
    room = out_walk.size
    kept = 0
    node = np.empty(2, np.int64)
    edge = np.empty(2, np.int64)
    until = np.empty(2, np.int64)
    for pair in range(first_pair, from_node.size // 2):
        count = kept
        for side in range(2):
            node[side] = from_node[2 * pair + side]
            edge[side] = from_edge[2 * pair + side]
            until[side] = until_ns[2 * pair + side]
        while node[0] != node[1] and (edge[0] >= 0 or edge[1] >= 0):
            if count + 4 > room:
                return pair, kept
            side = 0 if edge[1] < 0 or (edge[0] >= 0 and node[0] > node[1]) else 1
            own, over = node[side], edge[side]
            before = np.int64(predecessor[over])
            ready_ns = end_ns[before] + max(lag_ns[over], 0)
            for what, low in (
                (OWN, start_ns[own]),
                (UNEXPLAINED, ready_ns),
                (LAG, end_ns[before]),
            ):
                if low < until[side]:
                    out_walk[count], out_edge[count] = 2 * pair + side, over
                    out_what[count], out_node[count] = what, own
                    out_begin_ns[count], out_end_ns[count] = low, until[side]
                    count += 1
                    until[side] = low
            node[side] = before
            edge[side] = binding[before]
        if node[0] != node[1]:
            if count + 2 > room:
                return pair, kept
            for side in range(2):
                low = start_ns[node[side]]
                if low < until[side]:
                    out_walk[count], out_edge[count] = 2 * pair + side, -1
                    out_what[count], out_node[count] = OWN, node[side]
                    out_begin_ns[count], out_end_ns[count] = low, until[side]
                    count += 1
        kept = count
    return from_node.size // 2, kept

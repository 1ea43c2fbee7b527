"""Compiled loops of the static engine; check no lengths.

See `static` and `batch` for the safe ways in.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from foretrace.base import Float64s, Int32s, Int64s, LoopHint, UInt8s, njit


class Status(IntEnum):
    """How the loop ended."""

    OK = 0
    NEGATIVE_DURATION = 1
    ORDER = 2  # a predecessor does not stand before its successor
    OVERFLOW = 3  # an end lies past LIMIT_NS
    EDGES = 4  # `first_edge` falls, or points past the edges


LIMIT_NS = 2**53  # 104 days; float64, which shares and means are made in, is exact below

# The loop's own copies: an enum member inside would cost an unboxing per return.
_OK = int(Status.OK)
_NEGATIVE_DURATION = int(Status.NEGATIVE_DURATION)
_ORDER = int(Status.ORDER)
_OVERFLOW = int(Status.OVERFLOW)
_EDGES = int(Status.EDGES)
_LIMIT_NS = np.int64(LIMIT_NS)

# Edges between asking for a predecessor's end and reading it. On 10 million nodes with random
# predecessors 8, 16, 32 and 64 made the loop 1.2, 1.5, 1.5 and 1.6 times faster, and 64 made it
# a fifth slower where predecessors are near; measured on an AMD EPYC.
_EDGES_AHEAD = np.int64(64)


@LoopHint
def _prefetch(_typing_context: Any, values: Any, index: Any) -> Any:
    """Have the cache line of `values[index]` fetched; harmless for any index."""
    # On demand: this runs when a loop is compiled.
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core import cgutils

    insert_function: Any = cgutils.get_or_insert_function

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), cgutils.voidptr_t)
        flag = cgutils.int32_t
        hint_type = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, flag, flag, flag])
        hint = insert_function(builder.module, hint_type, "llvm.prefetch.p0")
        # to read, into all caches, data
        builder.call(hint, [address, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(values, index), code


@njit
def _end_times(
    first_edge: Int64s,
    predecessor: Int32s,
    lag_ns: Int32s,
    duration_ns: Int64s,
    end_ns: Int64s,
) -> tuple[int, int]:
    """Longest path, one pass in node order. Out: `end_ns`.

    In: `first_edge` int64[nodes + 1], `predecessor` and `lag_ns` int32[edges], `duration_ns`
    int64[nodes]. Returns (status, the node it stopped at; the number of nodes if OK).
    """
    num_nodes = duration_ns.size
    num_edges = predecessor.size
    last_read = np.int64(num_edges - 1)
    edge = np.int64(0)
    for node in range(num_nodes):
        last_edge = first_edge[node + 1]
        if last_edge < edge or last_edge > num_edges:
            return _EDGES, node
        start_ns = np.int64(0)
        while edge < last_edge:
            _prefetch(end_ns, predecessor[min(edge + _EDGES_AHEAD, last_read)])
            before = predecessor[edge]
            if before < 0 or before >= node:
                return _ORDER, node
            start_ns = max(start_ns, end_ns[before] + lag_ns[edge])
            edge += 1
        duration = duration_ns[node]
        if duration < 0:
            return _NEGATIVE_DURATION, node
        if duration > _LIMIT_NS - start_ns:
            return _OVERFLOW, node
        end_ns[node] = start_ns + duration
    return _OK, num_nodes


LANES = 8  # samples side by side: one cache line of ends per node
NO_LIMIT_NS = int(np.iinfo(np.int64).max)  # slack of what nothing waits for

_LANES = int(LANES)
_NO_LIMIT_NS = np.int64(NO_LIMIT_NS)
_LIMIT_EXACT_NS = np.float64(LIMIT_NS)


@njit
def _batch_ends(
    first_edge: Int64s,
    predecessor: Int32s,
    lag_ns: Int32s,
    edge_kind: UInt8s,
    duration_ns: Float64s,
    label: Int32s,
    factor: Float64s,
    lag_factor: Float64s,
    lag_shift_ns: Float64s,
    is_plain: bool,
    goal: Int32s,
    end_ns: Float64s,
    goal_end_ns: Float64s,
    goal_node: Int64s,
) -> tuple[int, int]:
    """Longest paths of `LANES` samples at once; stops after the `end_ns.shape[0]` first nodes.

    In: the graph's columns, `duration_ns` float64[nodes], `label` int32[nodes], `factor`
    float64[labels, lanes], `lag_factor` and `lag_shift_ns` float64[kinds, lanes] (a shift of -inf
    removes the edges; all unused if `is_plain`), `goal` int32[nodes], -1 none.
    Out: `end_ns` float64[nodes, lanes]; `goal_end_ns` float64[goals, lanes] and `goal_node`
    int64[goals, lanes], the latest end among each goal's nodes and the first node that has it,
    both -1 before. Returns (status, the node it stopped at; the number of nodes if OK).
    """
    num_nodes = end_ns.shape[0]
    num_edges = predecessor.size
    start_ns = np.empty(_LANES, np.float64)
    edge = np.int64(0)
    for node in range(num_nodes):
        last_edge = first_edge[node + 1]
        if last_edge < edge or last_edge > num_edges:
            return _EDGES, node
        for lane in range(_LANES):
            start_ns[lane] = 0.0
        while edge < last_edge:
            before = predecessor[edge]
            if before < 0 or before >= node:
                return _ORDER, node
            lag = np.float64(lag_ns[edge])
            if is_plain:
                for lane in range(_LANES):
                    ready_ns = end_ns[before, lane] + lag
                    start_ns[lane] = max(start_ns[lane], ready_ns)
            else:
                kind = edge_kind[edge]
                for lane in range(_LANES):
                    shift = lag * lag_factor[kind, lane] + lag_shift_ns[kind, lane]
                    ready_ns = end_ns[before, lane] + shift
                    start_ns[lane] = max(start_ns[lane], ready_ns)
            edge += 1
        duration = duration_ns[node]
        if not duration >= 0:  # nor NaN
            return _NEGATIVE_DURATION, node
        row = label[node]
        target = goal[node]
        for lane in range(_LANES):
            end_ns[node, lane] = start_ns[lane] + duration * factor[row, lane]
        if target >= 0:
            for lane in range(_LANES):
                end = end_ns[node, lane]
                if not end < _LIMIT_EXACT_NS:
                    return _OVERFLOW, node
                if end > goal_end_ns[target, lane]:
                    goal_end_ns[target, lane] = end
                    goal_node[target, lane] = node
    return _OK, num_nodes


@njit
def _batch_slopes(
    first_edge: Int64s,
    predecessor: Int32s,
    lag_ns: Int32s,
    edge_kind: UInt8s,
    duration_ns: Float64s,
    label: Int32s,
    weight: Float64s,
    lag_weight: Float64s,
    lag_factor: Float64s,
    lag_shift_ns: Float64s,
    end_ns: Float64s,
    goal_node: Int64s,
    num_lanes: int,
    slope_ns: Float64s,
) -> None:
    """Walk from every goal's node back over what it waited for, adding up weighted work.

    In: as `_batch_ends` left it; `weight` float64[labels, lanes] of a node's duration and
    `lag_weight` float64[kinds, lanes] of an edge's lag. Of equally late predecessors the first
    counts. Out: `slope_ns` float64[goals, lanes], of the first `num_lanes`.
    """
    num_goals = goal_node.shape[0]
    at = np.empty(num_goals, np.int64)  # where each goal's way stands; ways that meet stay together
    for lane in range(num_lanes):
        node = np.int64(-1)
        for target in range(num_goals):
            at[target] = goal_node[target, lane]
            slope_ns[target, lane] = 0.0
            node = max(node, at[target])
        while node >= 0:
            gain = duration_ns[node] * weight[label[node], lane]
            latest = np.int64(-1)
            latest_ns = 0.0
            lag_of_latest = 0.0
            for edge in range(first_edge[node], first_edge[node + 1]):
                kind = edge_kind[edge]
                lag = np.float64(lag_ns[edge])
                shift = lag * lag_factor[kind, lane] + lag_shift_ns[kind, lane]
                before = predecessor[edge]
                ready_ns = end_ns[before, lane] + shift
                if ready_ns > latest_ns or (latest < 0 and ready_ns >= 0.0):
                    latest = np.int64(before)
                    latest_ns = ready_ns
                    lag_of_latest = lag * lag_weight[kind, lane]
            gain += lag_of_latest
            last = np.int64(-1)
            for target in range(num_goals):
                if at[target] == node:
                    slope_ns[target, lane] += gain
                    at[target] = latest
                last = max(last, at[target])
            node = last


@njit
def _slack(
    first_edge: Int64s,
    predecessor: Int32s,
    lag_ns: Int32s,
    start_ns: Int64s,
    end_ns: Int64s,
    is_measured: bool,
    slack_ns: Int64s,
) -> None:
    """How much later each node may end, from the last node back.

    In: `slack_ns` int64[nodes], what the nodes that something is due at have themselves, and
    `NO_LIMIT_NS` elsewhere. Where `is_measured`, time between the last predecessor and a start
    stays as it is; else it may be used up. Out: `slack_ns`.
    """
    for node in range(slack_ns.size - 1, -1, -1):
        slack = slack_ns[node]
        if slack == _NO_LIMIT_NS:
            continue
        edges = range(first_edge[node], first_edge[node + 1])
        ready_ns = start_ns[node]
        if is_measured:
            ready_ns = -_NO_LIMIT_NS
            for edge in edges:
                ready_ns = max(ready_ns, end_ns[predecessor[edge]] + lag_ns[edge])
        for edge in edges:
            before = predecessor[edge]
            room_ns = slack + ready_ns - (end_ns[before] + lag_ns[edge])
            slack_ns[before] = min(slack_ns[before], room_ns)


@njit
def _walk_back(
    first_edge: Int64s,
    predecessor: Int32s,
    lag_ns: Int32s,
    start_ns: Int64s,
    end_ns: Int64s,
    is_measured: bool,
    end_node: int,
    begin_ns: int,
    out_node: Int64s,
    out_edge: Int64s,
) -> int:
    """The nodes on the way back from `end_node` until one starts at or before `begin_ns`.

    A node's way back leads over the predecessor that it waited for last, lag included; of
    equally late ones the first edge counts. A simulated node that no edge held back ends the way.
    Out: `out_node`, last first, and `out_edge`, the edge over which each waited (-1 of the last),
    both int64[nodes]. Returns how many were written.
    """
    count = 0
    node = np.int64(end_node)
    while True:
        out_node[count] = node
        out_edge[count] = -1
        count += 1
        if start_ns[node] <= begin_ns:
            return count
        latest = np.int64(-1)
        latest_ns = np.int64(0)
        for edge in range(first_edge[node], first_edge[node + 1]):
            ready_ns = end_ns[predecessor[edge]] + lag_ns[edge]
            if latest < 0 or ready_ns > latest_ns:
                latest = np.int64(edge)
                latest_ns = ready_ns
        if latest < 0 or (latest_ns < start_ns[node] and not is_measured):
            return count
        out_edge[count - 1] = latest
        node = np.int64(predecessor[latest])

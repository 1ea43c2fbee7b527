"""Compiled loops over spans and over a critical path; see `intervals` and `path`."""

from __future__ import annotations

import numpy as np

from foretrace.base import Float64s, Int32s, Int64s, UInt8s, njit


@njit
def _union(start_ns: Int64s, end_ns: Int64s, out_start_ns: Int64s, out_end_ns: Int64s) -> int:
    """Merge spans that overlap or touch; empty spans vanish.

    In: `start_ns` rising, `end_ns`, int64[spans]. Out: `out_start_ns`, `out_end_ns`, at least as
    long. Returns how many spans were written.
    """
    count = 0
    for span in range(start_ns.size):
        begin, end = start_ns[span], end_ns[span]
        if end <= begin:
            continue
        if count > 0 and begin <= out_end_ns[count - 1]:
            out_end_ns[count - 1] = max(out_end_ns[count - 1], end)
        else:
            out_start_ns[count] = begin
            out_end_ns[count] = end
            count += 1
    return count


@njit
def _intersection(
    a_start_ns: Int64s,
    a_end_ns: Int64s,
    b_start_ns: Int64s,
    b_end_ns: Int64s,
    out_start_ns: Int64s,
    out_end_ns: Int64s,
) -> int:
    """What two sets of disjoint rising spans share.

    Out: `out_start_ns`, `out_end_ns`, at least as long as both sets together. Returns how many
    spans were written.
    """
    count = 0
    a = 0
    b = 0
    while a < a_start_ns.size and b < b_start_ns.size:
        begin = max(a_start_ns[a], b_start_ns[b])
        end = min(a_end_ns[a], b_end_ns[b])
        if begin < end:
            out_start_ns[count] = begin
            out_end_ns[count] = end
            count += 1
        if a_end_ns[a] < b_end_ns[b]:
            a += 1
        else:
            b += 1
    return count


@njit
def _add_to_bins(start_ns: Int64s, end_ns: Int64s, bin_ns: int, covered_ns: Float64s) -> None:
    """Time of disjoint spans by bin; bin k covers k * bin_ns to (k + 1) * bin_ns.

    In: spans from 0 on, none ending after the last bin. Out: `covered_ns`, added to.
    """
    for span in range(start_ns.size):
        begin, end = start_ns[span], end_ns[span]
        while begin < end:
            index = begin // bin_ns
            until = min(end, (index + 1) * bin_ns)
            covered_ns[index] += until - begin
            begin = until


@njit
def _path_time(
    first_edge: Int64s,
    predecessor: Int32s,
    lag_ns: Int32s,
    start_ns: Int64s,
    end_ns: Int64s,
    label: UInt8s,
    end_node: int,
    begin_ns: int,
    spent_ns: Int64s,
) -> None:
    """Walk from a node back over what it waited for, until `begin_ns`.

    A node's time is added to its label's entry, an edge's lag, and time that no edge explains,
    to the last. Of equally late predecessors the first counts. Out: `spent_ns`, int64[labels + 1],
    added to.
    """
    lags = spent_ns.size - 1
    node = np.int64(end_node)
    while end_ns[node] > begin_ns:
        spent_ns[label[node]] += end_ns[node] - max(start_ns[node], begin_ns)
        if start_ns[node] <= begin_ns:
            break
        latest = np.int64(-1)
        ready_ns = np.int64(0)
        for edge in range(first_edge[node], first_edge[node + 1]):
            until = end_ns[predecessor[edge]] + lag_ns[edge]
            if latest < 0 or until > ready_ns:
                latest = np.int64(predecessor[edge])
                ready_ns = until
        until = begin_ns if latest < 0 else max(end_ns[latest], begin_ns)
        spent_ns[lags] += start_ns[node] - until
        if latest < 0:
            break
        node = latest

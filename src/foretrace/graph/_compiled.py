"""Compiled loops of the graph floor; each has its plain-Python twin in `tests/oracles/graph.py`."""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, Int32s, Int64s, UInt8s, njit


@njit
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


@njit
def counted_order(key: Int64s, first: Int64s, order: Int64s) -> None:
    """Positions in the order of their keys, equal keys in their own order.

    `first` holds where each key's positions begin; it is consumed. Out: `order`.
    """
    for position in range(key.size):
        order[first[key[position]]] = position
        first[key[position]] += 1


@njit
def last_not_after(values: Int64s, low: int, high: int, limit: int) -> int:
    """Last position in the rising `values[low:high]` with at most `limit`; low - 1: none."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] <= limit:
            low = middle + 1
        else:
            high = middle
    return low - 1


@njit
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


@njit
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


@njit
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


@njit
def called_operators(
    lane: Int32s, start_ns: Int64s, end_ns: Int64s, parent: Int32s, called_ns: Int64s
) -> None:
    """What calls each operator, and its time in those that it calls itself; -1 calls none.

    Operators are sorted by lane, then start, longer first.
    Out: `parent`, -1 where none is around; `called_ns`.
    """
    above = -1
    for row in range(lane.size):
        called_ns[row] = -1
        while above >= 0 and (lane[above] != lane[row] or end_ns[above] <= start_ns[row]):
            above = parent[above]
        parent[row] = above
        if above >= 0:
            inside_ns = min(end_ns[row], end_ns[above]) - start_ns[row]
            called_ns[above] = max(called_ns[above], 0) + inside_ns
        above = row


@njit
def outermost(parent: Int32s, works: Bools, is_chosen: Bools) -> None:
    """Rows that work and have none that does around them; parents stand before their children.

    Out: `is_chosen`.
    """
    is_inside = np.zeros(parent.size, np.bool_)
    for row in range(parent.size):
        around = parent[row]
        is_inside[row] = around >= 0 and (is_inside[around] or is_chosen[around])
        is_chosen[row] = works[row] and not is_inside[row]


@njit
def scope_tree(
    lane: Int32s,
    start_ns: Int64s,
    end_ns: Int64s,
    is_operator: Bools,
    has_shapes: Bools,
    parent: Int32s,
    speaker: Int32s,
) -> None:
    """What encloses each scope, and which scope speaks for work directly inside each.

    Scopes are sorted by lane, then start, longer first. The speaker is the innermost operator
    with shapes at or around the scope; else the innermost operator; else the scope itself.
    Out: `parent`, `speaker`.
    """
    shaped = np.empty(lane.size, np.int32)
    operator = np.empty(lane.size, np.int32)
    above = -1
    for row in range(lane.size):
        while above >= 0 and (lane[above] != lane[row] or end_ns[above] <= start_ns[row]):
            above = parent[above]
        parent[row] = above
        shaped[row] = row if has_shapes[row] else (shaped[above] if above >= 0 else -1)
        operator[row] = row if is_operator[row] else (operator[above] if above >= 0 else -1)
        if shaped[row] >= 0:
            speaker[row] = shaped[row]
        elif operator[row] >= 0:
            speaker[row] = operator[row]
        else:
            speaker[row] = row
        above = row


@njit
def innermost_scopes(
    first: Int64s,
    start_ns: Int64s,
    end_ns: Int64s,
    parent: Int32s,
    lane: Int32s,
    at_ns: Int64s,
    found: Int32s,
) -> None:
    """The innermost scope open at each moment of a lane; -1: none, or lane below 0.

    Out: `found`.
    """
    for query in range(lane.size):
        found[query] = -1
        if lane[query] < 0:
            continue
        low, high = first[lane[query]], first[lane[query] + 1]
        row = last_not_after(start_ns, low, high, at_ns[query])
        if row < low:
            continue
        while row >= 0 and end_ns[row] <= at_ns[query]:
            row = parent[row]
        found[query] = row


@njit
def inherit(parent: Int32s, own: Int64s, nothing: int, is_inner: bool, found: Int64s) -> None:
    """A value of each scope or of the scopes around it; parents stand before their children.

    The innermost that has one wins, or with `is_inner` False the outermost. Out: `found`.
    """
    for row in range(parent.size):
        around = found[parent[row]] if parent[row] >= 0 else nothing
        if is_inner:
            found[row] = own[row] if own[row] != nothing else around
        else:
            found[row] = around if around != nothing else own[row]


@njit
def repeat_covers(
    tokens: Int32s, weight_before: Int64s, covered: Int64s, first: Int64s, length: Int64s
) -> None:
    """For every distance, the heaviest stretch that repeats itself at that distance throughout.

    A stretch counts if it holds its unit twice at least. `weight_before[i]` is the weight of all
    tokens before i, one entry more than tokens. Out: `covered[p]`, its weight, 0 if there is
    none, `first[p]` and `length[p]`, where it lies. Entry 0 stays untouched.
    """
    for period in range(1, covered.size):
        covered[period] = 0
        matched = 0
        for index in range(period, tokens.size):
            if tokens[index] != tokens[index - period]:
                matched = 0
                continue
            matched += 1
            if matched >= period:
                begin = index + 1 - matched - period
                weight = weight_before[index + 1] - weight_before[begin]
                if weight > covered[period]:
                    covered[period] = weight
                    first[period] = begin
                    length[period] = matched + period


@njit
def cyclic_scores(
    tokens: Int32s,
    unit: Int32s,
    match: int,
    mismatch: int,
    gap: int,
    move: UInt8s,
    best: Int64s,
) -> None:
    """Best local alignment of tokens to a unit repeated as often as need be.

    Wraparound dynamic programming (Fischetti, Landau, Sellers, Schmidt, "Identifying
    periodic occurrences of a template with applications to protein structure", 1992).
    Out: `move[i * unit.size + j]`, how token i came to position j: 0 begins here, 1 side by
    side, 2 an extra token, 3 a position left out; `best`, the score of the best alignment and the
    cell in which it ends, -1 if nothing matches.
    """
    size = unit.size
    before = np.zeros(size, np.int64)
    score = np.zeros(size, np.int64)
    best[0] = 0
    best[1] = -1
    for row in range(tokens.size):
        for position in range(size):
            before[position] = score[position]
        for position in range(size):
            step = match if tokens[row] == unit[position] else -mismatch
            value = before[position - 1] + step  # position - 1 is the last one for 0
            how = 1
            if before[position] - gap > value:
                value = before[position] - gap
                how = 2
            if value <= 0:
                value = 0
                how = 0
            score[position] = value
            move[row * size + position] = how
        for _ in range(2):  # a position left out may lead past the unit's end
            for position in range(size):
                value = score[position - 1] - gap
                if value > score[position]:
                    score[position] = value
                    move[row * size + position] = 3
        for position in range(size):
            if score[position] > best[0]:
                best[0] = score[position]
                best[1] = row * size + position

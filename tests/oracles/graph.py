"""The loops of the graph floor by their definitions, on plain lists."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

MOST_OPEN = 64  # operations of a stream that may wait for a successor at the same time

Span = tuple[int, int]


def topological_order(num_nodes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Nodes in the order in which they become ready; nodes on or behind a circle are left out."""
    waits = [sum(target == node for _, target in edges) for node in range(num_nodes)]
    ready = deque(node for node in range(num_nodes) if waits[node] == 0)
    order = []
    while ready:
        node = ready.popleft()
        order.append(node)
        for source, target in edges:
            if source == node:
                waits[target] -= 1
                if waits[target] == 0:
                    ready.append(target)
    return order


def counted_order(keys: Sequence[int]) -> list[int]:
    """Positions by key; equal keys keep their order."""
    return sorted(range(len(keys)), key=lambda position: keys[position])


def last_not_after(values: Sequence[int], low: int, high: int, limit: int) -> int:
    """Last position in `low..high` whose value is at most `limit`; `low - 1` if none is."""
    return max((at for at in range(low, high) if values[at] <= limit), default=low - 1)


def stream_predecessors(
    lanes: Sequence[int], spans: Sequence[Span], tolerance_ns: int
) -> list[tuple[int, int]]:
    """Pairs of operations, predecessor and successor, of one lane each.

    An operation waits for every earlier one of its lane that had ended when it began and that
    nothing waits for yet; if there is none, for the latest of the 64 before it that had ended.
    """
    pairs = []
    unclaimed: list[int] = []
    for op, (lane, (start, _)) in enumerate(zip(lanes, spans, strict=True)):
        unclaimed = [other for other in unclaimed if lanes[other] == lane]
        ended = [other for other in unclaimed if spans[other][1] <= start + tolerance_ns]
        if not ended:
            recent = range(max(op - MOST_OPEN, 0), op)
            ended = [
                other
                for other in recent
                if lanes[other] == lane and spans[other][1] <= start + tolerance_ns
            ][-1:]
        pairs += [(other, op) for other in ended]
        unclaimed = [other for other in unclaimed if other not in ended][-(MOST_OPEN - 1) :]
        unclaimed.append(op)
    return pairs


def pending_at_launch(
    streams: Sequence[int], launch_end_ns: Sequence[int], op_end_ns: Sequence[int]
) -> list[int]:
    """Operations of the stream, up to the launched one, not over when its launch returns."""
    return [
        sum(
            streams[other] == streams[op] and op_end_ns[other] > launch_end_ns[op]
            for other in range(op + 1)
        )
        for op in range(len(streams))
    ]


def covered_times(spans: Sequence[Span], others: Sequence[Span]) -> list[int]:
    """Moments of each span that lie in one of the others."""
    moments = {moment for start, end in others for moment in range(start, end)}
    return [len(moments.intersection(range(start, end))) for start, end in spans]


def called_operators(lanes: Sequence[int], spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Who calls each, -1 nobody, and its time in those it calls, -1 calls none; spans nest."""

    def holds(outer: int, inner: int) -> bool:
        return outer < inner and lanes[outer] == lanes[inner] and spans[outer][1] > spans[inner][0]

    rows = range(len(spans))
    caller = [([-1] + [other for other in rows if holds(other, row)])[-1] for row in rows]
    called = [
        [end - start for at, (start, end) in enumerate(spans) if caller[at] == row] for row in rows
    ]
    return [(caller[row], sum(called[row]) if called[row] else -1) for row in rows]


def outermost(caller: Sequence[int], works: Sequence[bool]) -> list[bool]:
    """Rows that work, and none of those around them does."""
    chosen: list[bool] = []
    for row, does in enumerate(works):
        around = caller[row]
        while around >= 0 and not chosen[around]:
            around = caller[around]
        chosen.append(does and around < 0)
    return chosen


def scopes_open_at(lanes: Sequence[int], spans: Sequence[Span], lane: int, at: int) -> list[int]:
    """Rows of a lane's nested spans that are open at a moment, outermost first."""
    return [
        row
        for row, (own, (start, end)) in enumerate(zip(lanes, spans, strict=True))
        if own == lane and start <= at < end
    ]


def speaker(around: Sequence[int], is_operator: Sequence[bool], has_shapes: Sequence[bool]) -> int:
    """Of scopes around each other, outermost first: who speaks for work inside the last."""
    shaped = [row for row in around if has_shapes[row]]
    operators = [row for row in around if is_operator[row]]
    return (shaped or operators or list(around))[-1]


def heaviest_repeat(tokens: Sequence[int], weights: Sequence[int], period: int) -> int:
    """Weight of the heaviest stretch of two or more units that has this period throughout."""
    size = len(tokens)
    return max(
        (
            sum(weights[begin:end])
            for begin in range(size)
            for end in range(begin + 2 * period, size + 1)
            if all(tokens[at] == tokens[at - period] for at in range(begin + period, end))
        ),
        default=0,
    )


def cyclic_score(tokens: Sequence[int], unit: Sequence[int], costs: tuple[int, int, int]) -> int:
    """Best local alignment of tokens to the unit written out as often as could help."""
    match, mismatch, gap = costs
    pattern = list(unit) * (2 * len(tokens) + 2)
    above = [0] * (len(pattern) + 1)
    best = 0
    for token in tokens:
        row = [0]
        for place, own in enumerate(pattern):
            step = match if token == own else -mismatch
            row.append(max(0, above[place] + step, above[place + 1] - gap, row[place] - gap))
        best = max(best, *row)
        above = row
    return best


def inherited(parents: Sequence[int], own: Sequence[int], *, is_inner: bool) -> list[int]:
    """Each row's value from its chain of parents; 0 is none; the innermost or outermost wins."""
    found = []
    for row in range(len(own)):
        chain, at = [], row
        while at >= 0:
            chain.append(own[at])
            at = parents[at]
        held = [value for value in chain if value]
        found.append((held[0] if is_inner else held[-1]) if held else 0)
    return found

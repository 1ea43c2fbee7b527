"""Walks back over what nodes waited for, one node at a time, in plain Python."""

from __future__ import annotations

from foretrace.graph import Timeline

OWN, LAG, UNEXPLAINED, NOTHING_BEFORE = 0, 1, 2, 3
Piece = tuple[int, int, int, int, int]  # node, edge, what, begin, end


def binding_edge(timeline: Timeline, node: int) -> int:
    """The edge over which a node became ready last; -1 without predecessor."""
    graph = timeline.graph
    edges = range(int(graph.first_edge[node]), int(graph.first_edge[node + 1]))
    return max(edges, key=lambda edge: (_ready_ns(timeline, edge), -edge), default=-1)


def _ready_ns(timeline: Timeline, edge: int) -> int:
    graph = timeline.graph
    return int(timeline.end_ns[graph.predecessor[edge]]) + int(graph.lag_ns[edge])


def walk_back(timeline: Timeline, node: int, begin_ns: int, until_ns: int) -> list[Piece]:
    """Pieces from `until_ns` back to `begin_ns`, latest first."""
    found: list[Piece] = []
    while until_ns > begin_ns:
        edge = binding_edge(timeline, node)
        if edge < 0:
            return [*found, (node, -1, NOTHING_BEFORE, begin_ns, until_ns)]
        before = int(timeline.graph.predecessor[edge])
        for piece in _over(timeline, node, edge):
            low = max(piece[3], begin_ns)
            if low < until_ns:
                found.append((piece[0], edge, piece[2], low, until_ns))
                until_ns = low
        start_ns = max(int(timeline.start_ns[before]), begin_ns)
        if start_ns < until_ns:
            found.append((before, edge, OWN, start_ns, until_ns))
            until_ns = start_ns
        node = before
    return found


def _over(timeline: Timeline, node: int, edge: int) -> list[Piece]:
    """What lies between a node and the end of its predecessor: unexplained time, then the lag."""
    graph = timeline.graph
    ended_ns = int(timeline.end_ns[graph.predecessor[edge]])
    ready_ns = ended_ns + max(int(graph.lag_ns[edge]), 0)
    return [(node, edge, UNEXPLAINED, ready_ns, -1), (node, edge, LAG, ended_ns, -1)]


def way(timeline: Timeline, node: int) -> list[int]:
    """A node, what it waited for last, and so on."""
    found = [node]
    while (edge := binding_edge(timeline, found[-1])) >= 0:
        found.append(int(timeline.graph.predecessor[edge]))
    return found


def ways_apart(timeline: Timeline, one: int, other: int) -> tuple[list[int], list[int]]:
    """Both nodes' ways up to, and without, the first node on both."""
    ways = way(timeline, one), way(timeline, other)
    shared = set(ways[0]) & set(ways[1])
    first, second = ([node for node in each if node not in shared] for each in ways)
    return first, second

"""The way to a node's end, and slack, by their definitions."""

from __future__ import annotations

from foretrace.graph import ExecutionGraph, Timeline
from foretrace.simulate import NO_EDGE, NO_LIMIT_NS
from tests.oracles import static


def way(timeline: Timeline, end_node: int, begin_ns: int) -> tuple[list[int], list[int]]:
    """Nodes and edges of the way, first to last."""
    graph = timeline.graph
    nodes, edges = [end_node], [NO_EDGE]
    while timeline.start_ns[nodes[0]] > begin_ns:
        into = range(int(graph.first_edge[nodes[0]]), int(graph.first_edge[nodes[0] + 1]))
        ready = {
            edge: int(timeline.end_ns[graph.predecessor[edge]]) + int(graph.lag_ns[edge])
            for edge in into
        }
        held = not ready or max(ready.values()) < timeline.start_ns[nodes[0]]
        if not ready or (held and not timeline.is_measured):
            break
        edges[0] = max(ready, key=lambda edge: (ready[edge], -edge))
        nodes.insert(0, int(graph.predecessor[edges[0]]))
        edges.insert(0, NO_EDGE)
    return nodes, edges


def slack(graph: ExecutionGraph, due: list[int], due_ns: int, most_ns: int) -> list[int]:
    """By how much each duration can grow, tried ns by ns up to `most_ns`."""
    found = []
    for node in range(graph.num_nodes):
        grown_ns = graph.measured_ns.copy()
        for more_ns in range(most_ns + 1):
            grown_ns[node] = graph.measured_ns[node] + more_ns
            _, ends = static.start_and_end(graph, grown_ns)
            if max(ends[each] for each in due) > due_ns:
                found.append(more_ns - 1)
                break
        else:
            found.append(NO_LIMIT_NS)
    return found

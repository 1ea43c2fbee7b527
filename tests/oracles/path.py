"""A walk back over what each node waited for, one moment at a time."""

from __future__ import annotations

from foretrace.base import UInt8s
from foretrace.graph import Timeline


def path_time(
    timeline: Timeline, label: UInt8s, *, num_labels: int, end_node: int, begin_ns: int
) -> list[int]:
    """Time by label from an end node back to a moment; lags last."""
    graph = timeline.graph
    spent = [0] * (num_labels + 1)
    label_at: dict[int, int] = {}  # moment -> label that the path has there
    node: int | None = end_node
    while node is not None:
        start, end = int(timeline.start_ns[node]), int(timeline.end_ns[node])
        label_at |= dict.fromkeys(range(start, end), int(label[node]))
        edges = range(int(graph.first_edge[node]), int(graph.first_edge[node + 1]))
        latest: int | None = None
        latest_ready = -1
        for edge in edges:
            before = int(graph.predecessor[edge])
            ready = int(timeline.end_ns[before]) + int(graph.lag_ns[edge])
            if ready > latest_ready:
                latest, latest_ready = before, ready
        waited_from = 0 if latest is None else int(timeline.end_ns[latest])
        label_at |= dict.fromkeys(range(waited_from, start), num_labels)
        node = latest
    for moment in range(begin_ns, int(timeline.end_ns[end_node])):
        spent[label_at[moment]] += 1
    return spent

"""Where nodes stand: one column per thread or stream, time downwards.

A node stands below all it waits for and below its lane's last one, so that no edge points up and
no two nodes meet. Order inside a column is the graph's, which needs no search for few crossings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s
from foretrace.exchange.drawing.subgraph import Subgraph
from foretrace.graph import NO_LANE


@dataclass(frozen=True)
class Places:
    """A column and a row of each node."""

    column: Int64s  # int64[nodes]
    row: Int64s  # int64[nodes]
    titles: tuple[str, ...]  # of the columns


def places(part: Subgraph) -> Places:
    """Where to draw each node."""
    graph = part.graph
    lane = graph.lane[part.node]
    lanes = sorted(
        {int(one) for one in lane.tolist() if one != NO_LANE},
        key=lambda one: (graph.lanes[one].rank, graph.lanes[one].is_device, one),
    )
    column_of = {one: at for at, one in enumerate(lanes)}
    titles = [graph.lanes[one].label for one in lanes]
    if (lane == NO_LANE).any():  # meetings of collectives belong to no lane
        column_of[NO_LANE] = len(titles)
        titles.append("all ranks")
    column = np.array([column_of[int(one)] for one in lane], np.int64)
    return Places(column, _rows(part, column, len(titles)), tuple(titles))


def _rows(part: Subgraph, column: Int64s, num_columns: int) -> Int64s:
    order = np.argsort(part.target, kind="stable")
    first = np.searchsorted(part.target[order], np.arange(len(part.node) + 1))
    row = np.zeros(len(part.node), np.int64)
    free = np.zeros(num_columns, np.int64)  # first row that is free, by column
    for node in range(len(part.node)):
        sources = part.source[order[first[node] : first[node + 1]]]
        above = int(row[sources].max()) + 1 if len(sources) else 0
        row[node] = max(above, int(free[column[node]]))
        free[column[node]] = row[node] + 1
    return row

"""`Arranged`: the graph of a job from recorded pieces."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from foretrace.base import Float64s, Int32s, Int64s
from foretrace.graph import ExecutionGraph


@dataclass(frozen=True)
class Arranged:
    """A graph whose nodes are recorded nodes at new places.

    `graph.measured_ns` holds what the recorded nodes took, times the scale of their piece; 0 for
    what was made. `source` leads back to the recording, so that everything known of a recorded
    node (its operator's shapes, its source of truth) is known of its copies.
    """

    graph: ExecutionGraph
    source: Int64s  # int64[nodes], node of the recording; NO_NODE of what was made, and of hubs
    source_collective: Int32s  # int32[collectives], of the recording; NO_COLLECTIVE of made ones
    scale: Float64s  # float64[nodes], of the piece that each node is in; 1 otherwise
    notes: tuple[str, ...] = field(default=())  # what was taken to be, and is not known


def unchanged(graph: ExecutionGraph) -> Arranged:
    """A recording's graph as it is: nothing was arranged anew."""
    return Arranged(
        graph=graph,
        source=np.arange(graph.num_nodes, dtype=np.int64),
        source_collective=np.arange(len(graph.collectives), dtype=np.int32),
        scale=np.ones(graph.num_nodes),
    )

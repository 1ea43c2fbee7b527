"""An order of nodes in which every edge points forward, or what waits for itself."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import CircleError
from foretrace.graph.assembly import Edges, node_order
from foretrace.graph.nodes import EdgeKind


def test_a_circle_names_its_first_nodes_briefly() -> None:
    edges = Edges.of(EdgeKind.STREAM, np.array([0, 1, 2]), np.array([1, 2, 1]))
    names = ("begin", "void kernel<" + 2_000 * "Policy, " + ">", "end")

    with pytest.raises(CircleError, match="2 of 3 nodes wait for each other") as refused:
        node_order(3, edges, names, np.arange(3, dtype=np.int32))

    assert "'end'" in str(refused.value)
    assert len(str(refused.value)) < 400
    assert refused.value.stuck in str(refused.value)

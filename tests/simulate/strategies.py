"""Random graphs and durations for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from tests.graphs import Edge, GraphBuilder

_KINDS = (NodeKind.HOST_SEGMENT, NodeKind.LAUNCH, NodeKind.KERNEL, NodeKind.MEMCPY)


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 30, max_ns: int = 50) -> ExecutionGraph:
    """Any graph of a few nodes: each waits for any earlier ones, with any small lags."""
    build = GraphBuilder()
    for node in range(draw(st.integers(0, max_nodes))):
        before = draw(st.lists(st.integers(0, node - 1), max_size=4)) if node else []
        kind = draw(st.sampled_from(_KINDS))
        rank = draw(st.integers(0, 1))
        is_device = kind in {NodeKind.KERNEL, NodeKind.MEMCPY}
        build.add(
            kind,
            rank=rank,
            lane=f"{'stream' if is_device else 'thread'} {draw(st.integers(0, 2))}",
            takes_ns=draw(st.integers(0, max_ns)),
            after=[
                Edge(each, EdgeKind.HOST_ORDER, draw(st.integers(0, max_ns))) for each in before
            ],
        )
    return build.graph()

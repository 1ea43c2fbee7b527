"""`GraphBuilder`: execution graphs from readable rows, for tests.

    build = GraphBuilder()
    launch = build.add(NodeKind.LAUNCH, lane="thread 1", takes_ns=10)
    after = [Edge(launch, EdgeKind.LAUNCH, lag_ns=5)]
    kernel = build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=100, after=after)
    timeline = simulate(build.graph())

Rows are added in topological order; nothing is implied: a node waits for what `after` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s
from foretrace.graph import (
    NO_COLLECTIVE,
    NO_LANE,
    NO_LAYER,
    NO_MICROBATCH,
    NO_STEP,
    Collective,
    Collectives,
    EdgeConstant,
    EdgeKind,
    ExecutionGraph,
    Lane,
    NodeKind,
    Part,
    Phase,
    Recording,
    Timeline,
)


@dataclass(frozen=True)
class Edge:
    """A predecessor, why it is waited for, and how long after its end."""

    node: int
    kind: EdgeKind = EdgeKind.HOST_ORDER
    lag_ns: int = 0


@dataclass(frozen=True)
class Block:
    """Part, phase, layer and microbatch of a node."""

    part: Part = Part.UNKNOWN
    phase: Phase = Phase.UNKNOWN
    layer: int = NO_LAYER
    microbatch: int = NO_MICROBATCH


@dataclass(frozen=True)
class _Row:
    kind: NodeKind
    rank: int
    lane: int
    name: int
    step: int
    collective: int
    takes_ns: int
    after: tuple[Edge, ...]
    block: Block
    operator: tuple[int, int]


class GraphBuilder:
    """Collects rows and makes a graph of them."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._lanes: dict[tuple[int, str], int] = {}
        self._names: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._collectives: list[Collective] = []

    def __len__(self) -> int:
        """Nodes so far."""
        return len(self._rows)

    def add(
        self,
        kind: NodeKind,
        *,
        rank: int = 0,
        lane: str | None = "thread 1",
        name: str | None = None,
        takes_ns: int = 0,
        after: Iterable[int | Edge] = (),
        step: str | None = None,
        collective: int = NO_COLLECTIVE,
        block: Block = Block(),
        operator: str = "",
        shapes: str = "",
    ) -> int:
        """Add one node and return its number.

        A lane is "thread NUMBER" or "stream NUMBER"; None is for hubs and ghosts.
        """
        edges = tuple(Edge(each) if isinstance(each, int) else each for each in after)
        self._rows.append(
            _Row(
                kind=kind,
                rank=rank if lane is not None else -1,
                lane=(
                    NO_LANE
                    if lane is None
                    else self._lanes.setdefault((rank, lane), len(self._lanes))
                ),
                name=self._position(name or kind.name.lower()),
                step=NO_STEP if step is None else self._steps.setdefault(step, len(self._steps)),
                collective=collective,
                takes_ns=takes_ns,
                after=edges,
                block=block,
                operator=(self._position(operator), self._position(shapes)),
            )
        )
        return len(self._rows) - 1

    def _position(self, text: str) -> int:
        return self._names.setdefault(text, len(self._names)) if text else -1

    def collective(
        self,
        after_by_rank: Mapping[int, Iterable[int | Edge]],
        *,
        transfer_ns: int | Mapping[int, int],
        lane: str = "stream 20",
        name: str = "allreduce",
        group: str = "world",
        step: str | None = None,
        is_transfer_estimated: bool = False,
        also_after: Iterable[Edge] = (),
    ) -> dict[int, int]:
        """Add arrives, a hub and finishes; returns each rank's finish node.

        The hub waits for all arrives and for `also_after`.
        """
        number = len(self._collectives)
        ranks = tuple(after_by_rank)
        position = sum(each.group == group for each in self._collectives)
        self._collectives.append(
            Collective(
                name=name,
                group=group,
                ranks=ranks,
                recorded_ranks=ranks,
                position=position,
                num_bytes=-1,
                dtype="",
                is_transfer_estimated=is_transfer_estimated,
            )
        )
        arrive_by_rank = {
            rank: self.add(
                NodeKind.ARRIVE,
                rank=rank,
                lane=lane,
                name=name,
                after=after,
                step=step,
                collective=number,
            )
            for rank, after in after_by_rank.items()
        }
        hub = self.add(
            NodeKind.HUB,
            lane=None,
            after=[
                *(Edge(node, EdgeKind.ARRIVAL) for node in arrive_by_rank.values()),
                *also_after,
            ],
            collective=number,
        )
        return {
            rank: self.add(
                NodeKind.FINISH,
                rank=rank,
                lane=lane,
                name=name,
                takes_ns=transfer_ns if isinstance(transfer_ns, int) else transfer_ns[rank],
                after=[Edge(hub, EdgeKind.TRANSFER)],
                step=step,
                collective=number,
            )
            for rank in arrive_by_rank
        }

    def graph(self, *constants: tuple[EdgeKind, int]) -> ExecutionGraph:
        """The graph of all rows added so far; states these lags as its constants."""
        rows = self._rows
        counts = [len(row.after) for row in rows]
        edges = [edge for row in rows for edge in row.after]
        lanes = tuple(
            Lane(
                rank=rank,
                is_device=label.startswith("stream"),
                process=-1 if label.startswith("stream") else 1000 + rank,
                device=0 if label.startswith("stream") else -1,
                number=int(label.split()[1]),
            )
            for rank, label in self._lanes
        )
        return ExecutionGraph(
            kind=np.array([row.kind for row in rows], dtype=np.uint8),
            rank=np.array([row.rank for row in rows], dtype=np.int32),
            lane=np.array([row.lane for row in rows], dtype=np.int32),
            name=np.array([row.name for row in rows], dtype=np.int32),
            signature=np.full(len(rows), -1, dtype=np.int32),
            step=np.array([row.step for row in rows], dtype=np.int32),
            operator=np.array([row.operator[0] for row in rows], dtype=np.int32),
            operator_signature=np.array([row.operator[1] for row in rows], dtype=np.int32),
            part=np.array([row.block.part for row in rows], dtype=np.uint8),
            phase=np.array([row.block.phase for row in rows], dtype=np.uint8),
            layer=np.array([row.block.layer for row in rows], dtype=np.int16),
            microbatch=np.array([row.block.microbatch for row in rows], dtype=np.int16),
            collective=np.array([row.collective for row in rows], dtype=np.int32),
            measured_ns=np.array([row.takes_ns for row in rows], dtype=np.int64),
            inflation=np.ones(len(rows), dtype=np.float32),
            first_edge=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            predecessor=np.array([edge.node for edge in edges], dtype=np.int32),
            edge_kind=np.array([edge.kind for edge in edges], dtype=np.uint8),
            lag_ns=np.array([edge.lag_ns for edge in edges], dtype=np.int32),
            names=tuple(self._names),
            lanes=lanes,
            step_names=tuple(self._steps),
            collectives=Collectives.of(self._collectives),
            constants=tuple(
                EdgeConstant(kind=kind, lag_ns=lag_ns, num_samples=1, low_ns=lag_ns, high_ns=lag_ns)
                for kind, lag_ns in constants
            ),
        )


def timeline_of(
    graph: ExecutionGraph, start_ns: Iterable[int], *, end_ns: Iterable[int] | None = None
) -> Timeline:
    """A measured timeline with these starts; ends follow from the measured durations."""
    starts = np.array(list(start_ns), dtype=np.int64)
    ends = starts + graph.measured_ns if end_ns is None else np.array(list(end_ns), dtype=np.int64)
    return Timeline(graph=graph, start_ns=starts, end_ns=ends, is_measured=True)


def recording_of(
    graph: ExecutionGraph, measured: Timeline, *, recorded_ns: Int64s | None = None
) -> Recording:
    """A recording of this graph, without clocks and findings.

    Unless given, recorded durations are those of the timeline, from arrival on for a finish.
    """
    if recorded_ns is None:
        recorded_ns = measured.end_ns - measured.start_ns
        arrived_ns = {
            (graph.collective[node], graph.rank[node]): measured.start_ns[node]
            for node in graph.nodes_of(NodeKind.ARRIVE)
        }
        for node in graph.nodes_of(NodeKind.FINISH):
            begin_ns = arrived_ns[graph.collective[node], graph.rank[node]]
            recorded_ns[node] = measured.end_ns[node] - begin_ns
    return Recording(
        graph=graph,
        measured=Timeline(
            graph=graph, start_ns=measured.start_ns, end_ns=measured.end_ns, is_measured=True
        ),
        recorded_ns=recorded_ns,
        clocks=(),
        findings=(),
        unprofiled_step_ns={},
    )

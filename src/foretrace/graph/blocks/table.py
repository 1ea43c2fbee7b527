"""`Blocks`: one row per block of a graph, with its nodes and times added up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import Bools, Int32s, Int64s, UInt8s, numbered_rows
from foretrace.graph.graph import ExecutionGraph
from foretrace.graph.nodes import DEVICE_KINDS, NodeKind, Part, Phase

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Blocks:
    """Blocks of all ranks and steps; rows by rank, step, then the order in which they begin.

    Work is what device operations, transfers of communications, and operators on the host do;
    host time is what threads spend on everything else.
    """

    step_names: tuple[str, ...]
    names: tuple[str, ...]
    rank: Int32s  # int32[rows]
    step: Int32s  # int32[rows], position in `step_names`; NO_STEP
    part: UInt8s  # uint8[rows], Part
    phase: UInt8s  # uint8[rows], Phase
    layer: Int64s  # int64[rows], NO_LAYER
    microbatch: Int64s  # int64[rows], NO_MICROBATCH
    num_nodes: Int64s  # int64[rows]
    work_ns: Int64s  # int64[rows]
    host_ns: Int64s  # int64[rows]
    first_operator: Int32s  # int32[rows], position in `names`, of the first work; -1 none

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rank)

    @property
    def share_assigned(self) -> float:
        """Of all work, the share whose part and phase are known; 0 to 1."""
        is_known = (self.part != Part.UNKNOWN) & (self.phase != Phase.UNKNOWN)
        return float(self.work_ns[is_known].sum() / max(int(self.work_ns.sum()), 1))

    def to_frame(self) -> pl.DataFrame:
        """One row per block."""
        import polars as pl  # on demand: it takes longer to import than most blocks to add up

        return pl.DataFrame(self._rows(), infer_schema_length=None)

    def as_json(self) -> dict[str, object]:
        """Everything; times in ns, -1 for no layer, microbatch or step."""
        return {"share_assigned": self.share_assigned, "blocks": self._rows()}

    def _rows(self) -> list[dict[str, object]]:
        columns = zip(
            self.rank.tolist(),
            self.step.tolist(),
            self.part.tolist(),
            self.phase.tolist(),
            self.layer.tolist(),
            self.microbatch.tolist(),
            self.num_nodes.tolist(),
            self.work_ns.tolist(),
            self.host_ns.tolist(),
            self.first_operator.tolist(),
            strict=True,
        )
        return [
            {
                "rank": rank,
                "step": self.step_names[step] if step >= 0 else "",
                "part": Part(part).name.lower(),
                "phase": Phase(phase).name.lower(),
                "layer": layer,
                "microbatch": microbatch,
                "num_nodes": num_nodes,
                "work_ns": work_ns,
                "host_ns": host_ns,
                "first_operator": self.names[first] if first >= 0 else "",
            }
            for (
                rank, step, part, phase, layer, microbatch, num_nodes, work_ns, host_ns, first
            ) in columns
        ]  # fmt: skip


def blocks_of(graph: ExecutionGraph) -> Blocks:
    """The graph's blocks; nodes of no rank (hubs, ghosts) are left out."""
    node = np.flatnonzero(graph.rank >= 0)
    columns = (graph.rank, graph.step, graph.part, graph.phase, graph.layer, graph.microbatch)
    if not len(node):
        return _empty(graph)
    key = numbered_rows([column[node].astype(np.int64) for column in columns])
    size = int(key.max()) + 1
    first = np.full(size, len(node), np.int64)
    np.minimum.at(first, key, np.arange(len(node)))
    order = np.lexsort((first, graph.step[node[first]], graph.rank[node[first]]))
    place = np.empty(size, np.int64)
    place[order] = np.arange(size)
    row = place[key]
    is_work = _is_work(graph)[node]
    is_host = graph.is_host[node] & ~is_work
    duration_ns = graph.measured_ns[node]
    head = node[first[order]]
    return Blocks(
        step_names=graph.step_names,
        names=graph.names,
        rank=graph.rank[head],
        step=graph.step[head],
        part=graph.part[head],
        phase=graph.phase[head],
        layer=graph.layer[head].astype(np.int64),
        microbatch=graph.microbatch[head].astype(np.int64),
        num_nodes=np.bincount(row, minlength=size).astype(np.int64),
        work_ns=_summed(row[is_work], duration_ns[is_work], size),
        host_ns=_summed(row[is_host], duration_ns[is_host], size),
        first_operator=_first_operators(graph, node[is_work], row[is_work], size),
    )


def _is_work(graph: ExecutionGraph) -> Bools:
    kinds = (*DEVICE_KINDS, NodeKind.FINISH, NodeKind.OPERATOR)
    is_work: Bools = graph.is_of(*kinds)
    return is_work


def _summed(row: Int64s, duration_ns: Int64s, size: int) -> Int64s:
    total = np.zeros(size, np.int64)
    np.add.at(total, row, duration_ns)
    return total


def _first_operators(graph: ExecutionGraph, node: Int64s, row: Int64s, size: int) -> Int32s:
    """Operator of each row's first work, else its own name."""
    found = np.full(size, -1, np.int32)
    called = np.where(graph.operator[node] >= 0, graph.operator[node], graph.name[node])
    found[row[::-1]] = called[::-1]
    return found


def _empty(graph: ExecutionGraph) -> Blocks:
    none = np.zeros(0, np.int64)
    short, byte = none.astype(np.int32), none.astype(np.uint8)
    return Blocks(
        graph.step_names, graph.names, short, short, byte, byte, none, none, none, none, none, short
    )

"""Nodes and edges while they are being collected, before edges become node numbers.

A rule names the ends of its edges in *places*: items first, then device operations, as
`Places` counts them. An edge *into* an operation that is a communication ends at its arrival;
an edge *out of* one begins at its finish. `assembly` knows which node that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretrace.base import Int64s, Integers, UInt8s
from foretrace.graph.nodes import NO_LANE, NODE_COLUMNS, EdgeKind, NodeColumn, NodeKind

_COLUMNS: Mapping[str, NodeColumn] = {
    **NODE_COLUMNS,
    "recorded_ns": NodeColumn(np.int64, 0),
    "end_ns": NodeColumn(np.int64, 0),
    # Where on the host the work is done or asked for, on the raw clock; lane -1: nowhere.
    "host_lane": NodeColumn(np.int32, NO_LANE),
    "host_ns": NodeColumn(np.int64, 0),
}


@dataclass(frozen=True)
class DraftNodes:
    """Columns of all nodes, in the order they were added."""

    columns: Mapping[str, NDArray[np.generic]]

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.columns["kind"])


class NodeCollector:
    """Takes nodes in chunks; says which numbers they got."""

    def __init__(self) -> None:
        self._chunks: list[dict[str, NDArray[np.generic]]] = []
        self._count = 0

    def add(self, kind: NodeKind | NDArray[np.uint8], size: int, **columns: ArrayLike) -> Int64s:
        """Add `size` nodes; columns left out take their neutral value. Returns node numbers.

        `end_ns` is the measured end on the common clock, `measured_ns` the work before it;
        `recorded_ns` is taken from `measured_ns` if left out.
        """
        columns = {"kind": kind, **columns}
        columns.setdefault("recorded_ns", columns.get("measured_ns", 0))
        self._chunks.append(
            {
                name: np.broadcast_to(
                    np.asarray(columns.get(name, column.neutral), column.dtype), (size,)
                )
                for name, column in _COLUMNS.items()
            }
        )
        self._count += size
        return np.arange(self._count - size, self._count, dtype=np.int64)

    def collected(self) -> DraftNodes:
        """All nodes added so far."""
        return DraftNodes(
            {key: np.concatenate([chunk[key] for chunk in self._chunks]) for key in _COLUMNS}
        )


@dataclass(frozen=True)
class Edges:
    """Edges of any kinds; places of their two ends."""

    source: Int64s  # int64[edges]
    target: Int64s  # int64[edges]
    kind: UInt8s  # uint8[edges], EdgeKind

    def __len__(self) -> int:
        """Number of edges."""
        return len(self.source)

    @staticmethod
    def of(kind: EdgeKind, source: Integers, target: Integers) -> Edges:
        """Edges of one kind."""
        return Edges(
            np.asarray(source, np.int64),
            np.asarray(target, np.int64),
            np.full(len(source), kind, np.uint8),
        )

    @staticmethod
    def joined(parts: Sequence[Edges]) -> Edges:
        """All edges of some lists, in order."""
        return Edges(
            np.concatenate([np.zeros(0, np.int64), *(part.source for part in parts)]),
            np.concatenate([np.zeros(0, np.int64), *(part.target for part in parts)]),
            np.concatenate([np.zeros(0, np.uint8), *(part.kind for part in parts)]),
        )


@dataclass(frozen=True)
class Places:
    """How places are numbered: items, then operations, then what rules add."""

    num_items: int
    num_ops: int

    def op(self, index: Integers) -> Int64s:
        """Places of device operations."""
        return np.asarray(index, np.int64) + self.num_items

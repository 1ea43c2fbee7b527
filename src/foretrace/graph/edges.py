"""Edge lists between rows of `Operations`, before they become node numbers.

A rule names the ends of its edges in *places*: items first, then device operations, as
`Places` counts them. An edge *into* an operation that is a communication ends at its arrival;
an edge *out of* one begins at its finish. `assembly` knows which node that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s, Integers, UInt8s
from foretrace.graph.nodes import EdgeKind


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

"""Names of nodes: one table of texts for all ranks of a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrace.base import Int32s, used_positions
from foretrace.trace import Texts

# Names of nodes that no event of a trace names; they stand first in every graph's names.
BEFORE_RECORDING = "work from before the recording"
GRAPH_WORK = "unrecorded kernels of a CUDA graph"
DEVICE_WORK = "unrecorded device work"
UNRECORDED = frozenset({BEFORE_RECORDING, GRAPH_WORK, DEVICE_WORK})
OWN_NAMES = (
    "host",
    "thread wait",
    "rank start",
    "step begin",
    "step end",
    "ghost",
    "copy wait",
    BEFORE_RECORDING,
    GRAPH_WORK,
    DEVICE_WORK,
)


class NamePool:
    """A graph's table of names, each text once; filled while its nodes are made."""

    def __init__(self, names: Sequence[str] = OWN_NAMES) -> None:
        """Begin with some; one that stands there twice keeps both places."""
        self._names = list(names)
        self._position: dict[str, int] = {}
        for at, name in enumerate(names):
            self._position.setdefault(name, at)

    def of(self, name: str) -> int:
        """Where a name stands; added if it is new."""
        if name not in self._position:
            self._position[name] = len(self._names)
            self._names.append(name)
        return self._position[name]

    def of_column(self, texts: Sequence[str] | Texts, column: Int32s) -> Int32s:
        """Positions of the texts in a column; -1 stays -1."""
        table = np.full(len(texts) + 1, -1, np.int32)
        for text in used_positions(column, len(texts)).tolist():
            table[text] = self.of(texts[text])
        return table[column]

    def name(self, position: int) -> str:
        """The name that stands there."""
        return self._names[position]

    def names(self) -> tuple[str, ...]:
        """All names so far."""
        return tuple(self._names)

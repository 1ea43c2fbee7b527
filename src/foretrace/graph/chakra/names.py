"""Names of all files in one table."""

from __future__ import annotations

import numpy as np

from foretrace.base import Int32s, Int64s
from foretrace.graph.operations import OWN_NAMES
from foretrace.trace import NO_TEXT, ChakraNodes

NO_NAME = -1


class NamePool:
    """Names, each once, those that every graph has first."""

    def __init__(self) -> None:
        self._position: dict[str, int] = {name: at for at, name in enumerate(OWN_NAMES)}

    def of(self, name: str) -> int:
        """Position of a name, added if it is new."""
        return self._position.setdefault(name, len(self._position))

    def of_column(self, nodes: ChakraNodes, column: Int32s) -> Int64s:
        """Positions of the texts in a column; NO_NAME where there is none."""
        place = np.full(len(nodes.texts) + 1, NO_NAME, np.int64)
        used = np.unique(column[column != NO_TEXT])
        place[used] = [self.of(nodes.texts.text_of(text)) for text in used.tolist()]
        found: Int64s = place[column]
        return found

    def names(self) -> tuple[str, ...]:
        """All names so far."""
        return tuple(self._position)

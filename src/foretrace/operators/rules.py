"""`Rule`: which family and class a kernel is of, by texts in its name; all are in `kernels.txt`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foretrace.operators.classes import OperatorClass

HOST_COPY = "memory copy to or from host"  # the family that the link to the host bounds


@dataclass(frozen=True)
class Rule:
    """Kernels whose name holds one of these texts belong to this family.

    Names are compared in lower case; `*` in a text stands for anything.
    """

    family: str
    kind: OperatorClass
    texts: tuple[str, ...]

    def holds(self, lowered: str) -> bool:
        """Whether one of the texts is in a lower-case name."""
        return any(_has(lowered, text) for text in self.texts)


def _has(lowered: str, text: str) -> bool:
    """Whether the parts of `text` between `*` stand in the name, one after the other."""
    at = 0
    for part in text.split("*"):
        found = lowered.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _rules(text: str) -> Iterator[Rule]:
    for line in text.splitlines():
        if line and not line.startswith("#"):
            kind, family, texts = line.split(" | ")
            yield Rule(family, OperatorClass(kind), tuple(texts.split("; ")))


RULES = tuple(_rules(Path(__file__).with_name("kernels.txt").read_text(encoding="utf-8")))

"""`Rule`: which family and class a kernel belongs to, by texts in its name."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.operators.classes import OperatorClass


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


def rule(family: str, kind: OperatorClass, *texts: str) -> Rule:
    """A rule, written in one line."""
    return Rule(family, kind, texts)


def _has(lowered: str, text: str) -> bool:
    """Whether the parts of `text` between `*` stand in the name, one after the other."""
    at = 0
    for part in text.split("*"):
        found = lowered.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True

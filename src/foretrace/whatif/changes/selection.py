"""`Selection`: which nodes of a graph a change is about."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.graph import Part, Phase


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Nodes that fit everything stated; what is left out fits all.

    Chosen is compute: kernels, copies and fills, and operators where a host alone computes. Names
    and families choose transfers too. Names and families are patterns (`*`, `?`, `[...]`) in which
    case does not matter.
    """

    kernels: str | None = None  # pattern of device operations' names: "*flash*"
    operators: str | None = None  # pattern of the framework operators' names: "aten::addmm"
    # Class or family as `operators` calls it: "gemm", "flash attention"; of a transfer also its
    # collective, "allreduce", or "collective" for all of them.
    family: str | None = None
    part: Part | None = None
    phase: Phase | None = None
    layers: tuple[int, ...] | None = None
    ranks: tuple[int, ...] | None = None
    with_host: bool = False  # host time too: calls, and the time between them

    def __str__(self) -> str:
        """In words: `gemm kernels of layer 3, forward, on rank 1`."""
        what = self.family or self.kernels or self.operators or "all work"
        words = [what]
        if self.part is not None:
            words.append(self.part.name.lower())
        if self.layers is not None:
            words.append("layers " + ",".join(map(str, self.layers)))
        if self.phase is not None:
            words.append(self.phase.name.lower())
        if self.ranks is not None:
            words.append("rank " + ",".join(map(str, self.ranks)))
        return " ".join(words)

"""`Change`: work or waiting that takes a stated factor of its time, and how a person writes one.

    gemm=0.8                       every matrix product takes 80% of its time
    allreduce=0                    all-reduces are free
    gemm|attention ranks:3=1.2
    kernels:*flash_fwd* layers:0-9=0.5
    edges:launch=0.5               the latency from launch to kernel halves
    edges:wake=removed             the host does not wait for the device

Before the factor stands a selection, as edits and filters take it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from foretrace.analyze.selection import Selection, selection_of
from foretrace.base import ScenarioError, is_number

REMOVED = "removed"


@dataclass(frozen=True)
class Change:
    """What is selected takes `factor` times as long (0.8: 20% less), or is removed."""

    select: Selection
    factor: float  # 0 or more
    is_removed: bool = False  # edges that no longer hold; `factor` has no meaning then

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not (math.isfinite(self.factor) and self.factor >= 0):
            raise ScenarioError(
                f"a change needs a factor of 0 or more, got {str(self)!r}: write for example "
                '"gemm=0.8".'
            )
        if self.on_edges and replace(self.select, edges=None) != Selection():
            raise ScenarioError(
                f"change {str(self)!r}: edges are chosen by their kind alone, leave the other "
                "words out."
            )
        if self.is_removed and not self.on_edges:
            raise ScenarioError(
                f"change {str(self)!r}: only edges can be removed; give work a factor of 0."
            )

    @property
    def on_edges(self) -> bool:
        """Whether it is about waiting between nodes, not about work."""
        return self.select.edges is not None

    def __str__(self) -> str:
        """As it is written: `gemm ranks:3=1.2`."""
        return f"{self.select.written}={REMOVED if self.is_removed else f'{self.factor:g}'}"


def read_change(text: str) -> Change:
    """A change as a person writes it, see above.

    Raises:
        ScenarioError: if it has no factor, or a word of it means nothing.
    """
    selection, equals, factor = (part.strip() for part in text.rpartition("="))
    if not equals or not (factor == REMOVED or is_number(factor)):
        raise ScenarioError(
            f"change {text!r} does not end with a factor: expected `{text.strip()}=0.8` for 20% "
            f"less time, `=0` for none, or `={REMOVED}` of edges."
        )
    is_removed = factor == REMOVED
    return Change(selection_of(selection), 0.0 if is_removed else float(factor), is_removed)

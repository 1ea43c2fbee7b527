"""Models of which only totals are published: no layer of them is known, so none is invented."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrace.workload.models.entries import Entry
from foretrace.workload.models.published import Published


@dataclass(frozen=True)
class TotalsOnly:
    """Totals, for estimates that need no more."""

    name: str
    title: str
    parameters: float
    active_parameters: float | None  # that a token passes through
    num_experts: int | None
    flops_per_sample: float | None  # forward
    published: Published
    entries: tuple[Entry, ...]
    parent: str
    path: Path | None

    kind = "totals"

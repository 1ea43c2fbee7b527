"""What was published about a model as a whole: totals that a definition must agree with.

Of some models nothing else is published (`TotalsOnly`): no layer is known, so none is invented.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrace.workload.models.entries import Entries, Entry, EntryField, EntryKind, rounding

PUBLISHED_FIELDS = (
    EntryField("parameters", EntryKind.AMOUNT, "all parameters"),
    EntryField(
        "active_parameters", EntryKind.AMOUNT, "those a token passes through, embeddings included"
    ),
)
# A published total that counts something else is kept with the reason.
DIFFERS = "differs: "


@dataclass(frozen=True)
class Published:
    """Published totals; `None` where there is none."""

    parameters: Entry | None
    active_parameters: Entry | None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Those that there are."""
        return tuple(each for each in (self.parameters, self.active_parameters) if each)


def read_published(entries: Entries) -> Published:
    """The totals that a file states."""
    return Published(entries.by_key.get("parameters"), entries.by_key.get("active_parameters"))


def agrees(entry: Entry, counted: float) -> bool:
    """Whether a count rounds to the published amount, at its number of digits."""
    return abs(counted - entry.amount) <= rounding(entry.text)


def stated_difference(entry: Entry) -> str:
    """Why a published amount is not what the definition adds up to; "" if it should be."""
    return entry.note.removeprefix(DIFFERS) if entry.note.startswith(DIFFERS) else ""


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

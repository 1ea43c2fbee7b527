"""`LinksTried`: the best plan under one figure of a machine's links, and what these cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrace.answer import Column, Plain, Table, Unit


@dataclass(frozen=True)
class LinksTried(Plain):
    """One value of a figure."""

    figure: str  # "network.region.oversubscription"
    value: str
    links_per_hour: float  # behind the chips of the best plan
    step_ns: int
    price: float  # of a million tokens, chips and links
    best: str
    gap: float | None


def links_table(rows: Sequence[LinksTried]) -> Table:
    """A row for each value."""
    figure = rows[0].figure if rows else ""
    return Table.of(
        "links",
        rows,
        Column("value", unit=Unit.WORD),
        Column("links_per_hour", "links an hour", Unit.NUMBER),
        Column("step_ns", "step ms", Unit.MS),
        Column("price", "a million tokens", Unit.NUMBER),
        Column("gap", unit=Unit.SHARE),
        Column("best", unit=Unit.WORD),
        title=f"the best plan by {figure}; a million tokens: chips and links",
    )

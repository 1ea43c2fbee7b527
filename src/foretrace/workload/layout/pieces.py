"""`Pieces`: what every stage launches, template after template, and what waits for what between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from foretrace.base import check_fits
from foretrace.graph import NO_MICROBATCH
from foretrace.workload.layout.tables import NOTHING
from foretrace.workload.layout.template import Template

# From items to a timed and explained step, measured: 3.7 GB for 2.1 million.
_BYTES_PER_ITEM = 1_800
_FIRST_CHECK = 250_000  # items, and every doubling

Place = tuple[int, int]  # piece, and item inside its template


class Member(NamedTuple):
    """Whose work one of a template's woven stretches is."""

    microbatch: int = NO_MICROBATCH
    first_layer: int = 0


NOBODY = Member()


class Pieces:
    """Templates as they are launched, stage by stage; pieces of a stage stand together."""

    def __init__(self) -> None:
        """Hold none yet."""
        self.templates: list[Template] = []
        self.template: list[int] = []  # by piece
        self.stage: list[int] = []
        # Of the two woven stretches, or twice of the only one; plain numbers by piece, since many
        # small objects keep the garbage collector busy.
        self.microbatch: tuple[list[int], list[int]] = ([], [])
        self.first_layer: tuple[list[int], list[int]] = ([], [])
        self.transfer: list[int] = []  # number of a transfer between stages; NOTHING
        self.barriers: list[int] = []  # pieces that wait for all communication before them
        self.waits: list[int] = []  # in fours: piece and item waited for, piece and item that wait
        self._known: dict[int, int] = {}
        self._num_items = 0
        self._num_checked = _FIRST_CHECK

    def add(
        self,
        stage: int,
        template: Template,
        members: Sequence[Member] = (NOBODY,),
        *,
        transfer: int = NOTHING,
    ) -> int:
        """Launch a template; returns the piece's number."""
        number = self._known.get(id(template))
        if number is None:
            number = self._known[id(template)] = len(self.templates)
            self.templates.append(template)
        self._count(len(template))
        self.template.append(number)
        self.stage.append(stage)
        for place, member in enumerate((members[0], members[-1])):
            self.microbatch[place].append(member.microbatch)
            self.first_layer[place].append(member.first_layer)
        self.transfer.append(transfer)
        return len(self.template) - 1

    def _count(self, num_items: int) -> None:
        """Refuse a step that has become too large for the memory, while it is written."""
        self._num_items += num_items
        if self._num_items >= self._num_checked:
            check_fits(
                self._num_items * _BYTES_PER_ITEM,
                f"a step of more than {self._num_items:,} operations",
                advice="take fewer microbatches or layers, or more ranks",
            )
            self._num_checked *= 2

    def wait(self, target: Place, sources: Iterable[Place]) -> None:
        """Let an item wait for others; where all share a stream its order is enough."""
        for source in sources:
            self.waits += (*source, *target)

"""`Pieces`: what every stage launches, template after template, and what waits for what between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from foretrace.base import Int64s, check_fits
from foretrace.graph import NO_MICROBATCH
from foretrace.workload.layout.tables import NOTHING
from foretrace.workload.layout.template import Template

# From items to a timed and explained step, measured: 3.7 GB for 2.1 million.
_BYTES_PER_ITEM = 1_800
_BEHIND_TURNS = 1 << 40  # in the place of a turn: behind all of them

Place = tuple[int, int]  # piece, and item inside its template


class Member(NamedTuple):
    """Whose work one of a template's woven stretches is."""

    microbatch: int = NO_MICROBATCH
    first_layer: int = 0


NOBODY = Member()


@dataclass(frozen=True)
class PieceRows:
    """Columns of pieces."""

    turn: Int64s  # int64[pieces], rising with when a stage comes to them
    stage: Int64s  # int64[pieces]
    template: Int64s  # int64[pieces], number in the list of templates
    # int64[2, pieces], of the two woven stretches, or twice of the only one.
    microbatch: Int64s
    first_layer: Int64s
    transfer: Int64s  # int64[pieces], number of a transfer between stages; NOTHING


class Pieces:
    """Templates as they are launched; pieces of a stage stand together once `sorted`."""

    def __init__(self) -> None:
        """Hold none yet."""
        self.templates: list[Template] = []
        self._known: dict[int, int] = {}
        self._rows: list[PieceRows] = []
        self._single: list[tuple[int, ...]] = []
        self._count = self._num_items = 0
        self._barriers: list[int] = []
        self._waits: list[Int64s] = []
        self._single_waits: list[int] = []

    def number(self, template: Template) -> int:
        """Number of a template, among distinct ones."""
        found = self._known.get(id(template))
        if found is None:
            found = self._known[id(template)] = len(self.templates)
            self.templates.append(template)
        return found

    def add(
        self,
        stage: int,
        template: Template,
        members: Sequence[Member] = (NOBODY,),
        *,
        turn: int = _BEHIND_TURNS,
        is_barrier: bool = False,
    ) -> int:
        """Launch a template behind all that were of the turn; returns the piece's number.

        Args:
            stage: that launches it.
            template: of its work.
            members: whose work it is.
            turn: of the stage; behind all turns if left out.
            is_barrier: it waits for all communication before it.
        """
        one, other = members[0], members[-1]
        self._single.append(
            (
                *(turn, stage, self.number(template), one.microbatch, other.microbatch),
                *(one.first_layer, other.first_layer, NOTHING),
            )
        )
        self._count += 1
        if is_barrier:
            self._barriers.append(self._count - 1)
        return self._count - 1

    def add_rows(self, rows: PieceRows) -> Int64s:
        """Launch many; returns their numbers.

        Raises:
            OutputError: if the step has become too large for the memory.
        """
        self._flush()
        size_of = np.array([len(one) for one in self.templates], np.int64)
        self._num_items += int(size_of[rows.template].sum())
        check_fits(
            self._num_items * _BYTES_PER_ITEM,
            f"a step of more than {self._num_items:,} operations",
            advice="take fewer microbatches or layers, or more ranks",
        )
        self._rows.append(rows)
        self._count += len(rows.turn)
        return np.arange(self._count - len(rows.turn), self._count)

    def wait(self, target: Place, sources: Iterable[Place]) -> None:
        """Let an item wait for others; where all share a stream its order is enough."""
        for source in sources:
            self._single_waits += (*source, *target)

    def wait_rows(self, source: tuple[Int64s, Int64s], target: tuple[Int64s, Int64s]) -> None:
        """Let items wait for others one by one, as pieces and items inside their templates."""
        self._waits.append(np.stack([*source, *target], axis=1))

    def _flush(self) -> None:
        if self._single:
            columns = np.array(self._single, np.int64).T
            turn, stage, template, *_, transfer = columns
            self._rows.append(
                PieceRows(turn, stage, template, columns[3:5], columns[5:7], transfer)
            )
            self._single = []

    def sorted(self) -> SortedPieces:
        """All pieces by stage and turn, numbered anew."""
        self._flush()
        turn, stage, template, microbatch, first_layer, transfer = (
            np.concatenate([getattr(one, name) for one in self._rows], axis=-1)
            for name in PieceRows.__dataclass_fields__
        )
        order = np.lexsort((turn, stage))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        waits = np.concatenate(
            [*self._waits, np.array(self._single_waits, np.int64).reshape(-1, 4)]
        )
        waits[:, 0], waits[:, 2] = place[waits[:, 0]], place[waits[:, 2]]
        return SortedPieces(
            templates=tuple(self.templates),
            rows=PieceRows(
                turn[order],
                stage[order],
                template[order],
                microbatch[:, order],
                first_layer[:, order],
                transfer[order],
            ),
            waits=waits,
            barriers=place[np.array(self._barriers, np.int64)],
        )


@dataclass(frozen=True)
class SortedPieces:
    """Pieces by stage, in the order in which each launches them."""

    templates: tuple[Template, ...]
    rows: PieceRows
    waits: Int64s  # int64[waits, 4]: piece and item waited for, piece and item that wait
    barriers: Int64s  # int64[barriers], pieces that wait for all communication before them

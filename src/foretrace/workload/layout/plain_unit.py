"""`PlainUnits`: programs of units whose parts follow one another, made of parts and not of kernels.

Between its ends a unit is one run of operators, cut where parameters are gathered or held up and
where gradients are reduced. So only its first and its last part are looked into, once for each
part; what `coarsened` finds in all kernels of the unit (`template`) follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.workload.blocks.block import Block, Passes
from foretrace.workload.layout.part_times import PartTimes
from foretrace.workload.layout.piece_program import PieceProgram, Rows, Wait, program_of
from foretrace.workload.layout.tables import COMPUTE, NOTHING
from foretrace.workload.layout.template import IS_INSIDE, Template, outlined
from foretrace.workload.layout.units import Chunk, UnitTemplates
from foretrace.workload.schedule.schedule import Pass

_FIRST, _LAST = 1, 2  # of a unit's parts


@dataclass(frozen=True)
class _Outline:
    """A part at one or both ends of a unit: rows of its own, others' places counted from them."""

    rows: tuple[tuple[int, int, int], ...]  # stream, exchange, operators up to a segment's end
    edges: tuple[tuple[int, int], ...]
    entries: tuple[int, ...]
    exits: tuple[int, ...]


@dataclass(frozen=True)
class _Part:
    """A part's pass, as a unit sees it."""

    template: Template
    size: int  # items
    number: int  # in the table of parts
    num_operators: int
    is_merged: bool  # nothing outside holds its exchanges up, but for those it begins or ends with


class PlainUnits:
    """Makes programs of units of plans that share their blocks."""

    def __init__(self, times: PartTimes) -> None:
        """Look into no part yet.

        Args:
            times: of the parts.
        """
        self._times = times
        self._parts: dict[tuple[int, Pass], _Part] = {}  # of parts by their identity
        self._outlines: dict[tuple[int, int], _Outline | None] = {}

    def part(self, part: Passes, kind: Pass, templates: UnitTemplates) -> _Part:
        """A part in one pass."""
        found = self._parts.get((id(part), kind))
        if found is None:
            template = templates.part(part, kind)
            found = self._parts[id(part), kind] = _Part(
                template,
                size=len(template),
                number=self._times.number(template),
                num_operators=len(template.operators),
                is_merged=bool(IS_INSIDE[template.columns["stream"]].all()),
            )
        return found

    def outline(self, part: _Part, ends: int) -> _Outline | None:
        """A part at these ends of a unit; `None` where it has to be seen beside others."""
        key = part.number, ends
        if key not in self._outlines:
            self._outlines[key] = _outline(part.template, ends)
        return self._outlines[key]

    def program(
        self,
        templates: UnitTemplates,
        chunk: Chunk,
        kind: Pass,
        *,
        gathers: Mapping[int, Sequence[tuple[int, Sequence[Block]]]],
        reductions: Mapping[int, Sequence[Block]],
        held: Sequence[int],
        held_by: Sequence[Sequence[int]],
        ahead: int,
    ) -> PieceProgram | None:
        """One pass of a chunk; `None` where its parts have to be seen beside each other.

        Args:
            templates: of the plan.
            chunk: what is run.
            kind: in which pass.
            gathers: by place of a part, which parts are gathered before it, and by what.
            reductions: by place of a part, what is reduced behind it.
            held: as in `UnitTemplates.unit`.
            held_by: by part, items of what gathers the chunk.
            ahead: parts that may be gathered before one is free.
        """
        turn = 1 if kind is Pass.FORWARD else -1
        parts = [self.part(part, kind, templates) for part in chunk.parts[::turn]]
        own = [place for place, part in enumerate(parts) if part.size]
        if not own or not all(parts[place].num_operators for place in own):
            return None
        line = _Line(templates, held_by)
        cuts = set(held)
        for place, part in enumerate(parts):
            for other, blocks in gathers.get(place, ()):
                line.gather(other, blocks)
            if part.size:
                ends = _FIRST * (place == own[0]) + _LAST * (place == own[-1])
                outline = self.outline(part, ends) if ends else None
                if outline is None and (ends or not part.is_merged):
                    return None
                line.work(place, part, outline, is_cut=place in cuts)
            for block in reductions.get(place, ()):
                line.reduce(block)
        return line.program(self._times, tuple(parts[place].number for place in own), ahead)


def _outline(template: Template, ends: int) -> _Outline | None:
    operators = template.operators
    is_both = set(template.entries[0]) & set(template.exits[0]) - {*operators.tolist()}
    if is_both and ends != _FIRST | _LAST:
        return None
    entries = template.entries if ends & _FIRST else ((int(operators[0]),),)
    exits = template.exits if ends & _LAST else ((int(operators[-1]),),)
    found = outlined(replace(template, entries=entries, exits=exits))
    if not ends & _FIRST and found.stream[0] != COMPUTE:
        return None
    until = np.full(len(found.rows), NOTHING, np.int64)
    until[found.segments] = found.last_operators
    exchange = template.columns["exchange"][found.rows]
    columns = found.stream.tolist(), exchange.tolist(), (until + 1).tolist()
    return _Outline(
        rows=tuple(zip(*columns, strict=True)),
        edges=found.edges,
        entries=found.entries[0],
        exits=found.exits[0],
    )


class _Line:
    """Collects what a unit has to do, in the order of its launches."""

    def __init__(self, templates: UnitTemplates, held_by: Sequence[Sequence[int]]) -> None:
        self._templates, self._plan = templates, templates.plan
        self._rows: list[tuple[int, int]] = []  # stream, exchange
        self._waits: set[tuple[int, int, int, int]] = set()
        self._until: list[int] = []  # operators of all segments
        self._num_operators = 0
        self._segment = NOTHING  # row that goes on
        self._first_segment = self._last_segment = NOTHING
        self._gathers: dict[int, list[int]] = {}
        self._uses: list[tuple[tuple[int, ...], int]] = []
        self._held: list[int] = []  # what the next operator waits for
        self._held_by = held_by
        self._exits: tuple[int, ...] = ()

    def gather(self, place: int, blocks: Sequence[Block]) -> None:
        """Gather a part's parameters."""
        for block in blocks:
            self._gathers.setdefault(place, []).append(self._side(self._templates.block(block)))

    def work(self, place: int, part: _Part, outline: _Outline | None, *, is_cut: bool) -> None:
        """A part's own work; `outline` where it is at an end of the unit."""
        gathers = self._gathers.get(place, ())
        waits = (*gathers, *self._held)
        self._held = []
        if is_cut or waits:
            self._segment = NOTHING
        first = self._run_on(part.num_operators) if outline is None else self._outlined(outline)
        self._num_operators += part.num_operators
        self._waits.update((first, Wait.INSIDE, one, 0) for one in waits)
        if place < len(self._held_by):
            self._waits.update((first, Wait.GATHERED, one, 0) for one in self._held_by[place])
        if gathers:
            self._uses.append((tuple(gathers), self._last_segment))

    def reduce(self, block: Block) -> None:
        """Reduce gradients that the last operator made ready."""
        template = self._templates.block(block)
        begin = self._side(template)
        entries = template.entries[0]
        if self._last_segment >= 0 and entries:
            self._waits.update((begin + e, Wait.INSIDE, self._last_segment, 0) for e in entries)
            self._segment = NOTHING
        if not self._plan.overlap.gradients:
            self._held.extend(begin + one for one in template.exits[0])

    def program(self, times: PartTimes, numbers: tuple[int, ...], ahead: int) -> PieceProgram:
        """All of it."""
        self._waits.add((self._first_segment, Wait.HELD, 0, 0))
        uses = sorted(self._uses)
        for at, (gathers, _) in enumerate(uses):
            if at < ahead:
                self._waits.update((item, Wait.USE, ahead - at, 0) for item in gathers)
            else:
                free = uses[at - ahead][1]
                self._waits.update((one, Wait.INSIDE, free, 0) for one in gathers if free < one)
        stretch = times.joined(numbers, np.array(self._until, np.int64) - 1)
        rows = Rows(
            items=np.array(self._rows, np.int64).reshape(-1, 2),
            waits=self._waits,
            exits=(self._exits,),
            loose=tuple(self._held),
            uses=tuple(one for _, one in uses),
        )
        return program_of(rows, stretch)

    def _side(self, template: Template) -> int:
        """What a stream of its own does; its first row."""
        begin = len(self._rows)
        self._rows.extend(template.exchanges)
        for source, target in template.edges:
            self._waits.add((begin + target, Wait.INSIDE, begin + source, 0))
        return begin

    def _run_on(self, num_operators: int) -> int:
        """Operators that nothing cuts; the row of their segment."""
        if self._segment == NOTHING:
            self._new_segment()
        self._until[-1] = self._num_operators + num_operators
        return self._segment

    def _new_segment(self) -> None:
        self._segment = self._last_segment = len(self._rows)
        if self._first_segment == NOTHING:
            self._first_segment = self._segment
        self._rows.append((COMPUTE, NOTHING))
        self._until.append(0)

    def _outlined(self, outline: _Outline) -> int:
        """Rows of a part at an end of the unit; the row of its first operator."""
        place: list[int] = []
        first = NOTHING
        for stream, exchange, until in outline.rows:
            if stream != COMPUTE:
                place.append(len(self._rows))
                self._rows.append((stream, exchange))
                continue
            if first != NOTHING or self._segment == NOTHING:
                self._new_segment()
            self._until[-1] = self._num_operators + until
            place.append(self._segment)
            first = self._segment if first == NOTHING else first
        for source, target in outline.edges:
            self._waits.add((place[target], Wait.INSIDE, place[source], 0))
        if not self._num_operators:
            entries = (place[entry] for entry in outline.entries)
            self._waits.update((entry, Wait.RESULT, 0, 0) for entry in entries)
        self._exits = tuple(dict.fromkeys(place[one] for one in outline.exits))
        return first

"""`PlainUnits`: programs of units whose parts follow one another, made of parts and not of kernels.

Between its ends a unit is one run of operators, cut where parameters are gathered or held up and
where gradients are reduced. So only its first and its last part are looked into, once for each
part; what `coarsened` finds in all kernels of the unit (`template`) follows. What waits for what
is the same in units of many plans, whatever their exchanges carry, and is found once for these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Int64s
from foretrace.workload.blocks.block import Block, Passes
from foretrace.workload.layout.part_times import PartTimes
from foretrace.workload.layout.piece_program import PieceProgram, Rows, Wait, program_of
from foretrace.workload.layout.tables import COMPUTE, NOTHING
from foretrace.workload.layout.template import IS_INSIDE, KnownOutlines, Template
from foretrace.workload.layout.units import Chunk, UnitTemplates
from foretrace.workload.schedule.schedule import Pass

_FIRST, _LAST = 1, 2  # of a unit's parts


@dataclass(frozen=True)
class _Outline:
    """A part at one or both ends of a unit: rows of its own, others' places counted from them."""

    rows: tuple[tuple[int, int], ...]  # stream, operators of the part behind a segment
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


@dataclass(frozen=True)
class _Run:
    """Parts of a chunk in one pass."""

    works: tuple[bool, ...]  # by part, whether it does anything
    outlines: tuple[_Outline | None, ...]  # by part, of those at the ends
    alike: int  # the same for those that are equal in both
    sent: tuple[tuple[int, ...], ...]  # by part, exchanges of its rows
    numbers: tuple[int, ...]  # of parts that work, in the table of parts
    until: Int64s  # int64[parts], operators up to the end of each


@dataclass(frozen=True, eq=False)
class _Side:
    """Exchanges on a stream of their own, the same object for all that wait for the same."""

    streams: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    entries: tuple[int, ...]
    exits: tuple[int, ...]


# A place among parts. Without a side the part works; else what gathers another one's parameters
# before it, or, at NOTHING, what reduces gradients behind it.
_Turn = tuple[int, int, _Side | None]


@dataclass(frozen=True)
class _Shape:
    """A unit, whatever its exchanges carry and its operators are."""

    program: PieceProgram  # without exchanges and operators
    sent: Int64s  # int64[exchanges], their items
    part: Int64s  # int64[segments], where each ends
    behind: Int64s  # int64[segments], operators of that part that follow


class KnownShapes:
    """Shapes of units of any plans of a model."""

    def __init__(self) -> None:
        """Know none yet."""
        self.outlines = KnownOutlines()
        self.shapes: dict[object, _Shape] = {}
        self._alike: dict[object, int] = {}
        self._distinct: dict[object, _Side] = {}
        # Of templates, which are kept, by identity; and the exchanges of each.
        self._sides: dict[int, tuple[_Side, tuple[int, ...]]] = {}

    def number(self, of: object) -> int:
        """The same for what is equal."""
        return self._alike.setdefault(of, len(self._alike))

    def side(self, template: Template) -> tuple[_Side, tuple[int, ...]]:
        """What a block does on a stream of its own, and its exchanges."""
        found = self._sides.get(id(template))
        if found is None:
            streams, sent = zip(*template.exchanges, strict=True)
            own = streams, tuple(template.edges), template.entries[0], template.exits[0]
            side = self._distinct.setdefault(own, _Side(*own))
            found = self._sides[id(template)] = side, sent
        return found


class PlainUnits:
    """Makes programs of units of plans that share their blocks."""

    def __init__(self, times: PartTimes, known: KnownShapes | None = None) -> None:
        """Look into no part yet.

        Args:
            times: of the parts.
            known: of other plans of the model.
        """
        self._times = times
        self._known = KnownShapes() if known is None else known
        self._parts: dict[tuple[int, Pass], _Part] = {}  # of parts by their identity
        self._outlines: dict[tuple[int, int], tuple[_Outline, tuple[int, ...]] | None] = {}
        self._runs: dict[object, _Run | None] = {}

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

    def outline(self, part: _Part, ends: int) -> tuple[_Outline, tuple[int, ...]] | None:
        """A part at these ends of a unit, and exchanges of its rows.

        `None` where it has to be seen beside others.
        """
        key = part.number, ends
        if key not in self._outlines:
            self._outlines[key] = _outline(part.template, ends, self._known.outlines)
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
        run = self._run(chunk, kind, templates)
        if run is None:
            return None
        turns, sent = self._turns(run, templates, gathers, reductions)
        is_held_up = not templates.plan.overlap.gradients
        key = run.alike, turns, tuple(held), tuple(held_by), ahead, is_held_up
        shape = self._known.shapes.get(key)
        if shape is None:
            line = _Line(run, held, held_by, is_held_up=is_held_up)
            shape = self._known.shapes[key] = line.shape(turns, ahead)
        own = shape.program
        items = own.items.copy()
        items[shape.sent, 1] = sent
        stretch = self._times.joined(run.numbers, run.until[shape.part] - shape.behind - 1)
        return PieceProgram(items, own.waits, own.exits, own.loose, own.uses, stretch)

    def _turns(
        self,
        run: _Run,
        templates: UnitTemplates,
        gathers: Mapping[int, Sequence[tuple[int, Sequence[Block]]]],
        reductions: Mapping[int, Sequence[Block]],
    ) -> tuple[tuple[_Turn, ...], list[int]]:
        """What comes after what, and all exchanges in that order."""
        side, block = self._known.side, templates.block
        turns: list[_Turn] = []
        sent: list[int] = []
        for place, own in enumerate(run.sent):
            for other, blocks in gathers.get(place, ()):
                for one, numbers in map(side, map(block, blocks)):
                    turns.append((place, other, one))
                    sent += numbers
            if run.works[place]:
                turns.append((place, place, None))
                sent += own
            for one, numbers in map(side, map(block, reductions.get(place, ()))):
                turns.append((place, NOTHING, one))
                sent += numbers
        return tuple(turns), sent

    def _run(self, chunk: Chunk, kind: Pass, templates: UnitTemplates) -> _Run | None:
        key = chunk.key, kind
        if key not in self._runs:
            turn = 1 if kind is Pass.FORWARD else -1
            parts = [self.part(part, kind, templates) for part in chunk.parts[::turn]]
            self._runs[key] = self._run_of(parts)
        return self._runs[key]

    def _run_of(self, parts: Sequence[_Part]) -> _Run | None:
        own = [place for place, part in enumerate(parts) if part.size]
        if not own or not all(parts[place].num_operators for place in own):
            return None
        if not all(parts[place].is_merged for place in own[1:-1]):
            return None
        works = tuple([part.size > 0 for part in parts])
        outlines: list[_Outline | None] = [None] * len(parts)
        sent: list[tuple[int, ...]] = [()] * len(parts)
        for place in {own[0], own[-1]}:
            ends = _FIRST * (place == own[0]) + _LAST * (place == own[-1])
            found = self.outline(parts[place], ends)
            if found is None:
                return None
            outlines[place], sent[place] = found
        return _Run(
            works=works,
            outlines=tuple(outlines),
            alike=self._known.number((works, tuple(outlines))),
            sent=tuple(sent),
            numbers=tuple(parts[place].number for place in own),
            until=np.cumsum([part.num_operators for part in parts]),
        )


def _outline(
    template: Template, ends: int, known: KnownOutlines
) -> tuple[_Outline, tuple[int, ...]] | None:
    operators = template.operators
    is_both = set(template.entries[0]) & set(template.exits[0]) - {*operators.tolist()}
    if is_both and ends != _FIRST | _LAST:
        return None
    entries = template.entries if ends & _FIRST else ((int(operators[0]),),)
    exits = template.exits if ends & _LAST else ((int(operators[-1]),),)
    found = known.of(replace(template, entries=entries, exits=exits))
    if not ends & _FIRST and found.stream[0] != COMPUTE:
        return None
    behind = np.zeros(len(found.rows), np.int64)
    behind[found.segments] = len(operators) - 1 - found.last_operators
    exchange = template.columns["exchange"][found.rows]
    outline = _Outline(
        rows=tuple(zip(found.stream.tolist(), behind.tolist(), strict=True)),
        edges=found.edges,
        entries=found.entries[0],
        exits=found.exits[0],
    )
    return outline, tuple(exchange[found.stream != COMPUTE].tolist())


class _Line:
    """Collects what a unit has to do, in the order of its launches."""

    def __init__(
        self,
        run: _Run,
        held: Sequence[int],
        held_by: Sequence[Sequence[int]],
        *,
        is_held_up: bool,
    ) -> None:
        self._run, self._first = run, run.works.index(True)
        self._cuts = held
        self._is_held_up = is_held_up  # by reductions
        self._streams: list[int] = []
        self._waits: set[tuple[int, int, int, int]] = set()
        self._until: list[tuple[int, int]] = []  # of segments: a part, operators of it that follow
        self._segment = NOTHING  # row that goes on
        self._first_segment = self._last_segment = NOTHING
        self._gathers: dict[int, list[int]] = {}
        self._uses: list[tuple[tuple[int, ...], int]] = []
        self._held: list[int] = []  # what the next operator waits for
        self._held_by = held_by
        self._exits: tuple[int, ...] = ()

    def shape(self, turns: Sequence[_Turn], ahead: int) -> _Shape:
        """All of it."""
        for place, other, side in turns:
            if side is None:
                self._work(place)
            elif other == NOTHING:
                self._reduce(side)
            else:
                self._gathers.setdefault(other, []).append(self._beside(side))
        self._waits.add((self._first_segment, Wait.HELD, 0, 0))
        uses = sorted(self._uses)
        for at, (gathers, _) in enumerate(uses):
            if at < ahead:
                self._waits.update((item, Wait.USE, ahead - at, 0) for item in gathers)
            else:
                free = uses[at - ahead][1]
                self._waits.update((one, Wait.INSIDE, free, 0) for one in gathers if free < one)
        items = np.full((len(self._streams), 2), NOTHING, np.int64)
        items[:, 0] = self._streams
        rows = Rows(
            items=items,
            waits=self._waits,
            exits=(self._exits,),
            loose=tuple(self._held),
            uses=tuple(one for _, one in uses),
        )
        part, behind = np.array(self._until, np.int64).T
        sent = np.flatnonzero(items[:, 0] != COMPUTE)
        return _Shape(program_of(rows, None), sent, part, behind)

    def _work(self, place: int) -> None:
        """A part's own work."""
        gathers, outline = self._gathers.get(place, ()), self._run.outlines[place]
        waits = (*gathers, *self._held)
        self._held = []
        if place in self._cuts or waits:
            self._segment = NOTHING
        first = self._run_on(place) if outline is None else self._outlined(place, outline)
        self._waits.update((first, Wait.INSIDE, one, 0) for one in waits)
        if place < len(self._held_by):
            self._waits.update((first, Wait.GATHERED, one, 0) for one in self._held_by[place])
        if gathers:
            self._uses.append((tuple(gathers), self._last_segment))

    def _reduce(self, side: _Side) -> None:
        """Reduce gradients that the last operator made ready."""
        begin = self._beside(side)
        if self._last_segment >= 0 and side.entries:
            self._waits.update(
                (begin + one, Wait.INSIDE, self._last_segment, 0) for one in side.entries
            )
            self._segment = NOTHING
        if self._is_held_up:
            self._held.extend(begin + one for one in side.exits)

    def _beside(self, side: _Side) -> int:
        """What a stream of its own does; its first row."""
        begin = len(self._streams)
        self._streams += side.streams
        for source, target in side.edges:
            self._waits.add((begin + target, Wait.INSIDE, begin + source, 0))
        return begin

    def _run_on(self, place: int) -> int:
        """Operators that nothing cuts; the row of their segment."""
        if self._segment == NOTHING:
            self._new_segment()
        self._until[-1] = place, 0
        return self._segment

    def _new_segment(self) -> None:
        self._segment = self._last_segment = len(self._streams)
        if self._first_segment == NOTHING:
            self._first_segment = self._segment
        self._streams.append(COMPUTE)
        self._until.append((NOTHING, 0))

    def _outlined(self, at: int, outline: _Outline) -> int:
        """Rows of a part at an end of the unit; the row of its first operator."""
        place: list[int] = []
        first = NOTHING
        for stream, behind in outline.rows:
            if stream != COMPUTE:
                place.append(len(self._streams))
                self._streams.append(stream)
                continue
            if first != NOTHING or self._segment == NOTHING:
                self._new_segment()
            self._until[-1] = at, behind
            place.append(self._segment)
            first = self._segment if first == NOTHING else first
        for source, target in outline.edges:
            self._waits.add((place[target], Wait.INSIDE, place[source], 0))
        if at == self._first:
            entries = (place[entry] for entry in outline.entries)
            self._waits.update((entry, Wait.RESULT, 0, 0) for entry in entries)
        self._exits = tuple(dict.fromkeys(place[one] for one in outline.exits))
        return first

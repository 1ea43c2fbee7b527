"""`write_units`: units of all stages in their order, with transfers around them, as pieces.

A unit waits for what its chunk works on: received from another stage, or left by a unit of its
own. A receive is posted when the compute stream reaches the place where it was launched: one turn
ahead of its use if transfers overlap, else just before it. A send leaves when its data are ready,
whether or not the other side waits for it already. Units are columns here: what is asked one by
one is asked of distinct chunks and passes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import CollectiveKind, Int64s, joined_ranges
from foretrace.graph import Part, Phase
from foretrace.workload.blocks.block import Block, ModelBlocks
from foretrace.workload.exchanges.exchange import Exchange
from foretrace.workload.layout.pieces import PieceRows, Pieces, Place
from foretrace.workload.layout.sharded import Gatherings
from foretrace.workload.layout.tables import NOTHING, RECEIVES, SENDS, Tables
from foretrace.workload.layout.template import Template, template_of_block
from foretrace.workload.layout.unit_columns import (
    RECEIVED,
    RUN,
    SENT,
    UnitColumns,
)
from foretrace.workload.layout.units import UnitTemplate, UnitTemplates
from foretrace.workload.plan.plan import Group
from foretrace.workload.schedule.schedule import Pass


class Transfers:
    """Templates of the two ends of transfers between stages."""

    def __init__(self, tables: Tables, blocks: ModelBlocks) -> None:
        """Make templates of sends and receives in both directions.

        Args:
            tables: takes their texts and exchanges.
            blocks: between whose chunks activations go, and their gradients back.
        """
        self._templates = {
            (stream, is_forward): _on_stream(
                template_of_block(_transfer(blocks, is_forward=is_forward, stream=stream), tables),
                stream,
            )
            for stream in (SENDS, RECEIVES)
            for is_forward in (True, False)
        }

    def template(self, stream: int, *, is_forward: bool) -> Template:
        """One end of a transfer."""
        return self._templates[stream, is_forward]


def _transfer(blocks: ModelBlocks, *, is_forward: bool, stream: int) -> Block:
    verb = "send" if stream == SENDS else "receive"
    what, phase = ("activations", Phase.FORWARD) if is_forward else ("gradients", Phase.BACKWARD)
    item = Exchange(
        f"{verb} {what}",
        CollectiveKind.SEND_RECV,
        Group.PIPELINE,
        blocks.transfer_bytes,
        blocks.transfer_dtype,
        phase,
        channels=blocks.transfer_channels,
    )
    return Block(Part.TRANSFER, (item,))


def _on_stream(template: Template, stream: int) -> Template:
    streams = np.full(len(template), stream, np.int64)
    return replace(template, columns={**template.columns, "stream": streams})


class _Lists:
    """Lists of items, and how long each is."""

    def __init__(self, lists: Sequence[Sequence[int]]) -> None:
        self.size = np.array([len(one) for one in lists], np.int64)
        self._first = np.cumsum(self.size) - self.size
        self._items = np.array([item for one in lists for item in one], np.int64)

    def of(self, number: Int64s) -> tuple[Int64s, Int64s]:
        """Row of each item of some lists, and the items."""
        size = self.size[number]
        rows = np.repeat(np.arange(len(number)), size)
        return rows, self._items[joined_ranges(self._first[number], size)]


@dataclass(frozen=True)
class _Shape:
    """A unit's template, alone or woven, and which of the woven stretches is its own."""

    unit: UnitTemplate
    place: int


@dataclass(frozen=True)
class StageEnd:
    """Where a stage stands behind all its units."""

    last_operator: Place | None
    held_by: tuple[Place, ...]  # what the next operator has to wait for


def write_units(
    units: UnitColumns, templates: UnitTemplates, transfers: Transfers, gatherings: Gatherings
) -> tuple[StageEnd, ...]:
    """Launch all units of all stages; returns where each stage stands then.

    Raises:
        WorkloadError: if a unit comes before what it works on.
    """
    units.refuse_unready()
    return _Writer(units, templates, transfers, gatherings).written()


class _Writer:
    """Writes down all units; everything by unit or by turn of a stage, all stages' in a row."""

    def __init__(
        self,
        units: UnitColumns,
        templates: UnitTemplates,
        transfers: Transfers,
        gatherings: Gatherings,
    ) -> None:
        """Find what the units are made of."""
        self._units, self._plan = units, units.plan
        self._transfers, self._gatherings = transfers, gatherings
        self._pieces: Pieces = gatherings.pieces
        self._shapes, self._shape = _shapes(units, templates, gatherings)
        stretches = [(one.unit.template, one.place) for one in self._shapes]
        self._entries = _Lists([template.entries[place] for template, place in stretches])
        self._exits = _Lists([*(template.exits[place] for template, place in stretches), (0,)])
        first = np.array([template.first_operator for template, _ in stretches], np.int64)
        last = np.array([template.last_operator for template, _ in stretches], np.int64)
        self._first, self._last = first[self._shape[units.lead]], last[self._shape[units.lead]]
        turn = np.arange(len(units.lead))
        works = self._first >= 0
        # The last turn with operators up to each, and the next behind it.
        self._up_to = np.maximum.accumulate(np.where(works, turn, -1))
        next_from = np.minimum.accumulate(np.where(works, turn, len(turn))[::-1])[::-1]
        self._next = np.append(next_from[1:], len(turn))
        self._stage_of_turn = units.stage[units.lead]

    def written(self) -> tuple[StageEnd, ...]:
        """All of it."""
        units = self._units
        received, sent = np.flatnonzero(units.is_received), np.flatnonzero(units.is_sent)
        posted = units.turn[received]
        if self._plan.overlap.pipeline:
            posted = np.maximum(posted - 1, units.turn_begin[units.stage[received]])
        numbers = self._transfer_numbers(received, sent, posted)
        receive = self._write_ends(
            received, RECEIVES, units.when(posted, RECEIVED), numbers[: len(received)]
        )
        self._gatherings.write()
        run = self._write_runs()
        own = run[units.turn]
        send = self._write_ends(
            sent, SENDS, units.when(units.turn[sent], SENT), numbers[len(received) :]
        )
        self._wait_for_stream(receive[received], posted, run)
        result, source = self._results(receive, own)
        self._wait_all((own, self._shape), self._entries, source, np.flatnonzero(units.has_source))
        no_list = np.full(len(own), len(self._shapes))
        self._wait_all((send, no_list), self._exits, result, sent)
        made = (result[0][units.maker], result[1][units.maker])
        self._wait_all((receive, no_list), self._exits, made, received)
        self._gatherings.hold(own, lambda unit: self._shapes[self._shape[unit]].unit)
        self._limit_gathers(own)
        return self._ends(run, self._held(own, send))

    def _transfer_numbers(self, received: Int64s, sent: Int64s, posted: Int64s) -> Int64s:
        """Number of every transfer received, then of every one sent, in the order of the pieces."""
        units = self._units
        result = np.append(units.needed[received], units.made[sent])
        when = np.append(units.when(posted, RECEIVED), units.when(units.turn[sent], SENT))
        order = np.argsort(when, kind="stable")
        first = np.full(int(result.max(initial=-1)) + 1, len(order))
        np.minimum.at(first, result[order], np.arange(len(order)))
        place = np.zeros(len(order) + 1, np.int64)
        place[first] = 1
        numbers: Int64s = (np.cumsum(place) - 1)[first[result]]
        return numbers

    def _write_ends(self, of: Int64s, stream: int, turn: Int64s, number: Int64s) -> Int64s:
        """One end of transfers; piece of each unit, NOTHING where it has none."""
        units = self._units
        backward, forward = (
            self._pieces.number(self._transfers.template(stream, is_forward=one))
            for one in (False, True)
        )
        is_forward = (units.needs_forward if stream == RECEIVES else units.is_forward)[of]
        found = np.full(len(units.kind), NOTHING)
        found[of] = self._pieces.add_rows(
            PieceRows(
                turn,
                units.stage[of],
                np.where(is_forward, forward, backward),
                np.stack([units.microbatch[of]] * 2),
                np.zeros((2, len(of)), np.int64),
                number,
            )
        )
        return found

    def _write_runs(self) -> Int64s:
        """Every turn's template; piece of each turn."""
        units = self._units
        lead = units.lead
        last = np.append(lead[1:], len(units.kind)) - 1
        template = np.array([self._pieces.number(one.unit.template) for one in self._shapes])
        first_layer = np.array([chunk.first_layer for chunk in units.chunks])[units.chunk]
        return self._pieces.add_rows(
            PieceRows(
                units.when(np.arange(len(lead)), RUN),
                units.stage[lead],
                template[self._shape[lead]],
                np.stack([units.microbatch[lead], units.microbatch[last]]),
                np.stack([first_layer[lead], first_layer[last]]),
                np.full(len(lead), NOTHING),
            )
        )

    def _wait_for_stream(self, pieces: Int64s, turn: Int64s, run: Int64s) -> None:
        """Let receives wait for the last operator before the turn in which they are posted."""
        before = np.append(-1, self._up_to)[turn]
        is_own = before >= self._units.turn_begin[self._stage_of_turn[turn]]
        before = before[is_own]
        nothing = np.zeros(len(before), np.int64)
        self._pieces.wait_rows((run[before], self._last[before]), (pieces[is_own], nothing))

    def _results(
        self, receive: Int64s, own: Int64s
    ) -> tuple[tuple[Int64s, Int64s], tuple[Int64s, Int64s]]:
        """What every unit leaves, and what it works on: a piece, and which list of its items.

        A chunk without layers leaves what it works on.
        """
        units = self._units
        maker = np.maximum(units.maker, 0)
        is_empty = self._exits.size[self._shape] == 0
        piece, items = np.where(is_empty, NOTHING, own), self._shape.copy()
        while True:
            from_piece = np.where(units.is_received, receive, piece[maker])
            from_items = np.where(units.is_received, len(self._shapes), items[maker])
            more = is_empty & units.has_source & (piece != from_piece)
            if not more.any():
                return (piece, items), (from_piece, from_items)
            piece[more], items[more] = from_piece[more], from_items[more]

    def _wait_all(
        self,
        target: tuple[Int64s, Int64s],
        lists: _Lists,
        source: tuple[Int64s, Int64s],
        units: Int64s,
    ) -> None:
        """Let every item of units' target lists wait for every item that they work on."""
        units = units[source[0][units] != NOTHING]
        row, item = lists.of(target[1][units])
        unit = units[row]
        again, other = self._exits.of(source[1][unit])
        self._pieces.wait_rows(
            (source[0][unit[again]], other), (target[0][unit[again]], item[again])
        )

    def _held(self, own: Int64s, send: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """What the next operator of a stage has to wait for: turns, pieces and items."""
        loose = _Lists([one.unit.loose for one in self._shapes])
        unit, item = loose.of(self._shape)
        piece = own[unit]
        if not self._plan.overlap.pipeline:
            sent = np.flatnonzero(send != NOTHING)
            unit, piece = np.append(unit, sent), np.append(piece, send[sent])
            item = np.append(item, np.zeros(len(sent), np.int64))
        return self._units.turn[unit], piece, item

    def _ends(self, run: Int64s, held: tuple[Int64s, Int64s, Int64s]) -> tuple[StageEnd, ...]:
        """Hold operators up, and say where every stage stands behind its last one."""
        turn, piece, item = held
        end = np.append(self._units.turn_begin[1:], len(run))
        following = self._next[turn]
        is_inside = following < end[self._stage_of_turn[turn]]
        inside = following[is_inside]
        self._pieces.wait_rows(
            (piece[is_inside], item[is_inside]), (run[inside], self._first[inside])
        )
        found = []
        for stage, begin in enumerate(self._units.turn_begin.tolist()):
            last = int(self._up_to[end[stage] - 1])
            left = np.flatnonzero(~is_inside & (self._stage_of_turn[turn] == stage))
            places = zip(piece[left].tolist(), item[left].tolist(), strict=True)
            operator = (int(run[last]), int(self._last[last])) if last >= begin else None
            found.append(StageEnd(operator, tuple(places)))
        return tuple(found)

    def _limit_gathers(self, own: Int64s) -> None:
        """No part is gathered before as many parts are free again as may be held at once.

        Source:
            Zhao et al., "PyTorch FSDP", arXiv:2304.11277, section 3.4: the rate limiter.
        """
        uses = [
            [
                (gathers, operator)
                for gathers, operator in zip(
                    one.unit.gathers, one.unit.last_operator.tolist(), strict=True
                )
                if gathers and operator >= 0
            ]
            for one in self._shapes
        ]
        flat = [use for of_shape in uses for use in of_shape]
        if not flat:
            return
        begin = np.cumsum([0, *map(len, uses)])
        unit, number = _Lists(
            [
                range(at, end)
                for at, end in zip(begin[:-1].tolist(), begin[1:].tolist(), strict=True)
            ]
        ).of(self._shape)
        first = np.array([gathers[0] for gathers, _ in flat])[number]
        order = np.lexsort((first, own[unit]))
        unit, number = unit[order], number[order]
        ahead = (self._plan.prefetch if self._plan.overlap.parameters else 0) + 1
        free, used = unit[:-ahead], unit[ahead:]
        is_own = self._units.stage[free] == self._units.stage[used]
        free, used = free[is_own], used[is_own]
        consumed = np.array([operator for _, operator in flat])[number[:-ahead][is_own]]
        row, gather = _Lists([gathers for gathers, _ in flat]).of(number[ahead:][is_own])
        source, target = (own[free][row], consumed[row]), (own[used][row], gather)
        # Of woven units, one may be ahead of the other.
        is_before = (source[0] < target[0]) | ((source[0] == target[0]) & (source[1] < target[1]))
        self._pieces.wait_rows(
            (source[0][is_before], source[1][is_before]),
            (target[0][is_before], target[1][is_before]),
        )


def _shapes(
    units: UnitColumns, templates: UnitTemplates, gatherings: Gatherings
) -> tuple[list[_Shape], Int64s]:
    """Distinct units, woven ones two by two behind those alone; and which one each unit is."""
    code = units.chunk
    for column, size in (
        (units.kind, len(Pass)),
        *(
            (column.astype(np.int64), 2)
            for column in (units.gathers, units.reduces, units.is_first)
        ),
    ):
        code = code * size + column
    first = np.full(int(code.max()) + 1, len(code))
    np.minimum.at(first, code, np.arange(len(code)))
    example = np.sort(first[first < len(code)])  # in the order in which stages come to them
    number = np.zeros(len(first), np.int64)
    number[code[example]] = np.arange(len(example))
    shape = number[code]
    shapes = [
        _Shape(
            templates.unit(
                units.chunks[units.chunk[at]],
                Pass(units.kind[at]),
                is_gathering=bool(units.gathers[at]),
                is_reducing=bool(units.reduces[at]),
                held=gatherings.held(int(units.chunk[at])) if units.is_first[at] else (),
            ),
            0,
        )
        for at in example.tolist()
    ]
    second = np.flatnonzero(units.is_second)
    pair = shape[second - 1] * len(shapes) + shape[second]
    for each in np.unique(pair).tolist():
        one, other = templates.pair(*(shapes[at].unit for at in divmod(each, len(example))))
        own = second[pair == each]
        shape[own - 1], shape[own] = len(shapes), len(shapes) + 1
        shapes += [_Shape(one, 0), _Shape(other, 1)]
    return shapes, shape

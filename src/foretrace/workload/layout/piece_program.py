"""`PieceProgram`: a template at unit grain as rows, and the compiled loop that runs them.

Rows say what each item waits for beside its launch and its stream: items inside, what the unit
works on, what held the stage up before, parameters that were gathered, and uses of parameters that
have to be over first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial

import numpy as np

from foretrace.base import GraphError, Int64s, row_starts
from foretrace.workload.layout._compiled import Job, lanes, run_step
from foretrace.workload.layout.part_times import PartRun
from foretrace.workload.layout.tables import (
    COMPUTE,
    NOTHING,
    NUM_STREAMS,
    STREAM_OF_GROUP,
    stream_layers,
)
from foretrace.workload.layout.template import Outline, Template
from foretrace.workload.layout.units import UnitTemplate
from foretrace.workload.plan.plan import Channels, Group

# Exchanges that several stages meet in, by stream; as the compiled loop numbers them.
JOINS = {
    STREAM_OF_GROUP[Group.ALL]: 1,
    STREAM_OF_GROUP[Group.EMBEDDING]: 2,
    STREAM_OF_GROUP[Group.MIRROR]: 3,
}
_JOIN_OF_STREAM = np.array([JOINS.get(stream, 0) for stream in range(NUM_STREAMS)], np.int64)


class Wait(IntEnum):
    """What an item waits for; the number beside it says which."""

    INSIDE = 0  # an item of the same piece
    RESULT = 1  # what a member's unit works on
    HELD = 2  # what holds the stage's next operator up
    GATHERED = 3  # an item of what gathers the member's chunk
    USE = 4  # the last operator of the use of parameters so many before
    LAST = 5  # the stage's last operator before the piece
    BARRIER = 6  # all communication before the piece


@dataclass(frozen=True, eq=False)
class PieceProgram:
    """What is known of a piece before it is timed."""

    # int64[items, 3]: stream, number of its exchange or NOTHING, in which way stages join in it.
    items: Int64s
    waits: Int64s  # int64[waits, 4]: item, `Wait`, number, member; by item
    exits: tuple[tuple[int, ...], ...]  # by member
    loose: tuple[int, ...]
    uses: tuple[int, ...]  # operators behind which gathered parameters are free, in order
    stretch: PartRun | None  # what its segments are made of; `None`: it has no operators
    times: dict[tuple[int, ...], Int64s] = field(default_factory=dict)  # by those of `inner`

    @property
    def inner(self) -> tuple[int, ...]:
        """Numbers of exchanges that segments are made of."""
        return () if self.stretch is None else self.stretch.exchanges

    def timed(self, segments: Int64s | None, exchange_ns: int) -> Int64s:
        """Times of all items: length, host before and behind, longer beside; int64[items, 4].

        Args:
            segments: the same of its segments, int64[those, 4]; `None`: it has none.
            exchange_ns: that the host takes to launch an exchange.
        """
        found = np.zeros((len(self.items), 4), np.int64)
        found[:, 1] = exchange_ns
        if segments is not None:
            found[self.items[:, 0] == COMPUTE] = segments
        return found


def unit_program(
    units: Sequence[UnitTemplate],
    stretch: PartRun | None,
    *,
    ahead: int,
    held_by: Sequence[tuple[tuple[int, ...], ...]] = ((), ()),
) -> PieceProgram:
    """One unit, or two that are woven into one template.

    Args:
        units: members; all have the same template.
        stretch: what the template's segments are made of; `None`: it has no operators.
        ahead: parts that may be gathered before one is free.
        held_by: by member, by part, items of what gathers the chunk.
    """
    template = units[0].template
    rows = [(item, Wait.INSIDE, number, 0) for number, item in template.edges]
    for member, (unit, held) in enumerate(zip(units, held_by, strict=False)):
        rows += [(entry, Wait.RESULT, member, member) for entry in template.entries[member]]
        for first, items in zip(unit.first_operator.tolist(), held, strict=False):
            rows += [(first, Wait.GATHERED, item, member) for item in items if first >= 0]
    if template.first_operator >= 0:
        rows.append((template.first_operator, Wait.HELD, 0, 0))
    uses = sorted(
        (gathers, operator)
        for unit in units
        for gathers, operator in zip(unit.gathers, unit.last_operator.tolist(), strict=True)
        if gathers and operator >= 0
    )
    for at, (gathers, _) in enumerate(uses):
        if at < ahead:
            rows += [(item, Wait.USE, ahead - at, 0) for item in gathers]
        else:
            free = uses[at - ahead][1]
            rows += [(item, Wait.INSIDE, free, 0) for item in gathers if free < item]
    loose = tuple(item for unit in units for item in unit.loose)
    return _program(template, rows, stretch, loose, tuple(operator for _, operator in uses))


def closing_program(
    template: Template, outline: Outline, stretch: PartRun | None, *, is_barrier: bool
) -> PieceProgram:
    """What follows a stage's units, one stretch behind the other.

    Args:
        template: of the stretch, kernel by kernel.
        outline: its own.
        stretch: what its segments are made of; `None`: it has no operators.
        is_barrier: it waits for all communication before it.
    """
    waits = [(item, Wait.INSIDE, number, 0) for number, item in outline.edges]
    for entry in outline.entries[0]:
        waits += [(entry, Wait.LAST, 0, 0)] if outline.stream[entry] != COMPUTE else []
        waits += [(entry, Wait.BARRIER, 0, 0)] if is_barrier else []
    if stretch is not None:
        waits.append((int(outline.segments[0]), Wait.HELD, 0, 0))
    items = np.stack([outline.stream, template.columns["exchange"][outline.rows]], axis=1)
    return program_of(Rows(items, waits, outline.exits), stretch)


def gathering_program(exchanges: Sequence[tuple[int, int]], *, is_behind: bool) -> PieceProgram:
    """What gathers a chunk: ahead of its use, or behind the optimizer.

    Args:
        exchanges: stream and number of each.
        is_behind: the optimizer.
    """
    waits = [(item, Wait.LAST, 0, 0) for item in range(len(exchanges) if is_behind else 0)]
    items = np.array(exchanges, np.int64).reshape(-1, 2)
    return program_of(Rows(items, waits, exits=((),)), None)


def _program(
    template: Template,
    waits: Sequence[tuple[int, int, int, int]],
    stretch: PartRun | None,
    loose: tuple[int, ...] = (),
    uses: tuple[int, ...] = (),
) -> PieceProgram:
    columns = template.columns
    items = np.stack([columns["stream"], columns["exchange"]], axis=1)
    return program_of(Rows(items, waits, template.exits, loose, uses), stretch)


@dataclass(frozen=True)
class Rows:
    """What a piece does."""

    items: Int64s  # int64[items, 2]: stream, number of its exchange or NOTHING
    waits: Iterable[tuple[int, int, int, int]]  # as in a `PieceProgram`, in any order
    exits: tuple[tuple[int, ...], ...]
    loose: tuple[int, ...] = ()
    uses: tuple[int, ...] = ()


def program_of(rows: Rows, stretch: PartRun | None) -> PieceProgram:
    """A piece of these rows, which is not timed yet."""
    items = np.empty((len(rows.items), 3), np.int64)
    items[:, :2], items[:, 2] = rows.items, _JOIN_OF_STREAM[rows.items[:, 0]]
    waits = np.array(sorted(rows.waits), np.int64).reshape(-1, 4)
    return PieceProgram(items, waits, rows.exits, rows.loose, rows.uses, stretch)


def joined_programs(
    programs: Sequence[PieceProgram], times: Sequence[Int64s], numbers: Int64s
) -> tuple[Int64s, tuple[Int64s, ...]]:
    """Columns of all items; where each program's begin, and what they wait for and leave."""
    size = [len(one.items) for one in programs]
    begin = np.cumsum([0, *size])
    items, own = np.concatenate([one.items for one in programs]), np.concatenate(times)
    is_exchange = items[:, 1] != NOTHING
    columns = np.empty((len(items), 7), np.int64)
    columns[:, 0], columns[:, 5] = items[:, 0], items[:, 2]
    columns[:, 1] = np.where(is_exchange, np.searchsorted(numbers, items[:, 1]), NOTHING)
    columns[:, 2:5], columns[:, 6] = own[:, :3], own[:, 3]
    waits = np.concatenate([one.waits for one in programs])
    item = waits[:, 0] + np.repeat(begin[:-1], [len(one.waits) for one in programs])
    wait_begin = row_starts(item, len(items))
    lists = []
    for found in (
        [
            [item + at for item in member]
            for one, at in zip(programs, begin.tolist(), strict=False)
            for member in (*one.exits, ())[:2]
        ],
        [one.loose for one in programs],
        [one.uses for one in programs],
    ):
        lists.append(np.cumsum([0, *map(len, found)]))
        lists.append(np.array([item for own in found for item in own], np.int64))
    has_operators = np.array([one.stretch is not None for one in programs], np.int64)
    return columns, (
        *(begin, columns, wait_begin, waits[:, 1:].copy(), lists[0], lists[1]),
        *(*lists[2:], has_operators),
    )


def run_programs(job: Job, closings: tuple[Int64s, Int64s], channels: Channels) -> int:
    """How long a step takes, in ns.

    Args:
        job: units and their programs, as `run_step` takes them.
        closings: where programs behind each stage's units begin, and these.
        channels: of exchanges; what they slow grows with them.

    Raises:
        GraphError: if stages wait for each other for ever.
    """
    _, program, (begin, _, _, waits, exits, _), _, (_, _, gather), *_ = job
    num_stages, num_units = len(closings[0]) - 1, len(program)
    lane_begin = np.empty((num_stages, NUM_STREAMS + 1), np.int64)
    num_spans = lanes(job, closings, lane_begin)
    room = partial(np.empty, dtype=np.int64)
    ahead = int(waits[waits[:, 0] == Wait.USE, 1].max(initial=1))
    most_items, of_streams = int(np.diff(begin).max()), (num_stages, NUM_STREAMS)
    state = (
        *(room((num_stages, 4)), room(of_streams), room(of_streams)),
        *(room((num_stages, ahead)), room(of_streams), room((num_stages, most_items))),
    )
    known = (
        *(room((num_units, 2 + int(np.diff(exits).max()))), room(num_units)),
        *(room((len(gather), most_items)), room(num_units), room(num_units)),
    )
    spans = room(num_spans), room((num_spans, 3))
    share = np.empty((2, num_spans))
    step_ns = run_step(
        job, closings, lane_begin, spans, state, known, *stream_layers(channels), share
    )
    if step_ns < 0:
        raise GraphError("what follows the units of a step waits for ever")
    return int(step_ns)

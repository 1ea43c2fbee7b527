"""`Template`: items of a stretch of work as columns, made once and repeated; or one item a run.

What an item waits for inside its template are edges between two streams; the order within a
stream needs none. *Entries* wait for whatever the stretch works on; *exits* are what must have
ended before somebody works on its result.

What a unit does between two meetings with anything outside of it is one stretch of the compute
stream, whatever it is made of: operators, and exchanges among ranks of the same stage that nobody
else waits for. So a `Coarse` template has an item for every such *segment*, and keeps the exchanges
that something outside can hold up or wait for: those with other stages, those of parameters and
gradients, and those that a unit begins or ends with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foretrace.base import Bools, Int64s, UInt8s
from foretrace.graph import NO_LAYER, Phase
from foretrace.workload.blocks.block import Block, Item
from foretrace.workload.exchanges.exchange import Exchange
from foretrace.workload.layout.tables import (
    COMPUTE,
    NOTHING,
    NUM_STREAMS,
    STREAM_OF_GROUP,
    Tables,
)
from foretrace.workload.plan.plan import Group

# int64[items] each.
_COLUMNS = (
    "stream",
    "label",
    "operator",
    "operator_signature",
    "exchange",  # number of its kind; NOTHING for operators
    "part",
    "phase",
    "layer",  # from the first layer of the stretch; NO_LAYER
    "measured_ns",
)
Columns = Mapping[str, Int64s]

# Ranks of these share a stage and a unit's work.
_WITHIN = (Group.TENSOR, Group.CONTEXT, Group.EXPERT, Group.EXPERT_TENSOR)
IS_INSIDE = np.isin(  # bool[streams]
    np.arange(NUM_STREAMS), (COMPUTE, *(STREAM_OF_GROUP[group] for group in _WITHIN))
)

_UNITS = tuple(f"{phase.name.lower()} unit" for phase in Phase)


@dataclass(frozen=True)
class Template:
    """Items of a stretch of work on one rank, in the order in which they are launched."""

    columns: Columns
    member: UInt8s  # uint8[items], which of two woven stretches an item belongs to
    source: Int64s  # int64[edges], item waited for, on another stream
    target: Int64s  # int64[edges], item that waits
    entries: tuple[tuple[int, ...], ...]  # of each of the woven stretches
    exits: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        """Number of items."""
        return len(self.member)

    @cached_property
    def exchanges(self) -> list[tuple[int, int]]:
        """Stream of every item, and number of its exchange."""
        columns = self.columns
        return list(zip(columns["stream"].tolist(), columns["exchange"].tolist(), strict=True))

    @cached_property
    def edges(self) -> list[tuple[int, int]]:
        """Item waited for and item that waits, of all edges."""
        return list(zip(self.source.tolist(), self.target.tolist(), strict=True))

    @cached_property
    def operators(self) -> Int64s:
        """Items on the compute stream; int64[those]."""
        return np.flatnonzero(self.columns["stream"] == COMPUTE)

    @cached_property
    def first_operator(self) -> int:
        """The first item on the compute stream; NOTHING if there is none."""
        return int(self.operators[0]) if len(self.operators) else NOTHING

    @cached_property
    def last_operator(self) -> int:
        """The last one; NOTHING."""
        return int(self.operators[-1]) if len(self.operators) else NOTHING


@dataclass(frozen=True)
class PlacedTemplate:
    """A template with the layer, counted within a stretch, that it is the work of."""

    template: Template
    layer: int = NO_LAYER


def template_of_block(block: Block, tables: Tables) -> Template:
    """A block's items; its own `after` become edges.

    The first operator is an entry, and so is every exchange that names nothing it waits for.
    The last operator is an exit, and so is every exchange that no later item waits for.
    """
    streams = [_stream(item) for item in block.items]
    edges = [
        (before, place)
        for place, item in enumerate(block.items)
        for before in item.after
        if streams[before] != streams[place]
    ]
    awaited = {before for item in block.items for before in item.after}
    operators = [place for place, stream in enumerate(streams) if stream == COMPUTE]
    exchanges = [place for place, item in enumerate(block.items) if isinstance(item, Exchange)]
    free = [place for place in exchanges if not block.items[place].after]
    loose = [place for place in exchanges if place not in awaited]
    return Template(
        columns=_columns(block, streams, tables),
        member=np.zeros(len(streams), np.uint8),
        source=np.array([edge[0] for edge in edges], np.int64),
        target=np.array([edge[1] for edge in edges], np.int64),
        entries=((*operators[:1], *free),),
        exits=((*operators[-1:], *loose),),
    )


def _stream(item: Item) -> int:
    return STREAM_OF_GROUP[item.group] if isinstance(item, Exchange) else COMPUTE


def _columns(block: Block, streams: Sequence[int], tables: Tables) -> Columns:
    items = block.items
    operators = [tables.operator(item) for item in items]
    values: Mapping[str, object] = {
        "stream": streams,
        "label": [tables.names.of(item.label) for item in items],
        "operator": [pair[0] for pair in operators],
        "operator_signature": [pair[1] for pair in operators],
        "exchange": [tables.kind(item) for item in items],
        "part": [block.part] * len(items),
        "phase": [item.phase for item in items],
        "layer": [NO_LAYER] * len(items),
        "measured_ns": [item.measured_ns for item in items],
    }
    return {key: np.array(values[key], np.int64) for key in _COLUMNS}


def chained(
    parts: Sequence[PlacedTemplate], extra: Sequence[tuple[int, int]] = (), *, side: frozenset[int]
) -> Template:
    """Stretches one after the other, each working on the result of the one before.

    Args:
        parts: the stretches; none: nothing is done.
        extra: edges between items of two parts, as numbers of the whole's items.
        side: places of parts that work on nobody's result, and whose result nobody works on
            but `extra` says so.
    """
    if not parts:
        return NOTHING_DONE
    first = np.cumsum([0, *(len(part.template) for part in parts)])[:-1].astype(np.int64)
    stream = np.concatenate([part.template.columns["stream"] for part in parts])
    entries: list[int] = []
    results: list[int] | None = None
    edges = list(extra)
    for place, part in enumerate(parts):
        if place in side or not len(part.template):
            continue
        begin = int(first[place])
        for entry in part.template.entries[0]:
            if results is None:
                entries.append(entry + begin)
            else:
                edges.extend((result, entry + begin) for result in results)
        own = [one + begin for one in part.template.exits[0]]
        results = own if part.template.last_operator >= 0 else [*own, *(results or ())]
    pairs = np.array([edge for edge in edges if stream[edge[0]] != stream[edge[1]]], np.int64)
    pairs = pairs.reshape(-1, 2)
    sources = [part.template.source + begin for part, begin in zip(parts, first, strict=True)]
    targets = [part.template.target + begin for part, begin in zip(parts, first, strict=True)]
    return Template(
        columns=_joined_columns(parts),
        member=np.zeros(len(stream), np.uint8),
        source=np.concatenate([*sources, pairs[:, 0]]),
        target=np.concatenate([*targets, pairs[:, 1]]),
        entries=(tuple(entries),),
        exits=(tuple(results or ()),),
    )


def _joined_columns(parts: Sequence[PlacedTemplate]) -> Columns:
    columns = {
        key: np.concatenate([part.template.columns[key] for part in parts]) for key in _COLUMNS
    }
    sizes = [len(part.template) for part in parts]
    columns["layer"] = np.repeat(np.array([part.layer for part in parts], np.int64), sizes)
    return columns


NOTHING_DONE = Template(
    columns={key: np.zeros(0, np.int64) for key in _COLUMNS},
    member=np.zeros(0, np.uint8),
    source=np.zeros(0, np.int64),
    target=np.zeros(0, np.int64),
    entries=((),),
    exits=((),),
)


def woven(one: Template, other: Template) -> tuple[Template, Int64s, Int64s]:
    """Two stretches launched in turns, so that one's communication hides behind the other's work.

    Each is cut before every operator that waits for an exchange around experts, or for any where
    there are none; pieces alternate, spread evenly where one has more.

    Returns:
        Both together, and where in it the items of each are; int64[items] each.
    """
    when = np.concatenate([_turns(one), _turns(other)])
    member = np.repeat(np.array([0, 1], np.uint8), [len(one), len(other)])
    order = np.lexsort((np.arange(len(when)), member, when))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    own, others = place[: len(one)], place[len(one) :]

    def moved(items: Sequence[int], to: Int64s) -> tuple[int, ...]:
        return tuple(int(to[item]) for item in items)

    columns = {
        key: np.concatenate([one.columns[key], other.columns[key]])[order] for key in _COLUMNS
    }
    both = Template(
        columns=columns,
        member=member[order],
        source=np.concatenate([own[one.source], others[other.source]]),
        target=np.concatenate([own[one.target], others[other.target]]),
        entries=(moved(one.entries[0], own), moved(other.entries[0], others)),
        exits=(moved(one.exits[0], own), moved(other.exits[0], others)),
    )
    return both, own, others


def _turns(template: Template) -> NDArray[np.float64]:
    """When in a woven pair each item's piece has its turn, from 0 to 1; float64[items]."""
    size = len(template)
    stream = template.columns["stream"]
    is_awaiting = stream[template.target] == COMPUTE
    is_held = is_awaiting & (stream[template.source] == STREAM_OF_GROUP[Group.EXPERT])
    if not is_held.any():
        is_held = is_awaiting & (stream[template.source] != COMPUTE)
    piece = np.zeros(size + 1, np.int64)
    piece[template.target[is_held]] = 1
    piece = np.cumsum(piece)[:size]
    return (piece + 0.5) / (int(piece[-1]) + 1 if size else 1)


@dataclass(frozen=True)
class Coarse:
    """A template at unit grain, and what its items stand for."""

    template: Template
    fine: Template  # the same work, kernel by kernel
    item: Int64s  # int64[fine items], the item that stands for it

    @property
    def is_segment(self) -> Bools:
        """Which items are runs of operators; bool[items]."""
        found: Bools = self.template.columns["stream"] == COMPUTE
        return found

    @property
    def last_operators(self) -> Int64s:
        """The last operator of each run, counted among operators; int64[runs]."""
        place = np.flatnonzero(self.is_segment)
        of_operator = np.searchsorted(place, self.item[self.fine.operators])
        found: Int64s = np.searchsorted(of_operator, np.arange(len(place)), side="right") - 1
        return found

    def of(self, items: Int64s) -> Int64s:
        """Items that stand for some fine ones; NOTHING stays."""
        return np.where(items >= 0, np.append(self.item, NOTHING)[items], NOTHING)

    def of_all(self, items: Iterable[int]) -> tuple[int, ...]:
        """The same of several, each once."""
        return tuple(dict.fromkeys(int(self.item[item]) for item in items))


@dataclass(frozen=True)
class Outline:
    """Which items stand for those of a template at unit grain; nothing that they are made of."""

    rows: Int64s  # int64[items], the fine item that each begins with
    item: Int64s  # int64[fine items], the item that stands for it
    stream: Int64s  # int64[items]
    last_operators: Int64s  # int64[segments], the last operator of each among operators
    edges: tuple[tuple[int, int], ...]  # item waited for, item that waits
    entries: tuple[tuple[int, ...], ...]
    exits: tuple[tuple[int, ...], ...]

    @property
    def segments(self) -> Int64s:
        """Items that are runs of operators; int64[those]."""
        return np.flatnonzero(self.stream == COMPUTE)


class KnownOutlines:
    """Outlines of templates that differ in what their items are, but not in what they wait for."""

    def __init__(self) -> None:
        """Know none yet."""
        self._known: dict[object, Outline] = {}

    def of(self, fine: Template) -> Outline:
        """A template's, without any cuts."""
        shape = fine.columns["stream"].tobytes(), fine.source.tobytes(), fine.target.tobytes()
        key = (*shape, fine.entries, fine.exits)
        if key not in self._known:
            self._known[key] = outlined(fine)
        return self._known[key]


def outlined(fine: Template, cuts: Iterable[int] = ()) -> Outline:
    """What a template has one item per segment for.

    Args:
        fine: kernel by kernel.
        cuts: operators that a segment begins with besides those that must.
    """
    size = len(fine)
    stream = fine.columns["stream"]
    operators = fine.operators
    rows = item = np.arange(size)
    last = np.zeros(0, np.int64)
    if len(operators):
        is_kept = _kept(fine, stream)
        number = _segments(fine, operators, is_kept, cuts)
        is_lead = np.diff(number, prepend=-1) > 0
        last = np.append(np.flatnonzero(is_lead)[1:], len(operators)) - 1
        leads = operators[is_lead]
        rows = np.sort(np.concatenate([leads, np.flatnonzero(is_kept)]))
        place = np.full(size, NOTHING, np.int64)
        place[rows] = np.arange(len(rows))
        item = np.full(size, NOTHING, np.int64)
        item[is_kept] = place[is_kept]
        item[operators] = place[leads[number]]
        # An exchange inside belongs to the segment of the operator that is launched next.
        inside = np.flatnonzero(item == NOTHING)
        after = np.searchsorted(operators, inside)
        item[inside] = item[operators[np.minimum(after, len(operators) - 1)]]
    own = stream[rows]
    pairs = zip(item[fine.source].tolist(), item[fine.target].tolist(), strict=True)
    edges = sorted({pair for pair in pairs if own[pair[0]] != own[pair[1]]})

    def moved(of_members: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(dict.fromkeys(item[list(one)].tolist())) for one in of_members)

    return Outline(rows, item, own, last, tuple(edges), moved(fine.entries), moved(fine.exits))


def coarsened(fine: Template, tables: Tables, *, cuts: Iterable[int] = ()) -> Coarse:
    """A template with one item per segment.

    Args:
        fine: kernel by kernel.
        tables: takes the segments' names.
        cuts: operators that a segment begins with besides those that must.
    """
    if not len(fine.operators):
        return Coarse(fine, fine, np.arange(len(fine)))
    outline = outlined(fine, cuts)
    return Coarse(_template(fine, outline, tables), fine, outline.item)


def _kept(fine: Template, stream: Int64s) -> Bools:
    is_kept = ~IS_INSIDE[stream]
    ends = [one for own in (*fine.entries, *fine.exits) for one in own]
    is_kept[ends] = True
    found: Bools = is_kept & (stream != COMPUTE)
    return found


def _segments(fine: Template, operators: Int64s, is_kept: Bools, cuts: Iterable[int]) -> Int64s:
    """Number of the segment of every operator, rising from 0; int64[operators]."""
    stream = fine.columns["stream"]
    begins = np.zeros(len(fine) + 1, np.bool_)
    ends = np.zeros(len(fine), np.bool_)
    is_out = is_kept[fine.target] & (stream[fine.source] == COMPUTE)
    is_in = is_kept[fine.source] & (stream[fine.target] == COMPUTE)
    ends[fine.source[is_out]] = True
    begins[fine.target[is_in]] = True
    begins[[one for own in fine.entries for one in own]] = True
    ends[[one for own in fine.exits for one in own]] = True
    begins[list(cuts)] = True
    is_new = begins[operators]
    is_new[1:] |= ends[operators[:-1]]
    is_new[0] = True
    return np.cumsum(is_new) - 1


def _template(fine: Template, outline: Outline, tables: Tables) -> Template:
    rows, item = outline.rows, outline.item
    columns = {key: column[rows] for key, column in fine.columns.items()}
    is_segment = columns["stream"] == COMPUTE
    for name in ("operator", "operator_signature"):
        columns[name][is_segment] = NOTHING
    columns["measured_ns"][is_segment] = 0
    label = np.array([tables.names.of(name) for name in _UNITS])
    columns["label"][is_segment] = label[columns["phase"][is_segment]]
    is_other = fine.columns["layer"] != columns["layer"][item]
    columns["layer"][item[is_other]] = NO_LAYER
    pairs = np.array(outline.edges, np.int64).reshape(-1, 2)
    return replace(
        fine,
        columns=columns,
        member=fine.member[rows],
        source=pairs[:, 0],
        target=pairs[:, 1],
        entries=outline.entries,
        exits=outline.exits,
    )


def without_kept(coarse: Coarse) -> tuple[Template, Int64s]:
    """What the segments alone are made of, and where each of its items stands among the fine."""
    fine = coarse.fine
    is_own = coarse.is_segment[coarse.item]
    rows = np.flatnonzero(is_own)
    place = np.cumsum(is_own) - 1
    is_inside = is_own[fine.source] & is_own[fine.target]
    first, last = int(place[fine.first_operator]), int(place[fine.last_operator])
    template = replace(
        fine,
        columns={key: column[rows] for key, column in fine.columns.items()},
        member=fine.member[rows],
        source=place[fine.source[is_inside]],
        target=place[fine.target[is_inside]],
        entries=((first,),),
        exits=((last,),),
    )
    return template, rows

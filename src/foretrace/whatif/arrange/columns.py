"""The node columns of a new job's graph: copied, with what their new place says."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np
from numpy.typing import NDArray

from foretrace.base import Bools, Float64s, Int64s
from foretrace.graph import (
    NO_COLLECTIVE,
    NODE_COLUMNS,
    NodeKind,
)
from foretrace.whatif.arrange.ghosts import Ghosts
from foretrace.whatif.arrange.meetings import Meetings
from foretrace.whatif.arrange.sequence import NO_PLACED, Sequence
from foretrace.whatif.arrange.source import Source
from foretrace.whatif.recorded.program import MadeExchange, MadeOperator, NewJob, Piece

Columns = dict[str, NDArray[np.generic]]
_SCALED = (NodeKind.KERNEL, NodeKind.MEMCPY, NodeKind.MEMSET)
_LABELS = ("step", "part", "phase", "layer", "microbatch")
_COUNTED = ("step", "layer", "microbatch")


class Names:
    """A graph's table of names, to which made work adds its own."""

    def __init__(self, names: SequenceOf[str]) -> None:
        self._place: dict[str, int] = {}
        for at, name in enumerate(names):
            self._place.setdefault(name, at)
        self._names = list(names)

    def place(self, name: str) -> int:
        """Where a name stands; added if it is new."""
        if name not in self._place:
            self._place[name] = len(self._names)
            self._names.append(name)
        return self._place[name]

    @property
    def all(self) -> tuple[str, ...]:
        """The table."""
        return tuple(self._names)


def scales_of(sequence: Sequence) -> Float64s:
    """The scale of the piece that each node of the sequence is in; 1 of rank starts."""
    scale = np.array([*(placed.scale for placed in sequence.all_placed), 1.0])
    return scale[sequence.placed]


def columns_of(
    source: Source,
    sequence: Sequence,
    job: NewJob,
    *,
    meetings: Meetings,
    ghosts: Ghosts,
    names: Names,
) -> Columns:
    """Columns of the sequence's nodes, then of hubs, then of ghosts."""
    own = _of_sequence(source, sequence, job, meetings, names)
    lead = meetings.first[:-1]
    hubs = _hubs(own, meetings, lead, names)
    ghost = source.graph.columns(ghosts.source)
    # A ghost is of the step of what it holds up.
    after = ghosts.edges.target[len(ghosts.source) :]
    after = np.where(
        after >= len(sequence),
        meetings.finish[lead[np.maximum(after - len(sequence), 0)]] if len(lead) else 0,
        after,
    )
    ghost["step"] = own["step"][after]
    return {name: np.concatenate([own[name], hubs[name], ghost[name]]) for name in NODE_COLUMNS}


def _of_sequence(
    source: Source, sequence: Sequence, job: NewJob, meetings: Meetings, names: Names
) -> Columns:
    graph = source.graph
    is_copied = sequence.source >= 0
    node = np.maximum(sequence.source, 0)
    columns: Columns = {
        name: np.where(is_copied, getattr(graph, name)[node], column.neutral)
        for name, column in NODE_COLUMNS.items()
    }
    columns["kind"] = sequence.kind
    columns["rank"] = np.array([rank.rank for rank in job.ranks] or [0])[sequence.rank]
    columns["lane"] = sequence.lane
    columns["collective"] = np.full(len(sequence), NO_COLLECTIVE, np.int64)
    for place in (meetings.arrive, meetings.finish):
        columns["collective"][place] = meetings.of_member
    columns |= _labels(sequence, columns)
    columns["measured_ns"] = _work_ns(source, sequence, columns)
    for made in sequence.made:
        what = made.what
        own = slice(made.first, made.first + made.num_nodes)
        if isinstance(what, MadeOperator):
            columns["name"][own] = columns["operator"][own] = names.place(what.operator)
            columns["operator_signature"][own] = names.place(what.signature)
            columns["measured_ns"][made.first] = what.host_ns if source.has_device else 0
            continue
        name = what.collective.in_tables if isinstance(what, MadeExchange) else "wait"
        columns["name"][own] = names.place(name)
        if isinstance(what, MadeExchange):
            columns["measured_ns"][made.first] = what.host_ns
    return columns


def _labels(sequence: Sequence, columns: Columns) -> Columns:
    """Step, part, phase, layer and microbatch at the new place.

    What in a piece is labelled otherwise (calls between two blocks) keeps its own label; its
    layer and microbatch move as far as those of the piece.
    """
    is_placed = sequence.placed != NO_PLACED
    found: Columns = {}
    for name in _LABELS:
        stated, was = _stated(sequence, name)
        new, old = stated[sequence.placed], was[sequence.placed]
        own = columns[name].astype(np.int64)
        label = np.where(is_placed & (own == old), new, own)
        if name in _COUNTED:
            moves = is_placed & (own != old) & (own >= 0) & (old >= 0) & (new >= 0)
            label[moves] = np.maximum(own + new - old, 0)[moves]
        found[name] = label
    return found


def _stated(sequence: Sequence, name: str) -> tuple[Int64s, Int64s]:
    """A label of everything placed, and of its piece; a last one of what is in nothing placed."""
    neutral = NODE_COLUMNS[name].neutral
    new = [int(getattr(each, name)) for each in sequence.all_placed]
    old = [
        int(getattr(each.piece, name)) if isinstance(each.piece, Piece) else neutral
        for each in sequence.all_placed
    ]
    return np.array([*new, neutral], np.int64), np.array([*old, neutral], np.int64)


def _work_ns(source: Source, sequence: Sequence, columns: Columns) -> Int64s:
    """What recorded nodes took, times the scale of their piece."""
    scale = scales_of(sequence)
    work_ns = columns["measured_ns"].astype(np.int64)
    scaled = (*_SCALED,) if source.has_device else (*_SCALED, NodeKind.OPERATOR)
    is_scaled = np.isin(sequence.kind, scaled) & (scale != 1)
    work_ns[is_scaled] = np.rint(work_ns[is_scaled] * scale[is_scaled]).astype(np.int64)
    # A thread's first segment runs from the rank's start on: it is nobody's work elsewhere.
    begins = source.begins_thread[np.maximum(sequence.source, 0)] & (sequence.source >= 0)
    work_ns[begins & ~_first_on_threads(sequence)] = 0
    return work_ns


def _first_on_threads(sequence: Sequence) -> Bools:
    chained = np.flatnonzero(sequence.is_chained)
    _, first = np.unique(sequence.lane[chained], return_index=True)
    found = np.zeros(len(sequence), np.bool_)
    found[chained[first]] = True
    return found


def _hubs(own: Columns, meetings: Meetings, lead: Int64s, names: Names) -> Columns:
    """Columns of the hubs: labelled as one of their members is, but for the step."""
    size = len(meetings.collectives)
    columns: Columns = {
        name: np.full(size, column.neutral) for name, column in NODE_COLUMNS.items()
    }
    member = meetings.finish[lead]
    columns |= {name: own[name][member] for name in _LABELS if name != "step"}
    columns["kind"] = np.full(size, NodeKind.HUB, np.uint8)
    places = [names.place(each.name) for each in meetings.collectives]
    columns["name"] = np.array(places, np.int64)
    columns["collective"] = np.arange(size)
    return columns

"""`RankRun`: each rank's pieces as steps of units, what a schedule orders and layers fill.

A piece belongs to the unit of its phase and microbatch; what names no microbatch belongs to the
unit that it stands in or follows, but for loading data, which belongs to what comes. Where one
host thread waits for another between two units, the piece is cut: the wait belongs to the
backward pass, whatever is done next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

import numpy as np

from foretrace.base import Bools, Int64s, UInt8s
from foretrace.graph import (
    NO_LANE,
    NO_MICROBATCH,
    NO_STEP,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Part,
    Phase,
)
from foretrace.whatif.recorded.passes import runs_of_layers
from foretrace.whatif.recorded.program import Coordinates, Program, RecordedPiece

_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE)
_ENDS = (Part.EMBEDDING, Part.HEAD, Part.LOSS)
_Key = tuple[bool, int]  # forward or not, microbatch


class PieceRole(Enum):
    """What a piece is to its unit."""

    LAYER = "layer"
    BUCKET = "bucket"  # a collective of gradients or sharded parameters
    RECEIVE = "receive"  # from another stage, before the layers
    SEND = "send"  # to another stage, behind them
    END = "end"  # embedding, head, loss: of the model's first or last chunk alone
    BEGIN = "begin"  # one host thread hands over to the one that runs the backward pass
    RETURN = "return"  # and that one hands back
    REDUCED = "reduced"  # waits for buckets and what is made of them, behind the last layer
    OTHER = "other"


@dataclass(frozen=True)
class PieceInRole:
    """A piece, possibly a cut of a recorded one, in its role."""

    piece: RecordedPiece
    role: PieceRole


@dataclass(frozen=True)
class Slot:
    """What one unit does for one layer: recomputing it, its own work, its bucket."""

    layer: int
    entries: tuple[PieceInRole, ...]


@dataclass(frozen=True)
class RecordedUnit:
    """One pass of one chunk for one microbatch, in the order in which it was issued."""

    is_forward: bool
    microbatch: int
    chunk: int
    before: tuple[PieceInRole, ...]  # what stands before the first layer
    slots: tuple[Slot, ...]  # layers in the order of the pass
    after: tuple[PieceInRole, ...]

    @property
    def entries(self) -> Iterator[PieceInRole]:
        """All of it, in order."""
        yield from self.before
        for slot in self.slots:
            yield from slot.entries
        yield from self.after

    @property
    def key(self) -> tuple[bool, int, int]:
        """What names the unit in its step."""
        return self.is_forward, self.microbatch, self.chunk


@dataclass(frozen=True)
class StepRun:
    """One step of one rank."""

    step: int
    prologue: tuple[RecordedPiece, ...]  # data, zeroing, the step's mark
    units: tuple[RecordedUnit, ...]
    epilogue: tuple[RecordedPiece, ...]  # optimizer, synchronisation, the step's end


@dataclass(frozen=True)
class RankRun:
    """All that one rank ran."""

    rank: int
    coordinates: Coordinates
    opening: tuple[RecordedPiece, ...]  # before the first step
    steps: tuple[StepRun, ...]
    closing: tuple[RecordedPiece, ...]  # behind the last one


@dataclass(frozen=True)
class _Marked:
    """A piece with what it tells of its unit."""

    piece: RecordedPiece
    key: _Key | None
    role: PieceRole
    exchanges: bool = False  # it takes part in a collective


def calls_work(kind: UInt8s) -> Bools:
    """Which of some nodes, by their kinds, are calls of a host thread that launch or do work."""
    found: Bools = (kind == NodeKind.LAUNCH) | (kind == NodeKind.OPERATOR)
    return found


def begin_of_call(kind: UInt8s, place: int) -> int:
    """Where, among the kinds of a piece's nodes, the host's way to the call at a place begins."""
    before = np.flatnonzero(calls_work(kind[:place]))
    begin = int(before[-1]) + 1 if len(before) else 0
    while begin < place and kind[begin] >= NodeKind.KERNEL:
        begin += 1
    return begin


def thread_of(graph: ExecutionGraph, nodes: Int64s) -> int:
    """The host thread that work is launched from or done on; NO_LANE if there is none."""
    calls = nodes[calls_work(graph.kind[nodes])]
    return int(graph.lane[calls[0]]) if len(calls) else NO_LANE


def parsed(program: Program) -> dict[int, RankRun]:
    """Every recorded rank's pieces as steps of units, by rank."""
    hands = _Hands(program.graph)
    chunks = chunk_layers_of(program.layers_of_stage)
    chunk_of_layer = {layer: chunk for chunk, layers in chunks.items() for layer in layers}
    found = {}
    for rank, pieces in program.pieces_by_rank.items():
        opening, steps, closing = _split_steps(pieces)
        found[rank] = RankRun(
            rank=rank,
            coordinates=program.coordinates_by_rank[rank],
            opening=opening,
            steps=tuple(
                _step_run(step, list(inside), hands, chunk_of_layer) for step, inside in steps
            ),
            closing=closing,
        )
    return found


def chunk_layers_of(layers_of_stage: Sequence[Sequence[int]]) -> dict[int, tuple[int, ...]]:
    """Layers of every chunk: a stage's runs of layers that follow each other are its chunks."""
    num_stages = len(layers_of_stage)
    return {
        place * num_stages + stage: run
        for stage, layers in enumerate(layers_of_stage)
        for place, run in enumerate(runs_of_layers(layers) if layers else ())
    }


def _split_steps(
    pieces: Sequence[RecordedPiece],
) -> tuple[
    tuple[RecordedPiece, ...],
    list[tuple[int, tuple[RecordedPiece, ...]]],
    tuple[RecordedPiece, ...],
]:
    """Before the first step, each step, behind the last; what is in none follows its step."""
    inside = [place for place, piece in enumerate(pieces) if piece.step != NO_STEP]
    if not inside:
        return tuple(pieces), [], ()
    first, last = inside[0], inside[-1]
    steps: list[tuple[int, list[RecordedPiece]]] = []
    for piece in pieces[first : last + 1]:
        if not steps or (piece.step not in {NO_STEP, steps[-1][0]} and piece.step > steps[-1][0]):
            steps.append((piece.step, []))
        steps[-1][1].append(piece)
    return (
        tuple(pieces[:first]),
        [(step, tuple(each)) for step, each in steps],
        tuple(pieces[last + 1 :]),
    )


def _step_run(
    step: int, pieces: list[RecordedPiece], hands: _Hands, chunk_of_layer: Mapping[int, int]
) -> StepRun:
    marked = _joined(_without_afterthoughts(list(hands.cut(pieces))))
    keyed = [place for place, each in enumerate(marked) if each.key is not None]
    if not keyed:
        return StepRun(step, tuple(pieces), (), ())
    first, last = keyed[0], keyed[-1]
    runs: list[list[_Marked]] = []
    for each in marked[first : last + 1]:
        if not runs or runs[-1][-1].key != each.key:
            runs.append([])
        runs[-1].append(each)
    units = [unit for run in runs for unit in _units(run, chunk_of_layer)]
    return StepRun(
        step,
        tuple(each.piece for each in marked[:first]),
        tuple(units),
        tuple(each.piece for each in marked[last + 1 :]),
    )


def _without_afterthoughts(marked: list[_Marked]) -> list[_Marked]:
    """Pieces, of no pass what stands behind the update and is no part of the model.

    A loss read back is such, in a step without any backward pass.
    """
    keyed = [place for place, each in enumerate(marked) if each.key is not None]
    found = list(marked)
    for before, place in reversed(list(pairwise(keyed))):
        between = marked[before + 1 : place]
        is_behind = any(each.piece.phase is Phase.OPTIMIZER for each in between)
        if marked[place].piece.part is not Part.UNKNOWN:
            break
        if is_behind:
            found[place:] = [replace(each, key=None) for each in found[place:]]
    return found


def _key(piece: RecordedPiece) -> _Key | None:
    if piece.microbatch == NO_MICROBATCH:
        return None
    if piece.phase is Phase.FORWARD:
        return True, piece.microbatch
    return (False, piece.microbatch) if piece.phase in _BACKWARD else None


def _role(piece: RecordedPiece) -> PieceRole:
    if piece.part is Part.LAYER:
        return PieceRole.LAYER
    if piece.part is Part.BUCKET:
        return PieceRole.BUCKET
    return PieceRole.END if piece.part in _ENDS else PieceRole.OTHER


def _joined(marked: list[_Marked]) -> list[_Marked]:
    """Everything between the first and the last unit, and what ends a unit, has its key."""
    found: list[_Marked] = []
    behind = _keys_behind(marked)
    before: _Key | None = None
    for each, following in zip(marked, behind, strict=True):
        key = each.key
        if key is None and before is not None:
            if following == before or _is_of_pass(each):
                key = before
            elif following is not None:
                key = following if each.piece.phase is Phase.DATA else before
        before = key  # behind the last unit `None` stays: an epilogue has begun
        found.append(replace(each, key=key))
    return found


def _keys_behind(marked: Sequence[_Marked]) -> list[_Key | None]:
    """For every piece the key of the next one, itself among them, that has one."""
    found: list[_Key | None] = []
    key: _Key | None = None
    for each in reversed(marked):
        key = each.key if each.key is not None else key
        found.append(key)
    return found[::-1]


def _is_of_pass(each: _Marked) -> bool:
    return each.role is PieceRole.RETURN or each.piece.phase in (Phase.FORWARD, *_BACKWARD)


def _units(run: list[_Marked], chunk_of_layer: Mapping[int, int]) -> Iterator[RecordedUnit]:
    """A run of pieces of one pass of one microbatch is a unit; of several chunks, several."""
    is_forward, microbatch = run[0].key or (True, 0)
    chunks: list[tuple[int, list[_Marked]]] = []
    for each in run:
        chunk = chunk_of_layer.get(each.piece.layer) if each.role is PieceRole.LAYER else None
        if chunk is not None and (not chunks or chunks[-1][0] not in {chunk, -1}):
            chunks.append((chunk, []))
        elif not chunks:
            chunks.append((-1 if chunk is None else chunk, []))
        elif chunk is not None:
            chunks[-1] = (chunk, chunks[-1][1])
        chunks[-1][1].append(each)
    for chunk, inside in chunks:
        yield _unit(inside, is_forward=is_forward, microbatch=microbatch, chunk=max(chunk, 0))


def _unit(marked: list[_Marked], *, is_forward: bool, microbatch: int, chunk: int) -> RecordedUnit:
    of_layers = [place for place, each in enumerate(marked) if each.role is PieceRole.LAYER]
    first = of_layers[0] if of_layers else _first_behind_ends(marked)
    last = of_layers[-1] if of_layers else first - 1
    while last + 1 < len(marked) and _is_bucket_of_layer(marked[last + 1]):
        last += 1
    issued = [
        at for at, each in enumerate(marked) if each.role is PieceRole.BUCKET and each.exchanges
    ]
    last_bucket = issued[-1] if issued else -1
    slots: list[tuple[int, list[PieceInRole]]] = []
    for each in marked[first : last + 1]:
        is_next = each.role is PieceRole.LAYER and (not slots or slots[-1][0] != each.piece.layer)
        if is_next:
            slots.append((each.piece.layer, []))
        slots[-1][1].append(PieceInRole(each.piece, each.role))
    return RecordedUnit(
        is_forward=is_forward,
        microbatch=microbatch,
        chunk=chunk,
        before=tuple(_outside(marked[:first], PieceRole.RECEIVE)),
        slots=tuple(Slot(layer, tuple(entries)) for layer, entries in slots),
        after=tuple(_outside(marked[last + 1 :], PieceRole.SEND, last_bucket - last - 1)),
    )


def _first_behind_ends(marked: list[_Marked]) -> int:
    """Of a unit without layers: all stands before them, but what sends."""
    place = len(marked)
    while place and marked[place - 1].piece.part is Part.TRANSFER:
        place -= 1
    return place or len(marked)


def _is_bucket_of_layer(each: _Marked) -> bool:
    return each.role is PieceRole.BUCKET and each.piece.layer >= 0


def _outside(
    marked: Sequence[_Marked], transfer: PieceRole, last_bucket: int = 0
) -> Iterator[PieceInRole]:
    """Entries beside the layers; behind the last bucket stands what is made of all of them."""
    for place, each in enumerate(marked):
        role = each.role
        if each.piece.part is Part.TRANSFER and role is PieceRole.OTHER:
            role = transfer
        elif role is PieceRole.BUCKET and transfer is PieceRole.SEND and place > last_bucket:
            role = PieceRole.REDUCED
        yield PieceInRole(each.piece, role)


class _Hands:
    """Where one host thread waits for another."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self.graph = graph
        source, target = graph.edges_of(EdgeKind.THREAD)
        is_host = graph.is_host[source]
        is_other = graph.lane[source] != graph.lane[target]
        self.is_woken: Bools = np.zeros(graph.num_nodes, bool)
        self.is_woken[target[is_host & is_other]] = True

    def cut(self, pieces: Sequence[RecordedPiece]) -> Iterator[_Marked]:
        """Pieces with their roles; waits of host threads for each other stand alone."""
        backward_lane = self._backward_lane(pieces)
        before: tuple[_Key | None, int] | None = None
        for piece in pieces:
            key, lane = _key(piece), thread_of(self.graph, piece.nodes)
            rest = piece
            if before is not None and lane >= 0 and (key, lane) != before:
                heads, rest = self._heads(piece)
                for head in heads:
                    is_begin = self.graph.lane[head.nodes[-1]] == backward_lane
                    role = PieceRole.BEGIN if is_begin else PieceRole.RETURN
                    yield _Marked(head, key if is_begin else None, role)
            if lane >= 0:
                before = key, lane
            if len(rest.nodes):
                exchanges = bool((self.graph.kind[rest.nodes] == NodeKind.ARRIVE).any())
                yield _Marked(rest, key, _role(rest), exchanges)

    def _heads(self, piece: RecordedPiece) -> tuple[list[RecordedPiece], RecordedPiece]:
        """What stands before each wait of a piece's beginning, up to it; and the rest."""
        nodes = piece.nodes
        work = np.flatnonzero(calls_work(self.graph.kind[nodes]))
        end = int(work[0]) if len(work) else len(nodes)
        begin, heads = 0, []
        for place in np.flatnonzero(self.is_woken[nodes[:end]]).tolist():
            heads.append(replace(piece, nodes=nodes[begin : place + 1]))
            begin = place + 1
        return heads, replace(piece, nodes=nodes[begin:]) if heads else piece

    def _backward_lane(self, pieces: Sequence[RecordedPiece]) -> int:
        lanes = [
            thread_of(self.graph, piece.nodes)
            for piece in pieces
            if piece.phase is Phase.BACKWARD and piece.part is Part.LAYER
        ]
        lanes = [lane for lane in lanes if lane >= 0]
        return max(set(lanes), key=lanes.count) if lanes else NO_LANE

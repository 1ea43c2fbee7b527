"""Buckets of gradients in the last microbatch's backward pass of a new job.

Where every layer closes its own buckets, these go with their layers. Else, and where buckets are
to hold more or less, they are filled anew: in the order of the backward pass, each as large as is
stated, or as recorded ones are on average, and like the recorded one that was issued there: the
last of them shares nothing with the backward pass. What waits for each goes with it, counted from
the last one, which is waited for longest. Together they hold the stage's parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph import (
    NO_LAYER,
    Collective,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Part,
)
from foretrace.whatif.rearrange.new_units import NewUnit, PlacedPiece, at_place, made_in
from foretrace.whatif.rearrange.recorded_units import (
    PieceInRole,
    PieceRole,
    RecordedUnit,
    begin_of_call,
    calls_work,
)
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.recorded.program import MadeWait, RecordedPiece
from foretrace.workload import Filled, Group, filled

TOLERANCE = 1e-6  # of a factor that is no change: bytes are whole numbers
# Of a full bucket. Software ends buckets with whole parameters, so that an average misses by
# some share: 3% on DDP's buckets of 4 MiB over parameters of up to 2 MiB.
_SCRAP = 0.1

_BETWEEN_STREAMS = (EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED, EdgeKind.THREAD)


@dataclass(frozen=True)
class Filling:
    """How buckets of the new job are filled."""

    is_anew: bool = False  # whatever layers there are: of another size, or issued when full now
    full_bytes: int | None = None  # of a full bucket; `None`: as recorded ones are on average
    is_put_off: bool = False  # issued behind the backward pass now, and beside it before


@dataclass(frozen=True)
class StageWeights:
    """Parameters of a new stage, and of the recorded one that it is like."""

    own: float
    recorded: float
    of_layer: Mapping[int, float]  # by recorded layer
    of_first: float  # of what the rank holds before the first layer; 0 if it does not
    of_last: float

    @property
    def factor(self) -> float:
        """How many times as many."""
        return self.own / self.recorded if self.own and self.recorded else 1.0


@dataclass(frozen=True)
class Buckets:
    """What is known of the recorded buckets."""

    unit_index: UnitIndex
    waits: BucketWaits
    group: Group  # over which gradients are reduced
    has_device: bool
    has_sizes: bool  # else each counts as much as any other

    @staticmethod
    def of(unit_index: UnitIndex, group: Group) -> Buckets:
        """Those of a recording."""
        graph = unit_index.program.graph
        has_device = graph.has_device
        return Buckets(unit_index, BucketWaits(graph), group, has_device, have_sizes(graph))

    def carried(self, unit: NewUnit, stage: StageWeights, filling: Filling) -> NewUnit:
        """A unit with recorded buckets, where they are full, waited for, and of the right size.

        Args:
            unit: a backward pass of the last microbatch.
            stage: parameters of its stage, and of the one whose frame it has.
            filling: how buckets are filled.
        """
        is_alike = self._each_layer_closes(unit.frame)
        is_same = [slot.source for slot in unit.slots] == [slot.layer for slot in unit.frame.slots]
        if filling.is_anew or not (is_alike or is_same):
            unit = self._filled(unit, stage, filling)
        if filling.is_put_off:
            unit = self._put_off(unit)
        num_new = sum(self._issues(each.placed.piece) for each in unit.work if _is_bucket(each))
        recorded = [each.piece for each in unit.frame.entries if each.role is PieceRole.BUCKET]
        num_old = sum(self._issues(piece) for piece in recorded)
        after, is_tied = self._waits(unit.after, num_old, num_new)
        unit = replace(unit, after=after)
        own, old = self._bytes(unit), sum(map(self._bytes_of, recorded))
        factor_bytes = stage.factor * old / own if own and old else 1.0
        if abs(factor_bytes - 1) > TOLERANCE:
            unit = _scaled(unit, PieceRole.BUCKET, scale_bytes=factor_bytes)
        copied = stage.factor * num_old / max(num_new, 1) if is_tied else stage.factor
        if abs(copied - 1) > TOLERANCE:
            unit = _scaled(unit, PieceRole.REDUCED, scale=copied, scale_bytes=copied)
        return unit

    def _each_layer_closes(self, unit: RecordedUnit) -> bool:
        """Whether all layers issue as many buckets, one at least."""
        counts = {
            sum(self._issues(each.piece) for each in slot.entries if each.role is PieceRole.BUCKET)
            for slot in unit.slots
        }
        return len(counts) == 1 and 0 not in counts

    def _filled(self, unit: NewUnit, stage: StageWeights, filling: Filling) -> NewUnit:
        """A unit whose buckets are issued where they are full."""
        templates = [
            PlacedPiece(
                at_place(entry.piece, unit.step, layer=NO_LAYER, microbatch=unit.microbatch),
                PieceRole.BUCKET,
            )
            for entry in unit.frame.entries
            if entry.role is PieceRole.BUCKET and self._issues(entry.piece)
        ]
        if not templates:
            return unit
        sizes = [self._bytes_of(each.placed.piece) for each in templates]
        full = sum(sizes[:-1]) / (len(sizes) - 1) if len(sizes) > 1 else float(sizes[0])
        per_weight = sum(sizes) / stage.recorded if stage.recorded else 0.0
        full = _without_scrap(max(filling.full_bytes or full, 1.0), stage.own * per_weight)
        layers = [stage.of_layer.get(slot.source, 0.0) for slot in unit.slots]
        amounts = [each * per_weight for each in (stage.of_last, *layers, stage.of_first)]
        new = list(filled(amounts, full, tolerance=TOLERANCE))
        made = []
        for one, at in zip(new, _issued_there([each.amount for each in new], sizes), strict=True):
            like, own = templates[at], sizes[at]
            scale = one.amount / own if own > 0 else 1.0
            made.append((one, replace(like, placed=replace(like.placed, scale_bytes=scale))))
        return issued(unit.without(self._is_issued), made, full, is_inside=True)

    def _put_off(self, unit: NewUnit) -> NewUnit:
        """A unit that issues its buckets behind its backward work, and waits for each."""
        bare = unit.without(self._is_issued)
        place = _end_of_work(bare.after)
        late: list[PlacedPiece] = []
        for each in filter(self._is_issued, unit.work):
            late.append(each)
            if not self.has_device:
                wait = replace(each.placed, piece=MadeWait(group=self.group), scale_bytes=1.0)
                late.append(PlacedPiece(wait, PieceRole.REDUCED))
        return replace(bare, after=(*bare.after[:place], *late, *bare.after[place:]))

    def _is_issued(self, each: PlacedPiece) -> bool:
        return _is_bucket(each) and self._issues(each.placed.piece)

    def _issues(self, piece: object) -> bool:
        """Whether a piece takes part in a collective."""
        if not isinstance(piece, RecordedPiece):
            return False
        return bool((self.unit_index.program.graph.kind[piece.nodes] == NodeKind.ARRIVE).any())

    def _waits(
        self, after: tuple[PlacedPiece, ...], num_old: int, num_new: int
    ) -> tuple[tuple[PlacedPiece, ...], bool]:
        """What waits for each bucket, once per new bucket, if it can be told apart."""
        reduced = [each for each in after if each.role is PieceRole.REDUCED]
        pieces = [each.placed.piece for each in reduced]
        entries = [
            PieceInRole(each, PieceRole.REDUCED)
            for each in pieces
            if isinstance(each, RecordedPiece)
        ]
        parts = self.waits.parts(entries, num_old)
        if not (num_old and reduced) or len(parts) != num_old:
            return after, False
        if num_new == num_old:
            return after, True
        chosen = [parts[max(num_old - num_new + place, 0)] for place in range(num_new)]
        like = reduced[0]
        work = tuple(
            replace(like, placed=replace(like.placed, piece=entry.piece))
            for part in chosen
            for entry in part
        )
        first = next(at for at, each in enumerate(after) if each.role is PieceRole.REDUCED)
        rest = tuple(each for each in after if each.role is not PieceRole.REDUCED)
        return (*rest[:first], *work, *rest[first:]), True

    def _bytes(self, unit: NewUnit) -> float:
        return sum(
            self._bytes_of(each.placed.piece) * each.placed.scale_bytes
            for each in unit.work
            if _is_bucket(each)
        )

    def _bytes_of(self, piece: object) -> int:
        if not isinstance(piece, RecordedPiece):
            return 0
        found = ended_in(self.unit_index.program.graph, piece)
        return sum(max(each.num_bytes, 0) for each in found) if self.has_sizes else len(found)


def ended_in(graph: ExecutionGraph, piece: RecordedPiece) -> list[Collective]:
    """The collectives that end in a piece."""
    finishes = piece.nodes[graph.kind[piece.nodes] == NodeKind.FINISH]
    return [graph.collectives[each] for each in np.unique(graph.collective[finishes]).tolist()]


def have_sizes(graph: ExecutionGraph) -> bool:
    """Whether a recording says how many bytes each of its buckets holds."""
    is_bucket = (graph.kind == NodeKind.FINISH) & (graph.part == Part.BUCKET)
    found = np.unique(graph.collective[is_bucket])
    return all(graph.collectives[each].num_bytes > 0 for each in found.tolist())


def _is_bucket(each: PlacedPiece) -> bool:
    return each.role is PieceRole.BUCKET


def _end_of_work(after: Sequence[PlacedPiece]) -> int:
    """Where, behind the layers, nothing is added to gradients any more."""
    waiting = (PieceRole.REDUCED, PieceRole.RETURN, PieceRole.SEND)
    return next((at for at, each in enumerate(after) if each.role in waiting), len(after))


def _issued_there(new: Sequence[float], recorded: Sequence[float]) -> list[int]:
    """For each new bucket, the recorded one that was issued when as much was reduced."""
    ends, old_ends = np.cumsum(new), np.cumsum(recorded)
    share = ends / max(float(ends[-1]), 1.0) if len(ends) else ends
    old_share = old_ends / max(float(old_ends[-1]), 1.0)
    place = np.searchsorted(old_share, share * (1 - TOLERANCE))
    return [min(int(at), len(recorded) - 1) for at in place]


def _without_scrap(full: float, total: float) -> float:
    """Bytes of a full bucket, a little more if else next to nothing were left for the last one.

    Where buckets end is known to a parameter, and their average a little less.
    """
    count = int(total / full + TOLERANCE)
    scrap = total / full - count
    return total / count if count and TOLERANCE < scrap < _SCRAP else full


def issued(
    unit: NewUnit, buckets: Sequence[tuple[Filled, PlacedPiece]], full: float, *, is_inside: bool
) -> NewUnit:
    """A unit that issues buckets where they are full, and those that never are behind all work.

    Args:
        unit: a backward pass without buckets.
        buckets: each with when it is full; places are what stands before the layers, each layer,
            and what follows.
        full: what a full one holds.
        is_inside: in the midst of what fills them; else behind all of it.
    """
    end = _end_of_work(unit.after)
    stretches = [*unit.stretches[:-1], unit.after[:end]]
    by_place: list[list[tuple[float, PlacedPiece]]] = [[] for _ in stretches]
    for one, bucket in buckets:
        is_full = one.amount >= full
        place = one.place if is_full else len(stretches) - 1
        by_place[place].append((one.share if is_inside and is_full else 1.0, bucket))
    *inside, after = map(_with_buckets, stretches, by_place)
    return unit.with_stretches([*inside, (*after, *unit.after[end:])])


def with_wait(unit: NewUnit, group: Group) -> NewUnit:
    """A unit that waits, behind all its work, for what it reduces over a group."""
    wait = made_in(unit, MadeWait(group=group), Part.BUCKET)
    place = _end_of_work(unit.after)
    after = (*unit.after[:place], PlacedPiece(wait, PieceRole.REDUCED), *unit.after[place:])
    return replace(unit, after=after)


def _with_buckets(
    work: Sequence[PlacedPiece], buckets: Sequence[tuple[float, PlacedPiece]]
) -> tuple[PlacedPiece, ...]:
    """Work with buckets, each behind a share of it."""
    layer = next((each.placed.layer for each in work if each.placed.layer >= 0), NO_LAYER)
    found: list[PlacedPiece] = []
    begin = 0
    for share, bucket in buckets:
        place = min(math.ceil(len(work) * share - TOLERANCE), len(work))
        found += work[begin:place]
        found.append(replace(bucket, placed=replace(bucket.placed, layer=layer)))
        begin = max(begin, place)
    return (*found, *work[begin:])


def _scaled(
    unit: NewUnit, role: PieceRole, *, scale: float = 1.0, scale_bytes: float = 1.0
) -> NewUnit:
    def of(each: PlacedPiece) -> PlacedPiece:
        if each.role is not role:
            return each
        return replace(each, placed=replace(each.placed, scale=scale, scale_bytes=scale_bytes))

    return unit.with_stretches(map(of, own) for own in unit.stretches)


class BucketWaits:
    """Cuts what waits for buckets into what waits for each."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._kind = graph.kind
        self._is_wait = _waits(graph)

    def parts(
        self, entries: Sequence[PieceInRole], count: int
    ) -> tuple[tuple[PieceInRole, ...], ...]:
        """Entries cut into as many parts as there are buckets; one part if that cannot be told.

        Each part waits for another bucket; where waits left no trace in the recording, because
        nobody had to wait, each has as many launches.
        """
        if not count:
            return (tuple(entries),)
        nodes = [entry.piece.nodes for entry in entries]
        waits = [self._begins(each, self._is_wait[each]) for each in nodes]
        works = [self._begins(each, calls_work(self._kind[each])) for each in nodes]
        num_works = sum(map(len, works))
        if sum(map(len, waits)) == count:
            return _parts(entries, waits, 1)
        if num_works and num_works % count == 0:
            return _parts(entries, works, num_works // count)
        return (tuple(entries),)

    def _begins(self, nodes: Int64s, is_wanted: Bools) -> list[int]:
        """Where, in a piece's nodes, the host's way to each wanted one begins."""
        kind = self._kind[nodes]
        return [begin_of_call(kind, place) for place in np.flatnonzero(is_wanted).tolist()]


def _parts(
    entries: Sequence[PieceInRole], begins: Sequence[Sequence[int]], every: int
) -> tuple[tuple[PieceInRole, ...], ...]:
    """Entries cut at every so many beginnings, but the first."""
    found: list[list[PieceInRole]] = [[]]
    count = 0
    for entry, places in zip(entries, begins, strict=True):
        begin = 0
        for place in places:
            if count and count % every == 0:
                found[-1] += _cut(entry, begin, place)
                found.append([])
                begin = place
            count += 1
        found[-1] += _cut(entry, begin, len(entry.piece.nodes))
    return tuple(tuple(part) for part in found)


def _cut(entry: PieceInRole, begin: int, end: int) -> list[PieceInRole]:
    if begin >= end:
        return []
    return [replace(entry, piece=replace(entry.piece, nodes=entry.piece.nodes[begin:end]))]


def _waits(graph: ExecutionGraph) -> Bools:
    """Host nodes that wait for a bucket, or launch what does; bool[nodes]."""
    target = graph.edge_target
    source = graph.predecessor
    is_bucket = (graph.kind[source] == NodeKind.FINISH) & (graph.part[source] == Part.BUCKET)
    is_awaited = is_bucket & np.isin(graph.edge_kind, _BETWEEN_STREAMS)
    waiting = np.zeros(graph.num_nodes, bool)
    waiting[target[is_awaited]] = True
    is_launch = (graph.edge_kind == EdgeKind.LAUNCH) & waiting[target]
    found = waiting & (graph.kind < NodeKind.KERNEL)
    found[source[is_launch]] = True
    return found

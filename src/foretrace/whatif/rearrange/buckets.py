"""Buckets of gradients in the last microbatch's backward pass of a new job.

Recorded buckets go with their layers, and what waits for each of them with it, counted from the
last one, which is waited for longest. A stage whose last layer closed no bucket gets the closing
one of the stage it is like. Where parameters are not what the copied buckets add up to, all of
them grow or shrink alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.graph import NodeKind, Phase
from foretrace.whatif.rearrange.composition import NewSlot, NewUnit, Work, without_roles
from foretrace.whatif.rearrange.library import Library
from foretrace.whatif.rearrange.units import Entry, RecordedUnit, Role
from foretrace.whatif.rearrange.waits import BucketWaits
from foretrace.whatif.recorded.program import Piece

REDUCTION = (Role.BUCKET, Role.REDUCED)
_TOLERANCE = 1e-6  # of a factor that is no change: bytes are whole numbers


@dataclass(frozen=True)
class Buckets:
    """What is known of the recorded buckets."""

    library: Library
    waits: BucketWaits

    @staticmethod
    def of(library: Library) -> Buckets:
        """Those of a recording."""
        return Buckets(library, BucketWaits(library.program.graph))

    def carried(self, unit: NewUnit, factor: float) -> NewUnit:
        """A unit with recorded buckets, closed, waited for, and of the right size.

        Args:
            unit: a backward pass of the last microbatch.
            factor: its stage's parameters over those of the stage whose frame it has.
        """
        unit = _closed(unit)
        num_new = sum(_is_bucket(each) for each in unit.work)
        num_old = sum(entry.role is Role.BUCKET for entry in unit.frame.entries)
        after, is_tied = self._waits(unit.after, num_old, num_new)
        own, old = self._bytes(unit), self._recorded_bytes(unit.frame)
        factor_bytes = factor * old / own if own and old else 1.0
        unit = replace(unit, after=after)
        if abs(factor_bytes - 1) > _TOLERANCE:
            unit = _scaled(unit, Role.BUCKET, scale_bytes=factor_bytes)
        copied = factor_bytes if is_tied else factor
        if abs(copied - 1) > _TOLERANCE:
            unit = _scaled(unit, Role.REDUCED, scale=copied, scale_bytes=copied)
        return unit

    def _waits(
        self, after: tuple[Work, ...], num_old: int, num_new: int
    ) -> tuple[tuple[Work, ...], bool]:
        """What waits for each bucket, once per new bucket, if it can be told apart."""
        reduced = [each for each in after if each.role is Role.REDUCED]
        pieces = [each.placed.piece for each in reduced]
        entries = [Entry(each, Role.REDUCED) for each in pieces if isinstance(each, Piece)]
        parts = self.waits.parts(entries, num_old)
        if not num_old or len(parts) != num_old:
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
        first = next(at for at, each in enumerate(after) if each.role is Role.REDUCED)
        rest = tuple(each for each in after if each.role is not Role.REDUCED)
        return (*rest[:first], *work, *rest[first:]), True

    def _bytes(self, unit: NewUnit) -> float:
        return sum(
            self._bytes_of(each.placed.piece) for each in unit.work if each.role is Role.BUCKET
        )

    def _recorded_bytes(self, unit: RecordedUnit) -> float:
        return sum(
            self._bytes_of(entry.piece) for entry in unit.entries if entry.role is Role.BUCKET
        )

    def _bytes_of(self, piece: object) -> int:
        if not isinstance(piece, Piece):
            return 0
        graph = self.library.program.graph
        finishes = piece.nodes[graph.kind[piece.nodes] == NodeKind.FINISH]
        found = np.unique(graph.collective[finishes])
        return sum(max(graph.collectives[each].num_bytes, 0) for each in found.tolist())


def dropped(unit: NewUnit) -> NewUnit:
    """A unit that reduces nothing."""
    return without_roles(unit, REDUCTION)


def _is_bucket(each: Work) -> bool:
    return each.role is Role.BUCKET


def _closed(unit: NewUnit) -> NewUnit:
    """A unit whose last layer closes a bucket, if the last one of its frame did."""
    if not unit.slots or not unit.frame.slots:
        return unit
    closing = [each for each in unit.frame.slots[-1].entries if each.role is Role.BUCKET]
    last = unit.slots[-1]
    if not closing or any(_is_bucket(each) for each in last.work):
        return unit
    first = last.work[0].placed
    added = tuple(
        Work(
            replace(first, piece=each.piece, part=each.piece.part, phase=Phase.BACKWARD),
            Role.BUCKET,
        )
        for each in closing
    )
    slot = replace(last, work=(*last.work, *added))
    return replace(unit, slots=(*unit.slots[:-1], slot))


def _scaled(unit: NewUnit, role: Role, *, scale: float = 1.0, scale_bytes: float = 1.0) -> NewUnit:
    def of(work: Iterable[Work]) -> tuple[Work, ...]:
        return tuple(
            replace(each, placed=replace(each.placed, scale=scale, scale_bytes=scale_bytes))
            if each.role is role
            else each
            for each in work
        )

    slots: Sequence[NewSlot] = [replace(slot, work=of(slot.work)) for slot in unit.slots]
    return replace(unit, before=of(unit.before), slots=tuple(slots), after=of(unit.after))

"""Gradients, optimizer states and parameters divided over data-parallel ranks, or no longer.

ZeRO-1: gradients are reduced and scattered instead of all-reduced, each rank updates its part, and
all parts are gathered behind the update (Megatron's distributed optimizer). ZeRO-2: scattered
bucket by bucket in every backward pass. ZeRO-3: a part's parameters (a layer, the embedding, the
head) are gathered before it is used, as many parts ahead as the plan says, and its gradients are
scattered behind its backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from foretrace.base import CollectiveKind, number_format
from foretrace.graph import NO_LAYER, Part, Phase
from foretrace.whatif.rearrange.buckets import ended_in, with_wait
from foretrace.whatif.rearrange.new_exchanges import Maker
from foretrace.whatif.rearrange.new_units import NewUnit, PlacedPiece, made_in, without_reductions
from foretrace.whatif.rearrange.recorded_units import PieceRole
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.recorded.program import MadeExchange, MadeWait, Placed, RecordedPiece
from foretrace.workload import (
    Exchange,
    Group,
    ParameterPool,
    Pass,
    Plan,
    Sharding,
    gathered,
    pools_of,
    reduced,
)

_ENDS_WORK = (PieceRole.RETURN, PieceRole.SEND)
_GROUP = Group.DATA  # all of its ranks: shards over some of them are refused
_REDUCED = -1  # in place of a part


@dataclass(frozen=True)
class Dividing:
    """Changes how gradients are reduced."""

    unit_index: UnitIndex
    plan: Plan  # of the new job
    maker: Maker
    is_divided: bool  # in the new job

    def through(self, unit: NewUnit) -> NewUnit:
        """A backward pass that reduces its gradients the other way.

        Args:
            unit: of the last microbatch, with its buckets.
        """

        def of(work: Iterable[PlacedPiece]) -> Iterator[PlacedPiece]:
            for each in work:
                kind, size, dtype = self._collective(each.placed)
                if each.role is not PieceRole.BUCKET or kind is None:
                    yield each
                elif kind is not CollectiveKind.ALL_GATHER:
                    num_bytes = round(size * each.placed.scale_bytes)
                    one = replace(self._reduction, num_bytes=num_bytes, dtype=dtype)
                    piece = self.maker.made(one, is_awaited=False)
                    yield replace(each, placed=replace(each.placed, piece=piece, scale_bytes=1.0))

        return with_wait(unit.with_stretches(map(of, unit.stretches)), Group.DATA)

    @cached_property
    def _reduction(self) -> Exchange:
        """What a bucket is reduced by; shard ranks are all that hold the same parameters."""
        first = reduced(1, pools_of(self.plan)[0], self.plan)[0]
        return replace(first, group=Group.DATA)

    def epilogue(self, placed: Sequence[Placed], buckets: Sequence[Placed]) -> list[Placed]:
        """What follows the last unit, with its parameters gathered, or no longer.

        Args:
            placed: the epilogue as recorded.
            buckets: of the step, made, whose parameters are gathered.
        """
        kept = [each for each in placed if self._collective(each)[0] != CollectiveKind.ALL_GATHER]
        updates = [at for at, each in enumerate(kept) if each.part is Part.OPTIMIZER]
        if not self.is_divided or not updates:
            return kept
        like = kept[updates[-1]]
        pool, _ = pools_of(self.plan)
        gathers = []
        for each in buckets[::-1]:
            if isinstance(each.piece, MadeExchange):
                # A recording that names no format has gradients in 32 bits: the default.
                form = number_format(each.piece.dtype)
                count = each.piece.num_bytes // (round(form.num_bytes) if form else 4)
                one = gathered(count, pool, self.plan, phase=Phase.OPTIMIZER)
                made = self.maker.made(replace(one, group=each.piece.group))
                gathers.append(
                    Placed(piece=made, step=like.step, part=Part.BUCKET, phase=Phase.OPTIMIZER)
                )
        place = updates[-1] + 1
        return [*kept[:place], *gathers, *kept[place:]]

    def _collective(self, placed: Placed) -> tuple[CollectiveKind | None, int, str]:
        """Kind, bytes and number format of what a piece takes part in; `None` of no collective."""
        graph = self.unit_index.program.graph
        if isinstance(placed.piece, MadeExchange):
            return placed.piece.collective, placed.piece.num_bytes, placed.piece.dtype
        if not isinstance(placed.piece, RecordedPiece) or placed.part is not Part.BUCKET:
            return None, 0, ""
        found = ended_in(graph, placed.piece)
        if not found:
            return None, 0, ""
        size = sum(max(each.num_bytes, 0) for each in found)
        return found[0].kind, size, found[0].dtype


@dataclass(frozen=True)
class _Stretch:
    """A part of the model in one pass, with the parameters it needs."""

    work: tuple[PlacedPiece, ...]
    numbers: float  # parameters on a rank, whole; 0 of what has none
    layer: int = NO_LAYER


@dataclass(frozen=True)
class Gathering:
    """Divides gradients (ZeRO-2), or gradients and parameters (ZeRO-3), of recorded units."""

    maker: Maker
    tensor_factor: float  # tensor-parallel ranks before over after: of a rank's parameters

    @property
    def _plan(self) -> Plan:
        return self.maker.after.plan

    def through(self, unit: NewUnit) -> NewUnit:
        """A unit with the exchanges of the new job's sharding in place of its own.

        Raises:
            NotShownError: if nothing tells how many parameters there are.
        """
        self.maker.check_weights()
        plan = self._plan
        unit = unit if unit.is_forward else without_reductions(unit)
        if plan.data * plan.context == 1:
            return unit
        if plan.sharding is Sharding.ZERO3:
            return self._part_by_part(unit)
        if not (unit.makes_gradients and (plan.pipeline == 1 or unit.is_last_microbatch)):
            return unit
        return self.maker.with_buckets(unit, is_first=unit.chunk == 0)

    def _part_by_part(self, unit: NewUnit) -> NewUnit:
        stretches = self._stretches(unit)
        parts = [at for at, each in enumerate(stretches) if each.numbers]
        found: list[list[PlacedPiece]] = [[] for _ in stretches]
        ahead = self._plan.prefetch if self._plan.overlap.parameters else 0
        issued: list[int] = []  # parts gathered, or NOTHING of a reduction, in order of issue
        for turn, at in enumerate(parts):
            stretch = stretches[at]
            if self._gathers(unit):
                wanted = parts[0 if turn == 0 else turn + ahead : turn + ahead + 1]
                for other in wanted:
                    found[at].append(self._gather(unit, stretches[other]))
                    issued.append(other)
                back = len(issued) - 1 - issued.index(at)
                found[at].append(self._wait(unit, stretch, back))
            found[at] += stretch.work
            if unit.makes_gradients:
                found[at].append(self._reduction(unit, stretch))
                issued.append(_REDUCED)
        for at, each in enumerate(stretches):
            if not each.numbers:
                found[at] = list(each.work)
        return self._joined(unit, found)

    def _stretches(self, unit: NewUnit) -> list[_Stretch]:
        weights, factor = self.maker.weights, self.tensor_factor
        first = weights.of_first * factor if unit.chunk == 0 else 0.0
        last = weights.of_last * factor if unit.chunk == self._plan.last_chunk else 0.0
        opens, closes = (first, last) if unit.is_forward else (last, first)
        layers = [
            _Stretch(slot.work, weights.of_layer.get(slot.source, 0.0) * factor, slot.layer)
            for slot in unit.slots
        ]
        return [_Stretch(unit.before, opens), *layers, _Stretch(unit.after, closes)]

    def _joined(self, unit: NewUnit, found: Sequence[Sequence[PlacedPiece]]) -> NewUnit:
        *inside, after = found
        unit = unit.with_stretches([*inside, after if unit.is_forward else _with_ends_last(after)])
        is_end = unit.makes_gradients and unit.is_last_microbatch
        return with_wait(unit, _GROUP) if is_end else unit

    def _gathers(self, unit: NewUnit) -> bool:
        plan = self._plan
        if unit.kind is Pass.WEIGHT:
            return False
        if not unit.is_forward:
            return plan.reshard_after_forward
        return plan.reshard_after_forward or plan.pipeline == 1 or unit.microbatch == 0

    def _gather(self, unit: NewUnit, stretch: _Stretch) -> PlacedPiece:
        exchange = gathered(round(stretch.numbers), self._pool, self._plan, phase=Phase.FORWARD)
        return self._exchange(unit, stretch, exchange, is_awaited=False)

    def _reduction(self, unit: NewUnit, stretch: _Stretch) -> PlacedPiece:
        exchange, *_ = reduced(round(stretch.numbers), self._pool, self._plan)
        is_awaited = not self._plan.overlap.gradients
        return self._exchange(unit, stretch, exchange, is_awaited=is_awaited)

    @cached_property
    def _pool(self) -> ParameterPool:
        return pools_of(self._plan)[0]

    def _exchange(
        self, unit: NewUnit, stretch: _Stretch, exchange: Exchange, *, is_awaited: bool
    ) -> PlacedPiece:
        made = self.maker.made(replace(exchange, group=_GROUP), is_awaited=is_awaited)
        return PlacedPiece(replace(self._at(unit, made), layer=stretch.layer), PieceRole.OTHER)

    def _wait(self, unit: NewUnit, stretch: _Stretch, back: int) -> PlacedPiece:
        made = MadeWait(group=_GROUP, back=back)
        return PlacedPiece(replace(self._at(unit, made), layer=stretch.layer), PieceRole.OTHER)

    def _at(self, unit: NewUnit, made: MadeExchange | MadeWait) -> Placed:
        return made_in(unit, made, Part.BUCKET)


def _with_ends_last(after: Sequence[PlacedPiece]) -> list[PlacedPiece]:
    """What hands over to a thread or a stage, behind what is made for the last part."""
    return sorted(after, key=lambda each: each.role in _ENDS_WORK)

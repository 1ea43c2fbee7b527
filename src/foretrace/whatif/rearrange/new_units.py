"""Units of a new job, composed of recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, filterfalse

from foretrace.graph import NO_LAYER, NO_MICROBATCH, Part, Phase
from foretrace.whatif.rearrange.recorded_units import PieceInRole, PieceRole, RecordedUnit, Slot
from foretrace.whatif.rearrange.repeated_layers import LayerSources, layer_sources
from foretrace.whatif.rearrange.structure import Seat, Structure, UnitKey
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.recorded.program import (
    Coordinates,
    MadeExchange,
    MadeOperator,
    MadeWait,
    Placed,
    RecordedPiece,
)
from foretrace.workload import Pass

_TRANSFERS = (PieceRole.RECEIVE, PieceRole.SEND)
_REDUCTION = (PieceRole.BUCKET, PieceRole.REDUCED)


@dataclass(frozen=True)
class PlacedPiece:
    """A piece at its new place, in its role."""

    placed: Placed
    role: PieceRole


@dataclass(frozen=True)
class NewSlot:
    """A layer of a new unit."""

    layer: int  # in the new job
    source: int  # recorded layer that it repeats
    work: tuple[PlacedPiece, ...]


@dataclass(frozen=True)
class NewUnit:
    """A unit of a new job, of recorded pieces."""

    step: int
    is_forward: bool
    microbatch: int
    chunk: int
    is_last_microbatch: bool
    kind: Pass  # forward, backward, or a half of that
    frame: RecordedUnit  # whose beginning and end it has
    before: tuple[PlacedPiece, ...]
    slots: tuple[NewSlot, ...]
    after: tuple[PlacedPiece, ...]
    # It has to receive or to send, and no recorded stage did.
    lacks_receive: bool = False
    lacks_send: bool = False

    @property
    def phase(self) -> Phase:
        """Of its layers' own work."""
        return Phase.FORWARD if self.is_forward else Phase.BACKWARD

    @property
    def makes_gradients(self) -> bool:
        """Whether it computes gradients of weights, which may be reduced then."""
        return self.kind in {Pass.BACKWARD, Pass.WEIGHT}

    @property
    def stretches(self) -> tuple[tuple[PlacedPiece, ...], ...]:
        """What stands before the layers, each layer's, and what stands behind them."""
        return (self.before, *(slot.work for slot in self.slots), self.after)

    @property
    def work(self) -> Iterator[PlacedPiece]:
        """All of it, in order."""
        return chain.from_iterable(self.stretches)

    def with_stretches(self, stretches: Iterable[Iterable[PlacedPiece]]) -> NewUnit:
        """The unit with other work in each of its stretches."""
        before, *layers, after = map(tuple, stretches)
        pairs = zip(self.slots, layers, strict=True)
        slots = tuple(replace(slot, work=work) for slot, work in pairs)
        return replace(self, before=before, slots=slots, after=after)

    def without(self, is_gone: Callable[[PlacedPiece], bool]) -> NewUnit:
        """The unit without some of its work."""
        return self.with_stretches(filterfalse(is_gone, own) for own in self.stretches)


def at_place(piece: RecordedPiece, step: int, *, layer: int, microbatch: int) -> Placed:
    """A piece at a new layer and microbatch, where it has any."""
    return Placed(
        piece=piece,
        step=step,
        part=piece.part,
        phase=piece.phase,
        layer=layer if piece.layer != NO_LAYER else NO_LAYER,
        microbatch=microbatch if piece.microbatch != NO_MICROBATCH else NO_MICROBATCH,
    )


@dataclass
class Composer:
    """Composes the units of every new rank."""

    unit_index: UnitIndex
    structure: Structure
    num_recorded: int  # microbatches of a step, as recorded
    _kinds: dict[int, object] = field(init=False)
    _sources: dict[Coordinates | None, LayerSources] = field(init=False)
    frame_of_chunk: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        """Choose what each layer and each chunk repeats."""
        unit_index = self.unit_index
        self._kinds = {
            layer: unit_index.kind_of_layer(layer) for layer in unit_index.chunk_of_layer
        }
        self._sources = {}
        self.frame_of_chunk = {chunk: self._frame(chunk) for chunk in range(self._last_chunk + 1)}

    def sources(self, like: Coordinates) -> LayerSources:
        """What the layers of ranks like this one repeat.

        Threads of ranks with a device run on their own, so each rank's choice keeps the mean of its
        own layers. Without one they wait for each other in every layer, and all choose alike.
        """
        anywhere = Coordinates(like.tensor, like.context, like.data) if self._has_device else None
        if anywhere not in self._sources:
            self._sources[anywhere] = layer_sources(
                self.unit_index.layers_of_chunk,
                self.structure.layers_of_chunk,
                self._kinds,
                self.unit_index.layer_durations_ns(anywhere),
            )
        return self._sources[anywhere]

    @cached_property
    def _has_device(self) -> bool:
        return self.unit_index.program.graph.has_device

    @property
    def _last_chunk(self) -> int:
        return self.structure.plan.last_chunk

    def _frame(self, chunk: int) -> int:
        """The recorded chunk whose beginning and end a new one has."""
        num_new = self._last_chunk + 1
        if num_new == self.unit_index.num_chunks:
            return chunk
        if chunk == 0:
            return 0
        if chunk == self._last_chunk:
            return self.unit_index.num_chunks - 1
        layers = self.structure.layers_of_chunk.get(chunk, ())
        forward = self.sources(Coordinates()).forward
        sources = [self.unit_index.chunk_of_layer[forward[layer]] for layer in layers]
        inner = [each for each in sources if 0 < each < self.unit_index.num_chunks - 1] or sources
        return max(sorted(set(inner)), key=inner.count) if inner else 0

    def source_stage(self, stage: int) -> int:
        """The recorded stage whose threads, data and optimizer a new stage has."""
        return self.unit_index.stage_of(self.frame_of_chunk[stage])

    def source_microbatch(self, microbatch: int, num_new: int) -> int:
        """The recorded microbatch that a new one repeats.

        The first and the last stay what they are; those between repeat all recorded ones that are
        neither, in turns.
        """
        last = self.num_recorded - 1
        if num_new == self.num_recorded:
            return microbatch
        if microbatch == num_new - 1:
            return last
        if microbatch == 0 or last <= 1:
            return 0
        return 1 + (microbatch - 1) % (last - 1)

    def order(self, seat: Seat, step: int) -> tuple[UnitKey, ...]:
        """Units of a rank in order: as recorded, or as the new schedule has them."""
        if self.structure.order is not None:
            return self.structure.order[seat.coordinates.pipeline]
        rank = self.unit_index.rank_at(seat.coordinates.pipeline, seat.like)
        return tuple(
            (Pass.FORWARD if unit.is_forward else Pass.BACKWARD, unit.microbatch, unit.chunk)
            for unit in self.unit_index.step(rank, step).units
        )

    def unit(self, seat: Seat, step: int, key: UnitKey) -> NewUnit:
        """One unit of a new rank; of half a backward pass with all of the recorded layers' work."""
        kind, microbatch, chunk = key
        is_forward = kind is Pass.FORWARD
        num_new = self.structure.plan.num_microbatches
        source = self.source_microbatch(microbatch, num_new)
        of = _Of(seat.like, step, is_forward, source)
        frame = self._part(of, self.frame_of_chunk[chunk])
        is_first, is_last = chunk == 0, chunk == self._last_chunk
        opens, closes = (is_first, is_last) if is_forward else (is_last, is_first)
        receive = () if opens else self._transfer(of, frame, PieceRole.RECEIVE)
        send = () if closes else self._transfer(of, frame, PieceRole.SEND)
        before, after = self._frame_entries(of, chunk, frame)

        def placed(
            entries: Iterable[PieceInRole], layer: int = NO_LAYER
        ) -> tuple[PlacedPiece, ...]:
            return tuple(
                PlacedPiece(
                    at_place(each.piece, step, layer=layer, microbatch=microbatch), each.role
                )
                for each in entries
            )

        unit = NewUnit(
            step=step,
            is_forward=is_forward,
            microbatch=microbatch,
            chunk=chunk,
            is_last_microbatch=microbatch == num_new - 1,
            kind=kind,
            frame=frame,
            before=placed((*receive, *before)),
            slots=tuple(
                NewSlot(layer, slot.layer, placed(slot.entries, layer))
                for layer, slot in self._slots(of, chunk)
            ),
            after=placed((*after, *send)),
            lacks_receive=not opens and not receive,
            lacks_send=not closes and not send,
        )
        if kind is Pass.INPUT or (self.num_recorded == 1 and not unit.is_last_microbatch):
            unit = without_reductions(unit)
        return _gradients_of_weights(unit) if kind is Pass.WEIGHT else unit

    def _part(self, of: _Of, chunk: int) -> RecordedUnit:
        rank = self.unit_index.rank_at(self.unit_index.stage_of(chunk), of.like)
        return self.unit_index.unit(rank, of.step, (of.is_forward, of.microbatch, chunk))

    def _transfer(self, of: _Of, frame: RecordedUnit, role: PieceRole) -> tuple[PieceInRole, ...]:
        """How a recorded stage received or sent, the frame's own if it did."""
        own = _in_role(frame, role)
        if own or self.unit_index.num_chunks == 1:
            return own
        others = (self._part(of, chunk) for chunk in range(self.unit_index.num_chunks))
        return next((found for each in others if (found := _in_role(each, role))), ())

    def _slots(self, of: _Of, chunk: int) -> Iterator[tuple[int, Slot]]:
        layers = self.structure.layers_of_chunk.get(chunk, ())
        sources = self.sources(of.like).of(is_forward=of.is_forward)
        for layer in layers if of.is_forward else reversed(layers):
            key = (of.is_forward, of.microbatch)
            yield layer, self.unit_index.slot(of.like, of.step, key, sources[layer])

    def _frame_entries(
        self, of: _Of, chunk: int, frame: RecordedUnit
    ) -> tuple[tuple[PieceInRole, ...], tuple[PieceInRole, ...]]:
        """What stands before and behind the layers, without transfers."""
        last_old = self.unit_index.num_chunks - 1
        is_first, is_last = chunk == 0, chunk == self._last_chunk
        opens, closes = (is_first, is_last) if of.is_forward else (is_last, is_first)
        first_of, last_of = (0, last_old) if of.is_forward else (last_old, 0)
        before, after = _kept(frame.before), _kept(frame.after)
        if opens != (frame.chunk == first_of):
            ends = _ends(self._part(of, first_of).before) if opens else ()
            before = _with_ends(before, ends, at_end=True)
        if closes != (frame.chunk == last_of):
            ends = _ends(self._part(of, last_of).after) if closes else ()
            after = _with_ends(after, ends, at_end=False)
        return before, after


@dataclass(frozen=True)
class _Of:
    """Where recorded units are looked for."""

    like: Coordinates
    step: int
    is_forward: bool
    microbatch: int  # recorded


def _gradients_of_weights(unit: NewUnit) -> NewUnit:
    """Of a backward pass the layers, and what reduces: all else is of its other half."""
    before, *layers, after = unit.stretches
    first, last = ([each for each in own if each.role in _REDUCTION] for own in (before, after))
    bare = unit.with_stretches([first, *layers, last])
    return replace(bare, lacks_receive=False, lacks_send=False)


def without_reductions(unit: NewUnit) -> NewUnit:
    """A unit that reduces nothing."""
    return unit.without(lambda each: each.role in _REDUCTION)


def made_in(unit: NewUnit, made: MadeExchange | MadeWait, part: Part) -> Placed:
    """Something made, in a unit."""
    return Placed(
        piece=made, step=unit.step, part=part, phase=unit.phase, microbatch=unit.microbatch
    )


def in_place_of(like: Placed, piece: MadeExchange | MadeOperator | MadeWait) -> Placed:
    """Something made, where a piece stands."""
    return replace(like, piece=piece, scale=1.0, scale_bytes=1.0)


def _in_role(unit: RecordedUnit, role: PieceRole) -> tuple[PieceInRole, ...]:
    return tuple(entry for entry in unit.entries if entry.role is role)


def _kept(entries: Iterable[PieceInRole]) -> tuple[PieceInRole, ...]:
    return tuple(entry for entry in entries if entry.role not in _TRANSFERS)


def _ends(entries: Iterable[PieceInRole]) -> tuple[PieceInRole, ...]:
    return tuple(entry for entry in entries if entry.role is PieceRole.END)


def _with_ends(
    entries: tuple[PieceInRole, ...], ends: tuple[PieceInRole, ...], *, at_end: bool
) -> tuple[PieceInRole, ...]:
    """Other ends among what every stage does: behind it, or before its hand-over."""
    rest = tuple(entry for entry in entries if entry.role is not PieceRole.END)
    if at_end:
        return (*rest, *ends)
    place = next((at for at, entry in enumerate(rest) if entry.role is PieceRole.RETURN), len(rest))
    return (*rest[:place], *ends, *rest[place:])

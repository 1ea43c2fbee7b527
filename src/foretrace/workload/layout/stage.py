"""What one stage launches in a step: its units in order, with transfers around them.

A unit waits for what its chunk works on: received from another stage, or left by a unit of its
own. A receive is posted when the compute stream reaches the place where it was launched: one unit
ahead of its use if transfers overlap, else just before it. A send leaves when its data are ready,
whether or not the other side waits for it already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from foretrace.base import WorkloadError
from foretrace.workload.layout.chunks import Chunk
from foretrace.workload.layout.pieces import Member, Pieces, Place
from foretrace.workload.layout.sharded import GatheredChunks, Gatherings
from foretrace.workload.layout.tables import RECEIVES, SENDS
from foretrace.workload.layout.template import Template
from foretrace.workload.layout.transfers import Result, Transfers
from foretrace.workload.layout.units import UnitTemplate, UnitTemplates
from foretrace.workload.plan.plan import Plan, Sharding
from foretrace.workload.schedule.schedule import Pass, Schedule, ScheduleUnit


@dataclass(frozen=True)
class _Use:
    """A part's parameters, gathered for one pass."""

    gathers: tuple[Place, ...]
    consumed: Place  # the last operator that needs them


class StageProgram:
    """Writes down what one stage launches, unit by unit."""

    def __init__(
        self,
        stage: int,
        *,
        schedule: Schedule,
        chunks: Sequence[Chunk],
        templates: UnitTemplates,
        transfers: Transfers,
        gathered: GatheredChunks,
        pieces: Pieces,
    ) -> None:
        """Begin with nothing launched."""
        self.stage = stage
        self.plan: Plan = templates.plan
        self.schedule, self.chunks = schedule, chunks
        self.templates, self.transfers, self.pieces = templates, transfers, pieces
        self.last_operator: Place | None = None
        self._results: dict[Result, tuple[Place, ...]] = {}
        self._received: dict[Result, Place] = {}
        self._held_by: list[Place] = []  # what the next operator waits for
        self._uses: list[_Use] = []
        self._turns = _turns(schedule.units[stage])
        self._flags = _flags(schedule.units[stage], self.plan)
        self.gatherings = Gatherings(
            stage, units=schedule.units[stage], chunks=chunks, gathered=gathered, pieces=pieces
        )

    def write_units(self) -> None:
        """Launch all units."""
        ahead = 1 if self.plan.overlap.pipeline else 0
        for place, turn in enumerate(self._turns):
            wanted = range(ahead + 1) if place == 0 else range(place + ahead, place + ahead + 1)
            for other in wanted:
                for unit in self._turns[other] if other < len(self._turns) else ():
                    self._receive(unit)
            for unit in turn:
                self.gatherings.before(unit)
            self._run(turn)
            for unit in turn:
                self._send(unit)
        self._limit_gathers()

    def follow(self, template: Template, *, is_barrier: bool = False) -> int:
        """Launch something that works on all that was computed before it."""
        piece = self.pieces.add(self.stage, template)
        if is_barrier:
            self.pieces.barriers.append(piece)
        self._begin(piece, template, [self.last_operator] if self.last_operator else [])
        return piece

    def needed(self, unit: ScheduleUnit) -> Result | None:
        """The result that a unit works on; `None` at the first layer's forward pass."""
        if unit.kind is Pass.WEIGHT:
            return False, unit.microbatch, unit.chunk
        chunk = self.chunks[unit.chunk]
        if unit.kind is Pass.FORWARD:
            return (True, unit.microbatch, chunk.before) if chunk.before >= 0 else None
        if chunk.behind >= 0:
            return False, unit.microbatch, chunk.behind
        return True, unit.microbatch, unit.chunk

    def _receive(self, unit: ScheduleUnit) -> None:
        needed = self.needed(unit)
        if needed is None or self.schedule.stage_of_chunk[needed[2]] == self.stage:
            return
        template = self.transfers.template(RECEIVES, is_forward=needed[0])
        number = self.transfers.number(needed)
        piece = self.pieces.add(self.stage, template, (Member(unit.microbatch),), transfer=number)
        self.transfers.posted(number, (piece, 0))
        if self.last_operator:
            self.pieces.wait((piece, 0), [self.last_operator])
        self._received[needed] = (piece, 0)

    def _send(self, unit: ScheduleUnit) -> None:
        if unit.kind is Pass.WEIGHT:
            return
        chunk, is_forward = self.chunks[unit.chunk], unit.kind is Pass.FORWARD
        to = chunk.behind if is_forward else chunk.before
        if to < 0 or self.schedule.stage_of_chunk[to] == self.stage:
            return
        result = (is_forward, unit.microbatch, unit.chunk)
        number = self.transfers.number(result)
        piece = self.pieces.add(
            self.stage,
            self.transfers.template(SENDS, is_forward=is_forward),
            (Member(unit.microbatch),),
            transfer=number,
        )
        self.pieces.wait((piece, 0), self._results[result])
        self.transfers.sent(number, self._results[result])
        if not self.plan.overlap.pipeline:
            self._held_by.append((piece, 0))

    def _run(self, turn: Sequence[ScheduleUnit]) -> None:
        units = tuple(self._template(unit) for unit in turn)
        if len(units) == 2:  # noqa: PLR2004  a joined pair
            units = self.templates.pair(units[0], units[1])
        template = units[0].template
        members = [Member(unit.microbatch, self.chunks[unit.chunk].first_layer) for unit in turn]
        sources = [self._sources(unit) for unit in turn]
        piece = self.pieces.add(self.stage, template, members)
        self._hold(piece, template)
        for place, (unit, own) in enumerate(zip(turn, units, strict=True)):
            for entry in template.entries[place]:
                self.pieces.wait((piece, entry), sources[place])
            exits = tuple((piece, one) for one in template.exits[place])
            result = (unit.kind is Pass.FORWARD, unit.microbatch, unit.chunk)
            self._results[result] = exits or tuple(sources[place])
            self._held_by.extend((piece, one) for one in own.loose)
            self._note_uses(piece, own)
            self.gatherings.hold(unit, piece, own)

    def _note_uses(self, piece: int, unit: UnitTemplate) -> None:
        """Remember what was gathered, and which operator was the last to use it."""
        last = unit.last_operator.tolist()
        self._uses.extend(
            _Use(tuple((piece, one) for one in gathers), (piece, operator))
            for gathers, operator in zip(unit.gathers, last, strict=True)
            if gathers and operator >= 0
        )

    def _limit_gathers(self) -> None:
        """No part is gathered before as many parts are free again as may be held at once.

        Source:
            Zhao et al., "PyTorch FSDP", arXiv:2304.11277, section 3.4: the rate limiter.
        """
        ahead = self.plan.prefetch if self.plan.overlap.parameters else 0
        uses = sorted(self._uses, key=lambda use: use.gathers)
        for free, use in zip(uses, uses[ahead + 1 :], strict=False):
            for gather in use.gathers:
                if free.consumed < gather:  # of woven units, one may be ahead of the other
                    self.pieces.wait(gather, [free.consumed])

    def _sources(self, unit: ScheduleUnit) -> list[Place]:
        needed = self.needed(unit)
        if needed is None:
            return []
        if needed in self._received:
            return [self._received[needed]]
        try:
            return list(self._results[needed])
        except KeyError:
            raise WorkloadError(
                f"schedule {self.schedule.name!r}, stage {self.stage}: {unit.kind.name.lower()} "
                f"of microbatch {unit.microbatch} on chunk {unit.chunk} comes before what it "
                f"works on, which chunk {needed[2]} of the same stage makes. Change their order."
            ) from None

    def _begin(self, piece: int, template: Template, sources: Sequence[Place]) -> None:
        self._hold(piece, template)
        for entry in template.entries[0]:
            self.pieces.wait((piece, entry), sources)

    def _hold(self, piece: int, template: Template) -> None:
        """Let the first operator wait for what has to be over; remember the last one."""
        if template.first_operator < 0:
            return
        self.pieces.wait((piece, template.first_operator), self._held_by)
        self._held_by = []
        self.last_operator = (piece, template.last_operator)

    def _template(self, unit: ScheduleUnit) -> UnitTemplate:
        is_gathering, is_reducing = self._flags[id(unit)]
        return self.templates.unit(
            self.chunks[unit.chunk],
            unit.kind,
            is_gathering=is_gathering,
            is_reducing=is_reducing,
            held=self.gatherings.held(unit),
        )


def _turns(units: Sequence[ScheduleUnit]) -> list[tuple[ScheduleUnit, ...]]:
    """Units that run together: joined pairs, else each alone."""
    found: list[tuple[ScheduleUnit, ...]] = []
    rest: Iterator[ScheduleUnit] = iter(units)
    for unit in rest:
        partner = next(rest, None) if unit.is_joined else None
        found.append((unit,) if partner is None else (unit, partner))
    return found


def _flags(units: Sequence[ScheduleUnit], plan: Plan) -> Mapping[int, tuple[bool, bool]]:
    """By every unit's identity, whether it gathers parameters part by part, and reduces gradients.

    In a pipeline, ZeRO-2 adds up the gradients of a chunk's microbatches in a row and scatters
    them when the stage goes on to another chunk; without one, in every backward pass, as ZeRO-3.

    Source:
        Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783, section 3.3.2:
        gradients are accumulated over microbatches, then reduced and scattered.
    """
    first_of_chunk = {unit.chunk: unit for unit in reversed(units) if unit.kind is Pass.FORWARD}
    last_of_chunk = {unit.chunk: unit for unit in units if unit.kind in _MAKES_GRADIENTS}
    makers = [unit for unit in units if unit.kind in _MAKES_GRADIENTS]
    ends_run = {id(unit) for unit, other in pairwise(makers) if unit.chunk != other.chunk}
    is_scattered = plan.sharding in {Sharding.ZERO2, Sharding.ZERO3}
    reduces_always = is_scattered and (plan.sharding is Sharding.ZERO3 or plan.pipeline == 1)
    gathers_always = plan.reshard_after_forward or plan.pipeline == 1

    def gathers(unit: ScheduleUnit) -> bool:
        if plan.sharding is not Sharding.ZERO3 or unit.kind is Pass.WEIGHT:
            return False
        if unit.kind is not Pass.FORWARD:
            return plan.reshard_after_forward
        return gathers_always or first_of_chunk[unit.chunk] is unit

    def reduces(unit: ScheduleUnit) -> bool:
        if unit.kind not in _MAKES_GRADIENTS:
            return False
        is_last = last_of_chunk[unit.chunk] is unit
        return (
            reduces_always
            or (is_last and (plan.overlap.gradients or is_scattered))
            or (is_scattered and id(unit) in ends_run)
        )

    return {id(unit): (gathers(unit), reduces(unit)) for unit in units}


_MAKES_GRADIENTS = (Pass.BACKWARD, Pass.WEIGHT)

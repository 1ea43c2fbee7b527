"""Parameters whose states are divided (ZeRO 1 and 2) are gathered once a step, bucket by bucket.

If that overlaps, the gathering that an optimizer step begets is shown at the beginning of the
step that uses it: one chunk of the pipeline ahead, each part waiting for its own buckets. Else it
follows the optimizer.

Source:
    Megatron-LM's distributed optimizer, `--overlap-param-gather`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrace.graph import Phase
from foretrace.workload.exchanges.gradients import (
    buckets_of,
    gathering,
    last_bucket_of_parts,
)
from foretrace.workload.layout.chunks import Chunk
from foretrace.workload.layout.pieces import Pieces, Place
from foretrace.workload.layout.template import PlacedTemplate, Template, chained
from foretrace.workload.layout.units import UnitTemplate, UnitTemplates
from foretrace.workload.plan.plan import Sharding
from foretrace.workload.schedule.schedule import Pass, ScheduleUnit


@dataclass(frozen=True)
class Gathered:
    """All buckets of a chunk, gathered in the order of the forward pass."""

    template: Template
    held_by: tuple[tuple[int, ...], ...]  # by part in forward order, items it waits for


def gathered_chunk(chunk: Chunk, templates: UnitTemplates) -> Gathered:
    """What gathers a chunk's parameters; nothing, if none are divided."""
    plan, backward = templates.plan, chunk.parts[::-1]
    buckets = buckets_of(backward, templates.pools, plan)
    order = [at for at in reversed(range(len(buckets))) if buckets[at].pool.num_shards > 1]
    item = {at: place for place, at in enumerate(order)}
    blocks = [
        gathering(buckets[at].num_parameters, buckets[at].pool, plan, Phase.FORWARD) for at in order
    ]
    parts = [PlacedTemplate(templates.block(block)) for block in blocks]
    held_by: list[tuple[int, ...]] = [()] * len(backward)
    for pool in templates.pools:
        for place, at in enumerate(last_bucket_of_parts(backward, buckets, pool)):
            if at in item:
                held_by[place] = (*held_by[place], item[at])
    return Gathered(chained(parts, side=frozenset(range(len(parts)))), tuple(held_by[::-1]))


class GatheredChunks:
    """What gathers each chunk, made once for those that are alike."""

    def __init__(self, templates: UnitTemplates) -> None:
        """Make none yet."""
        self.plan = templates.plan
        self._templates = templates
        self._known: dict[object, Gathered] = {}

    def of(self, chunk: Chunk) -> Gathered:
        """What gathers a chunk."""
        if chunk.key not in self._known:
            self._known[chunk.key] = gathered_chunk(chunk, self._templates)
        return self._known[chunk.key]


class Gatherings:
    """Gathers every chunk of a stage, ahead of its first use or behind the optimizer."""

    def __init__(
        self,
        stage: int,
        *,
        units: Sequence[ScheduleUnit],
        chunks: Sequence[Chunk],
        gathered: GatheredChunks,
        pieces: Pieces,
    ) -> None:
        """Plan what is gathered when."""
        plan = gathered.plan
        first = {unit.chunk: unit for unit in reversed(units) if unit.kind is Pass.FORWARD}
        is_any = plan.sharding in {Sharding.ZERO1, Sharding.ZERO2}
        self._stage, self._pieces = stage, pieces
        self._is_ahead = plan.overlap.parameters
        self._first_units = [unit for unit in units if is_any and first.get(unit.chunk) is unit]
        self._place = {id(unit): place for place, unit in enumerate(self._first_units)}
        self._gathered = {unit.chunk: gathered.of(chunks[unit.chunk]) for unit in self._first_units}
        self._piece_of_chunk: dict[int, int] = {}

    def before(self, unit: ScheduleUnit) -> None:
        """Gather what the unit's chunk and the stage's next one need."""
        place = self._place.get(id(unit))
        if not self._is_ahead or place is None:
            return
        for wanted in self._first_units[0 if place == 0 else place + 1 : place + 2]:
            template = self._gathered[wanted.chunk].template
            self._piece_of_chunk[wanted.chunk] = self._pieces.add(self._stage, template)

    def held(self, unit: ScheduleUnit) -> tuple[int, ...]:
        """Places of parts that wait for other parameters than the part before them."""
        if not self._is_ahead or id(unit) not in self._place:
            return ()
        held_by = self._gathered[unit.chunk].held_by
        return tuple(
            place for place, items in enumerate(held_by) if place and items != held_by[place - 1]
        )

    def hold(self, unit: ScheduleUnit, piece: int, template: UnitTemplate) -> None:
        """Let each part of a chunk's first forward pass wait for its parameters."""
        if not self._is_ahead or id(unit) not in self._place:
            return
        gathered = self._gathered[unit.chunk].held_by
        for first, held_by in zip(template.first_operator.tolist(), gathered, strict=True):
            if first >= 0:
                sources = [(self._piece_of_chunk[unit.chunk], item) for item in held_by]
                self._pieces.wait((piece, first), sources)

    def behind(self, last_operator: Place | None) -> None:
        """Gather everything behind the optimizer, if it was not gathered ahead."""
        if self._is_ahead:
            return
        for unit in self._first_units:
            template = self._gathered[unit.chunk].template
            piece = self._pieces.add(self._stage, template)
            if last_operator is not None:
                sources = [last_operator]
                for item in range(len(template)):
                    self._pieces.wait((piece, item), sources)

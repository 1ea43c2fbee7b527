"""Parameters whose states are divided (ZeRO 1 and 2) are gathered once a step, bucket by bucket.

If that overlaps, the gathering that an optimizer step begets is shown at the beginning of the
step that uses it: one chunk of the pipeline ahead, each part waiting for its own buckets. Else it
follows the optimizer.

Source:
    Megatron-LM's distributed optimizer, `--overlap-param-gather`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foretrace.base import Int64s
from foretrace.graph import Phase
from foretrace.workload.exchanges.gradients import last_bucket_of_parts
from foretrace.workload.layout.pieces import Pieces, Place
from foretrace.workload.layout.template import PlacedTemplate, Template, chained
from foretrace.workload.layout.unit_columns import GATHERED, UnitColumns
from foretrace.workload.layout.units import Chunk, UnitTemplate, UnitTemplates
from foretrace.workload.plan.plan import Sharding


@dataclass(frozen=True)
class Gathered:
    """All buckets of a chunk, gathered in the order of the forward pass."""

    parts: tuple[Template, ...]  # of single buckets
    held_by: tuple[tuple[int, ...], ...]  # by part in forward order, items it waits for

    @cached_property
    def template(self) -> Template:
        """All of them."""
        every = frozenset(range(len(self.parts)))
        return chained([PlacedTemplate(one) for one in self.parts], side=every)

    @property
    def exchanges(self) -> list[tuple[int, int]]:
        """Stream and number of every item."""
        return [pair for one in self.parts for pair in one.exchanges]

    @cached_property
    def held(self) -> tuple[int, ...]:
        """Places of parts that wait for other parameters than the part before them."""
        held_by = self.held_by
        return tuple(
            place for place, items in enumerate(held_by) if place and items != held_by[place - 1]
        )


def gathered_chunk(chunk: Chunk, templates: UnitTemplates) -> Gathered:
    """What gathers a chunk's parameters; nothing, if none are divided."""
    backward = chunk.parts[::-1]
    buckets = templates.buckets(backward)
    order = [at for at in reversed(range(len(buckets))) if buckets[at].pool.num_shards > 1]
    item = {at: place for place, at in enumerate(order)}
    blocks = [
        templates.gathering(buckets[at].num_parameters, buckets[at].pool, Phase.FORWARD)
        for at in order
    ]
    held_by: list[tuple[int, ...]] = [()] * len(backward)
    for pool in templates.pools:
        for place, at in enumerate(last_bucket_of_parts(backward, buckets, pool)):
            if at in item:
                held_by[place] = (*held_by[place], item[at])
    return Gathered(tuple(templates.block(block) for block in blocks), tuple(held_by[::-1]))


class GatheredChunks:
    """What gathers each chunk, made once for those that have as many parameters."""

    def __init__(
        self, templates: UnitTemplates, known: dict[object, Gathered] | None = None
    ) -> None:
        """Make none yet.

        Args:
            templates: of the plan.
            known: of other plans, whose templates are known to these.
        """
        self.plan = templates.plan
        self._templates = templates
        self._known = {} if known is None else known

    def of(self, chunk: Chunk) -> Gathered:
        """What gathers a chunk."""
        key = tuple([part.parameters for part in chunk.parts]), self._templates.sharing
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = gathered_chunk(chunk, self._templates)
        return found


class Gatherings:
    """Gathers every chunk of every stage, ahead of its first use or behind the optimizer."""

    def __init__(self, units: UnitColumns, *, gathered: GatheredChunks, pieces: Pieces) -> None:
        """Plan what is gathered when."""
        plan = gathered.plan
        self.pieces = pieces
        self.units, self._is_ahead = units, plan.overlap.parameters
        is_any = plan.sharding in {Sharding.ZERO1, Sharding.ZERO2}
        first = np.flatnonzero(units.is_first) if is_any else np.zeros(0, np.int64)
        self._first: dict[int, list[int]] = {}  # by stage, units
        for unit in first.tolist():
            self._first.setdefault(int(units.stage[unit]), []).append(unit)
        self._gathered = {
            int(chunk): gathered.of(units.chunks[chunk]) for chunk in units.chunk[first].tolist()
        }
        self._piece_of_chunk: dict[int, int] = {}

    def write(self) -> None:
        """Gather what a chunk's first unit and the stage's next one need."""
        units = self.units
        for stage, own in self._first.items() if self._is_ahead else ():
            for place, unit in enumerate(own):
                for wanted in own[0 if place == 0 else place + 1 : place + 2]:
                    chunk = int(units.chunk[wanted])
                    self._piece_of_chunk[chunk] = self.pieces.add(
                        stage,
                        self._gathered[chunk].template,
                        turn=int(units.when(units.turn[unit], GATHERED)),
                    )

    def held(self, chunk: int) -> tuple[int, ...]:
        """Places of a chunk's parts that wait for other parameters than the part before them."""
        if not self._is_ahead or chunk not in self._gathered:
            return ()
        return self._gathered[chunk].held

    def hold(self, piece: Int64s, unit_of: Callable[[int], UnitTemplate]) -> None:
        """Let each part of a chunk's first forward pass wait for its parameters.

        Args:
            piece: int64[units].
            unit_of: what a unit is made of.
        """
        if not self._is_ahead:
            return
        for unit in (unit for own in self._first.values() for unit in own):
            chunk = int(self.units.chunk[unit])
            for first, held_by in zip(
                unit_of(unit).first_operator.tolist(), self._gathered[chunk].held_by, strict=True
            ):
                if first >= 0:
                    sources = [(self._piece_of_chunk[chunk], item) for item in held_by]
                    self.pieces.wait((int(piece[unit]), first), sources)

    def behind(self, stage: int, last_operator: Place | None) -> None:
        """Gather everything behind the optimizer, if it was not gathered ahead."""
        if self._is_ahead:
            return
        for unit in self._first.get(stage, ()):
            template = self._gathered[int(self.units.chunk[unit])].template
            piece = self.pieces.add(stage, template)
            if last_operator is not None:
                for item in range(len(template)):
                    self.pieces.wait((piece, item), [last_operator])

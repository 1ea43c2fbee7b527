"""Templates of whole units: a chunk's blocks in one pass, with what ZeRO adds between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate

import numpy as np

from foretrace.base import Int64s
from foretrace.graph import NO_LAYER, Phase
from foretrace.workload.blocks.block import Block, ModelBlocks, Passes
from foretrace.workload.exchanges.gradients import (
    Bucket,
    ParameterPool,
    bucket_numbers,
    buckets_of,
    gathering,
    pools_of,
    reduction,
)
from foretrace.workload.layout.tables import NOTHING, Tables
from foretrace.workload.layout.template import (
    Coarse,
    PlacedTemplate,
    Template,
    chained,
    coarsened,
    template_of_block,
    woven,
)
from foretrace.workload.plan.plan import Plan, Sharding, chunk_layers
from foretrace.workload.schedule.schedule import Pass, Schedule


@dataclass(frozen=True)
class Chunk:
    """A run of the model's parts that one stage holds."""

    parts: tuple[Passes, ...]  # first to last
    layers: tuple[int, ...]  # of each part, from the chunk's first layer; NO_LAYER
    first_layer: int  # over all stages
    place: int  # on its route

    @cached_property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Equal for chunks of the same objects: their work is the same but for layer numbers."""
        return tuple(map(id, self.parts)), self.layers


def chunks_of(blocks: ModelBlocks, plan: Plan, schedule: Schedule) -> tuple[Chunk, ...]:
    """The chunks of a schedule; every route holds the whole model.

    Raises:
        WorkloadError: if layers and chunks do not fit.
    """
    counts = chunk_layers(plan, len(blocks.layers))
    ends = list(accumulate(counts))
    chunks: dict[int, Chunk] = {}
    for route in schedule.routes:
        for place, chunk in enumerate(route):
            first, end = ends[place] - counts[place], ends[place]
            before = (blocks.embedding,) if place == 0 else ()
            behind = (blocks.head,) if place == len(route) - 1 else ()
            own = blocks.layers[first:end]
            opening = tuple(part for part in before if part is not None)
            closing = tuple(part for part in behind if part is not None)
            chunks[chunk] = Chunk(
                parts=(*opening, *own, *closing),
                layers=(
                    *[NO_LAYER] * len(opening),
                    *range(len(own)),
                    *[NO_LAYER] * len(closing),
                ),
                first_layer=first,
                place=place,
            )
    return tuple(chunks[chunk] for chunk in range(len(schedule.stage_of_chunk)))


def block_of(part: Passes, kind: Pass) -> Block:
    """A part's work in one pass."""
    if kind is Pass.FORWARD:
        return part.forward
    if kind is Pass.BACKWARD:
        return part.backward
    stated = part.input_backward if kind is Pass.INPUT else part.weight_backward
    return stated or part.halves[kind is Pass.WEIGHT]


@dataclass(frozen=True)
class UnitTemplate:
    """A unit's items, and where its parts are among them, in the order of the pass."""

    template: Template
    first_operator: Int64s  # int64[parts], NOTHING
    last_operator: Int64s  # int64[parts], NOTHING
    gathers: tuple[tuple[int, ...], ...]  # by part, items that gather its parameters
    loose: tuple[int, ...]  # reductions that whatever follows on the stage has to wait for


def woven_units(one: UnitTemplate, other: UnitTemplate) -> tuple[UnitTemplate, UnitTemplate]:
    """Two units whose items are launched in turns; both have the common template."""
    both, own, others = woven(one.template, other.template)
    return _moved(one, both, own), _moved(other, both, others)


def _moved(unit: UnitTemplate, both: Template, place: Int64s) -> UnitTemplate:
    def moved(items: Int64s) -> Int64s:
        return np.where(items >= 0, np.append(place, NOTHING)[items], NOTHING)

    return UnitTemplate(
        template=both,
        first_operator=moved(unit.first_operator),
        last_operator=moved(unit.last_operator),
        gathers=tuple(tuple(int(place[one]) for one in gathers) for gathers in unit.gathers),
        loose=tuple(int(place[one]) for one in unit.loose),
    )


def _coarse_unit(unit: UnitTemplate, coarse: Coarse) -> UnitTemplate:
    return UnitTemplate(
        template=coarse.template,
        first_operator=coarse.of(unit.first_operator),
        last_operator=coarse.of(unit.last_operator),
        gathers=tuple(coarse.of_all(gathers) for gathers in unit.gathers),
        loose=coarse.of_all(unit.loose),
    )


@dataclass(frozen=True)
class KnownTemplates:
    """Templates of single blocks."""

    # What parts do in each pass, by the parts' identity: kept by who keeps the parts.
    parts: dict[tuple[int, Pass], Template] = field(default_factory=dict)
    # What plans let ranks exchange and update, by all that it follows from: of any blocks.
    blocks: dict[object, Block] = field(default_factory=dict)
    templates: dict[int, tuple[Block, Template]] = field(default_factory=dict)  # by identity
    buckets: dict[object, tuple[Bucket, ...]] = field(default_factory=dict)

    def of_other_blocks(self) -> KnownTemplates:
        """Those that are known of plans whose parts are others."""
        return replace(self, parts={})


class UnitTemplates:
    """Makes templates of units, each distinct one once, kernel by kernel or at unit grain."""

    def __init__(
        self,
        plan: Plan,
        tables: Tables,
        *,
        is_coarse: bool = False,
        known: KnownTemplates | None = None,
    ) -> None:
        """Make none yet.

        Args:
            plan: of the step.
            tables: takes texts and exchanges.
            is_coarse: at unit grain.
            known: templates of other plans with the same blocks and tables.
        """
        self.plan = plan
        self.tables = tables
        self.is_coarse = is_coarse
        self.coarse: dict[int, Coarse] = {}  # by the identity of their templates
        self._fine: dict[int, UnitTemplate] = {}  # of units at unit grain, by identity
        self._stretches: dict[int, Template] = {}
        self.pools = pools_of(plan)
        self.known = KnownTemplates() if known is None else known
        self._parts, self._templates = self.known.parts, self.known.templates
        sent = plan.precision.parameters, plan.precision.reduced, plan.channels.data
        self._exchanged = (*sent, plan.local_steps)
        self._units: dict[object, UnitTemplate] = {}
        # Of parts by their identity: what gathers them in a phase, or reduces their gradients.
        self._of_parts: dict[tuple[int, Phase | None], list[Block]] = {}
        self._pairs: dict[tuple[int, int], tuple[UnitTemplate, UnitTemplate]] = {}

    def block(self, block: Block) -> Template:
        """A block's template."""
        # The block is kept with its template, so that its identity is not given to another.
        known = self._templates.get(id(block))
        if known is None:
            template = template_of_block(block, self.tables)
            known = self._templates[id(block)] = (block, template)
        return known[1]

    def made(self, key: object, make: Callable[[], Block]) -> Block:
        """A block, the same object for all that it follows from."""
        found = self.known.blocks.get(key)
        if found is None:
            found = self.known.blocks[key] = make()
        return found

    def gathering(self, count: int, pool: ParameterPool, phase: Phase) -> Block:
        """What gathers so many parameters, the same object each time."""
        key = "gathering", count, pool, phase, self._exchanged
        return self.made(key, partial(gathering, count, pool, self.plan, phase))

    def reduction(self, count: int, pool: ParameterPool) -> Block:
        """What reduces so many gradients, the same object each time."""
        key = "reduction", count, pool, self._exchanged
        return self.made(key, partial(reduction, count, pool, self.plan))

    @cached_property
    def sharing(self) -> tuple[object, ...]:
        """All that buckets of parts follow from, and what they are exchanged by."""
        return bucket_numbers(self.plan), self.pools, self._exchanged

    def buckets(self, parts: Sequence[Passes]) -> tuple[Bucket, ...]:
        """Of parts in the order of the backward pass; made once for those with as many numbers."""
        key = tuple([part.parameters for part in parts]), self.sharing
        found = self.known.buckets.get(key)
        if found is None:
            found = self.known.buckets[key] = buckets_of(parts, self.pools, self.plan)
        return found

    def part(self, part: Passes, kind: Pass) -> Template:
        """A part's work in one pass."""
        known = self._parts.get((id(part), kind))
        if known is None:
            block = block_of(part, kind)
            known = self._parts[id(part), kind] = template_of_block(block, self.tables)
        return known

    def stretch(self, block: Block) -> Template:
        """A block that is launched by itself."""
        fine = self.block(block)
        if not self.is_coarse:
            return fine
        if id(fine) not in self._stretches:
            self._stretches[id(fine)] = self._coarsened(fine).template
        return self._stretches[id(fine)]

    def unit(
        self,
        chunk: Chunk,
        kind: Pass,
        *,
        is_gathering: bool,
        is_reducing: bool,
        held: tuple[int, ...] = (),
    ) -> UnitTemplate:
        """The template of one pass of a chunk.

        Args:
            chunk: what is run.
            kind: in which pass.
            is_gathering: parameters are gathered part by part: ZeRO-3.
            is_reducing: gradients are reduced as they become ready.
            held: places of parts that something outside holds up.
        """
        key = (chunk.key, kind, is_gathering, is_reducing, held if self.is_coarse else ())
        known = self._units.get(key)
        if known is None:
            known = self._unit(chunk, kind, is_gathering=is_gathering, is_reducing=is_reducing)
            if self.is_coarse:
                first = known.first_operator[list(held)]
                known = self._with_coarse(known, tuple(first[first >= 0].tolist()))
            self._units[key] = known
        return known

    def pair(self, one: UnitTemplate, other: UnitTemplate) -> tuple[UnitTemplate, UnitTemplate]:
        """Two units of these templates, woven."""
        key = (id(one), id(other))  # both are kept, so their identities stay theirs
        if key not in self._pairs:
            if self.is_coarse:
                woven = woven_units(self._fine[id(one)], self._fine[id(other)])
                both = self._coarsened(woven[0].template)
                self._pairs[key] = _coarse_unit(woven[0], both), _coarse_unit(woven[1], both)
            else:
                self._pairs[key] = woven_units(one, other)
        return self._pairs[key]

    def _with_coarse(self, fine: UnitTemplate, cuts: tuple[int, ...]) -> UnitTemplate:
        unit = _coarse_unit(fine, self._coarsened(fine.template, cuts))
        self._fine[id(unit)] = fine
        return unit

    def _coarsened(self, fine: Template, cuts: tuple[int, ...] = ()) -> Coarse:
        coarse = coarsened(fine, self.tables, cuts=cuts)
        self.coarse[id(coarse.template)] = coarse
        return coarse

    def _unit(
        self, chunk: Chunk, kind: Pass, *, is_gathering: bool, is_reducing: bool
    ) -> UnitTemplate:
        turn = 1 if kind is Pass.FORWARD else -1
        parts, layers = chunk.parts[::turn], chunk.layers[::turn]
        phase = Phase.FORWARD if kind is Pass.FORWARD else Phase.BACKWARD
        line = _Line(self, self.plan)
        gathers = self.gathers(parts, phase) if is_gathering else {}
        reductions = self.reductions(parts) if is_reducing else {}
        for place, part in enumerate(parts):
            for other, blocks in gathers.get(place, ()):
                line.gather(other, blocks, layers[other])
            line.work(place, self.part(part, kind), layers[place])
            for reduce in reductions.get(place, ()):
                line.reduce(reduce, layers[place])
        return line.finished(len(parts))

    def gathers(
        self, parts: Sequence[Passes], phase: Phase
    ) -> dict[int, list[tuple[int, list[Block]]]]:
        """By place of a part, which parts' parameters are gathered before it works, and by what."""
        ahead = self.plan.prefetch if self.plan.overlap.parameters else 0
        found: dict[int, list[tuple[int, list[Block]]]] = {}
        for other, part in enumerate(parts):
            found.setdefault(max(other - ahead, 0), []).append((other, self._gathers(part, phase)))
        return found

    def _gathers(self, part: Passes, phase: Phase) -> list[Block]:
        key = id(part), phase
        if key not in self._of_parts:
            self._of_parts[key] = [
                self.gathering(pool.count(part.parameters), pool, phase)
                for pool in self.pools
                if pool.num_shards > 1 and pool.count(part.parameters)
            ]
        return self._of_parts[key]

    def _reductions(self, part: Passes) -> list[Block]:
        key = id(part), None
        if key not in self._of_parts:
            self._of_parts[key] = [
                self.reduction(count, pool)
                for pool in self.pools
                if (count := pool.count(part.parameters)) and pool.is_reduced
            ]
        return self._of_parts[key]

    def reductions(self, parts: Sequence[Passes]) -> dict[int, list[Block]]:
        """What is reduced behind which part."""
        if self.plan.sharding is Sharding.ZERO3:
            return {place: self._reductions(part) for place, part in enumerate(parts)}
        found: dict[int, list[Block]] = {}
        for bucket in self.buckets(parts):
            block = self.reduction(bucket.num_parameters, bucket.pool)
            found.setdefault(bucket.complete_at, []).append(block)
        return found


class _Line:
    """Collects the stretches of a unit, and what waits for what across them."""

    def __init__(self, templates: UnitTemplates, plan: Plan) -> None:
        self._templates = templates
        self._plan = plan
        self._placed: list[PlacedTemplate] = []
        self._num_items = 0
        self._side: set[int] = set()
        self._edges: list[tuple[int, int]] = []
        self._gathers: dict[int, list[int]] = {}
        self._operators: dict[int, tuple[int, int]] = {}
        self._last_operator = -1
        self._held_by: list[int] = []  # what the next operator waits for

    def gather(self, place: int, blocks: Sequence[Block], layer: int) -> None:
        """Gather a part's parameters."""
        for block in blocks:
            begin = self._add(self._templates.block(block), layer, is_side=True)
            self._gathers.setdefault(place, []).append(begin)

    def work(self, place: int, template: Template, layer: int) -> None:
        """A part's own work."""
        begin = self._add(template, layer)
        if template.first_operator < 0:
            self._operators[place] = (-1, -1)
            return
        first, last = begin + template.first_operator, begin + template.last_operator
        self._operators[place] = (first, last)
        held_by = [*self._gathers.get(place, ()), *self._held_by]
        self._edges.extend((one, first) for one in held_by)
        self._held_by = []
        self._last_operator = last

    def reduce(self, block: Block, layer: int) -> None:
        """Reduce gradients that the last operator made ready."""
        template = self._templates.block(block)
        begin = self._add(template, layer, is_side=True)
        if self._last_operator >= 0:
            self._edges.extend((self._last_operator, begin + e) for e in template.entries[0])
        if not self._plan.overlap.gradients:
            self._held_by.extend(begin + one for one in template.exits[0])

    def finished(self, num_parts: int) -> UnitTemplate:
        """The unit."""
        template = chained(self._placed, self._edges, side=frozenset(self._side))
        nothing = (-1, -1)
        found = [self._operators.get(place, nothing) for place in range(num_parts)]
        return UnitTemplate(
            template=template,
            first_operator=np.array([pair[0] for pair in found], np.int64),
            last_operator=np.array([pair[1] for pair in found], np.int64),
            gathers=tuple(tuple(self._gathers.get(place, ())) for place in range(num_parts)),
            loose=tuple(self._held_by),
        )

    def _add(self, template: Template, layer: int, *, is_side: bool = False) -> int:
        if is_side:
            self._side.add(len(self._placed))
        self._placed.append(PlacedTemplate(template, layer if len(template) else NO_LAYER))
        begin = self._num_items
        self._num_items += len(template)
        return begin

"""Which parts of a model each chunk of a pipeline runs, and which block in which pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

from foretrace.graph import NO_LAYER
from foretrace.workload.blocks.block import Block, Item, ModelBlocks, Passes
from foretrace.workload.plan.plan import Plan, chunk_layers
from foretrace.workload.schedule.schedule import Pass, Schedule


@dataclass(frozen=True)
class Chunk:
    """A run of the model's parts that one stage holds."""

    parts: tuple[Passes, ...]  # first to last
    layers: tuple[int, ...]  # of each part, from the chunk's first layer; NO_LAYER
    first_layer: int  # over all stages
    place: int  # on its route

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Equal for chunks of the same objects: their work is the same but for layer numbers."""
        return tuple(id(part) for part in self.parts), self.layers


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
    """A part's work in one pass; a backward pass that no one took apart is taken apart here."""
    if kind is Pass.FORWARD:
        return part.forward
    if kind is Pass.BACKWARD:
        return part.backward
    stated = part.input_backward if kind is Pass.INPUT else part.weight_backward
    return stated or _half(part.backward, is_weight=kind is Pass.WEIGHT)


def _half(block: Block, *, is_weight: bool) -> Block:
    """The items of one kind; what they waited for in the other half is done or not theirs."""
    kept = [at for at, item in enumerate(block.items) if item.is_weight_gradient == is_weight]
    place = {at: index for index, at in enumerate(kept)}

    def moved(item: Item) -> Item:
        return replace(item, after=tuple(place[one] for one in item.after if one in place))

    return Block(block.part, tuple(moved(block.items[at]) for at in kept))

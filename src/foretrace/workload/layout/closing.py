"""What ends a step: gradients reduced that were not yet, agreements, and the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from foretrace.graph import Phase
from foretrace.workload.blocks.block import Block, Item, ModelBlocks, ParameterCount
from foretrace.workload.blocks.optimizer import norm_place, optimizer_block
from foretrace.workload.exchanges.gradients import (
    agreement,
    shard_count,
    total_parameters,
)
from foretrace.workload.layout.pieces import Pieces
from foretrace.workload.layout.sharded import Gatherings
from foretrace.workload.layout.stage_units import StageEnd
from foretrace.workload.layout.units import Chunk, UnitTemplates
from foretrace.workload.plan.groups import group_size
from foretrace.workload.plan.plan import Group, Plan, Sharding
from foretrace.workload.schedule.schedule import Schedule

Optimizer = Callable[[int, Plan], Block]  # of so many parameters that one rank updates
_ADDED_DTYPE = "fp32"  # of the norm of all gradients: Megatron, torch.nn.utils.clip_grad_norm_


class _Closing:
    """Launches what ends a stage's step, one stretch behind the other."""

    def __init__(self, stage: int, end: StageEnd, templates: UnitTemplates, pieces: Pieces) -> None:
        """Begin where the stage's units end."""
        self._stage, self._pieces = stage, pieces
        self.templates, self.plan = templates, templates.plan
        self.last_operator, self._held_by = end.last_operator, end.held_by

    def follow(self, block: Block, *, is_barrier: bool = False) -> None:
        """Launch a block that works on all that was computed before it.

        Args:
            block: the same object wherever it is the same work.
            is_barrier: it waits for all communication before it.
        """
        template = self.templates.stretch(block)
        piece = self._pieces.add(self._stage, template, is_barrier=is_barrier)
        sources = [self.last_operator] if self.last_operator else []
        if template.first_operator >= 0:
            self._pieces.wait((piece, template.first_operator), self._held_by)
            self._held_by = ()
            self.last_operator = (piece, template.last_operator)
        for entry in template.entries[0]:
            self._pieces.wait((piece, entry), sources)


def close(
    ends: Sequence[StageEnd],
    templates: UnitTemplates,
    gatherings: Gatherings,
    *,
    blocks: ModelBlocks,
    optimizer: Optimizer | None,
) -> None:
    """Write what every stage does behind its last unit.

    Args:
        ends: where each stage stands.
        templates: of units and other stretches.
        gatherings: of parameters.
        blocks: the model's.
        optimizer: makes the block of the update; PyTorch's Adam if left out.
    """
    units = gatherings.units
    closings = Closings(templates, blocks, optimizer)
    for stage, end in enumerate(ends):
        closing = _Closing(stage, end, templates, gatherings.pieces)
        own = chunks_of_stage(units.chunks, units.schedule, stage)
        for block, is_barrier in closings.of(own, units.schedule):
            closing.follow(block, is_barrier=is_barrier)
        gatherings.behind(stage, closing.last_operator)


def chunks_of_stage(chunks: Sequence[Chunk], schedule: Schedule, stage: int) -> list[Chunk]:
    """Those that a stage holds."""
    return [
        chunk for chunk, own in zip(chunks, schedule.stage_of_chunk, strict=True) if own == stage
    ]


class Closings:
    """Blocks that end a stage's step, the same object wherever it is the same work."""

    def __init__(
        self, templates: UnitTemplates, blocks: ModelBlocks, optimizer: Optimizer | None = None
    ) -> None:
        """Make none yet."""
        self._templates, self._plan = templates, templates.plan
        self._optimizer = optimizer
        self._table = _sum_of_table(blocks, templates.plan)

    def of(self, chunks: Sequence[Chunk], schedule: Schedule) -> list[tuple[Block, bool]]:
        """Blocks behind the units of a stage of these chunks; and which wait for all before."""
        found = [(block, False) for block in self._reductions(chunks)]
        found += [(block, True) for block in self._agreements(chunks)]
        if self._table is not None and has_table(chunks, schedule):
            found.append((self._table, True))
        parameters = total_parameters([part for one in chunks for part in one.parts])
        return [*found, (self._update(parameters), True)]

    def _reductions(self, chunks: Sequence[Chunk]) -> list[Block]:
        """Gradients that were to be reduced behind all backward passes."""
        plan = self._plan
        if plan.overlap.gradients or plan.sharding in {Sharding.ZERO2, Sharding.ZERO3}:
            return []
        return [
            self._templates.reduction(bucket.num_parameters, bucket.pool)
            for chunk in chunks
            for bucket in self._templates.buckets(chunk.parts[::-1])
        ]

    def _update(self, parameters: ParameterCount) -> Block:
        """The optimizer's block, in which all ranks agree on the norm of gradients."""
        plan = self._plan
        own = shard_count(parameters, self._templates.pools)
        keeps_all = plan.sharding in {Sharding.NONE, Sharding.ZERO1}
        kept = parameters.dense + parameters.expert if keeps_all else own
        is_alone = group_size(plan, Group.ALL) == 1

        def made() -> Block:
            if self._optimizer is not None:
                block = self._optimizer(own, plan)
            else:
                block = optimizer_block(own, plan, num_gradients=kept)
            place = norm_place(block)
            return block if is_alone or place is None else with_sum(block, place)

        said = self._optimizer, plan.precision, plan.implementation, plan.sharding, plan.adapters
        return self._templates.made(("update", own, kept, is_alone, *said), made)

    def _agreements(self, chunks: Sequence[Chunk]) -> list[Block]:
        """Where two stages hold the same chunks, their gradients are added up: DualPipe."""
        plan, pools = self._plan, self._templates.pools
        if group_size(plan, Group.MIRROR) == 1:
            return []
        dtype = plan.precision.reduced
        return [
            agreement(
                shard_count(total_parameters(chunk.parts), pools),
                Group.MIRROR,
                dtype,
                "gradients of mirrored stages",
            )
            for chunk in sorted(chunks, key=lambda chunk: chunk.place)
        ]


def has_table(chunks: Sequence[Chunk], schedule: Schedule) -> bool:
    """Whether a stage holds one end of the model; one that holds both has the table once."""
    ends = {0, max(len(route) for route in schedule.routes) - 1}
    return len({chunk.place for chunk in chunks} & ends) == 1


def with_sum(block: Block, place: int) -> Block:
    """The block with a sum over all ranks behind one of its items."""
    own = agreement(1, Group.ALL, _ADDED_DTYPE, "sum of gradient norms").items[0]

    def moved(item: Item, *more: int) -> Item:
        after = (*(one if one <= place else one + 1 for one in item.after), *more)
        return replace(item, after=after)

    behind = block.items[place + 1 :]
    items = (
        *block.items[: place + 1],
        replace(own, phase=Phase.OPTIMIZER, after=(place,)),
        *(moved(item, *([place + 1] if at == 0 else [])) for at, item in enumerate(behind)),
    )
    return Block(block.part, items)


def _sum_of_table(blocks: ModelBlocks, plan: Plan) -> Block | None:
    """The first and the last stage add up the gradients of the table they share."""
    if not blocks.tied_parameters or plan.pipeline == 1:
        return None
    dtype = plan.precision.gradients
    count = blocks.tied_parameters
    return agreement(count, Group.EMBEDDING, dtype, "gradients of the tied table")

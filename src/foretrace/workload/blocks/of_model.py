"""`blocks_of_model`: any model under a plan becomes blocks, a module's own code too.

Its operators are taken as they are: what a plan says of implementation and number formats inside
layers does not change them. The plan says how they are repeated, recomputed, cut into stages and
accumulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from foretrace.base import WorkloadError, collective_kind_of
from foretrace.graph import Part, Phase
from foretrace.operators import ModuleProgram, ProgramPart, Ran, Tensor
from foretrace.workload.blocks.block import (
    Block,
    Item,
    ModelBlocks,
    Operator,
    ParameterCount,
    Passes,
)
from foretrace.workload.blocks.diffusion import blocks_of_diffusion
from foretrace.workload.blocks.recommender import blocks_of_recommender
from foretrace.workload.blocks.signatures import array, call
from foretrace.workload.blocks.steps import but_saved, moved, shard_copies
from foretrace.workload.blocks.transformer import KnownSteps, blocks_of_transformer
from foretrace.workload.exchanges.exchange import Exchange
from foretrace.workload.models.diffusion import Diffusion
from foretrace.workload.models.parameters import Model
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.models.recompute import Recompute
from foretrace.workload.models.transformer import Transformer
from foretrace.workload.plan.groups import expert_tensor_size
from foretrace.workload.plan.plan import Channels, Group, Plan, Sharding


def blocks_of_program(program: ModuleProgram, plan: Plan) -> ModelBlocks:
    """What one rank does for one microbatch; layers alike are one object.

    Args:
        program: of one microbatch, divided over as many tensor ranks as the plan has.
        plan: legal for it: `check_plan`.
    """
    known: list[tuple[ProgramPart, Passes]] = []
    layers = [_alike(part, known, plan) for part in program.layers]
    largest = max(
        program.all_parts[1:], key=lambda part: part.input_bytes, default=program.all_parts[0]
    )
    return ModelBlocks(
        embedding=_end(program.before, Part.EMBEDDING, program, plan),
        layers=tuple(layers),
        head=_end(program.behind, Part.HEAD, program, plan),
        transfer_bytes=largest.input_bytes,
        transfer_dtype=largest.input_dtype or plan.precision.activations,
        tied_parameters=program.tied_parameters,
        notes=program.notes,
    )


def _alike(part: ProgramPart, known: list[tuple[ProgramPart, Passes]], plan: Plan) -> Passes:
    # A model has few different layers, the last of which comes again most often.
    for other, passes in reversed(known):
        if part.is_like(other):
            return passes
    known.append((part, _passes(part, Part.LAYER, part.num_parameters, plan)))
    return known[-1][1]


def _end(part: ProgramPart | None, kind: Part, program: ModuleProgram, plan: Plan) -> Passes | None:
    if part is None:
        return None
    count = part.num_parameters
    if kind is Part.HEAD and plan.pipeline > 1:  # which then holds a copy of what is shared
        count += program.tied_parameters
    return _passes(part, kind, count, plan)


def _passes(part: ProgramPart, kind: Part, num_parameters: int, plan: Plan) -> Passes:
    forward = _items(part.forward, Phase.FORWARD, Phase.FORWARD)
    backward = _items(part.backward, Phase.BACKWARD, Phase.RECOMPUTE)
    again = _again(forward, plan) if kind is Part.LAYER else ()
    copied, sent = shard_copies(num_parameters, plan)
    forward = (*copied, *moved(forward, len(copied)))
    gathered = copied if plan.reshard_after_forward else ()
    opening = (
        *(replace(item, phase=Phase.BACKWARD) for item in gathered),
        *moved(again, len(gathered)),
    )
    backward = (
        *opening,
        *moved(backward, len(opening)),
        *_accumulations(part.parameters, plan),
        *(replace(item, phase=Phase.BACKWARD) for item in sent),
    )
    return Passes(kind, Block(kind, forward), Block(kind, backward), ParameterCount(num_parameters))


def _items(ran: Sequence[Ran], phase: Phase, again: Phase) -> tuple[Item, ...]:
    """Operators in order; an exchange sends what came before it and is waited for at once."""
    found: list[Item] = []
    waiting: tuple[int, ...] = ()
    for at, one in enumerate(ran):
        its_phase = again if one.is_again else phase
        if one.is_exchange:
            found.append(
                Exchange(
                    one.label,
                    collective_kind_of(one.name),
                    Group.TENSOR,
                    one.num_bytes,
                    one.dtype,
                    its_phase,
                    after=(at - 1,) if at else (),
                    is_weight_gradient=one.is_weight_gradient,
                )
            )
            waiting = (*waiting, at)
            continue
        found.append(
            Operator(
                one.label,
                one.name,
                one.signature,
                its_phase,
                after=waiting,
                is_weight_gradient=one.is_weight_gradient,
            )
        )
        waiting = ()
    return tuple(found)


def _again(forward: tuple[Item, ...], plan: Plan) -> tuple[Item, ...]:
    """What a layer's backward pass computes again before it starts."""
    if plan.recompute is Recompute.NONE:
        return ()
    again = tuple(replace(item, phase=Phase.RECOMPUTE) for item in forward)
    return again if plan.recompute is Recompute.FULL else but_saved(again)


def _accumulations(parameters: Sequence[Tensor], plan: Plan) -> Iterator[Operator]:
    """Gradients are added to those of microbatches before, a kernel for each parameter."""
    if plan.num_microbatches == 1 or plan.sharding in {Sharding.ZERO2, Sharding.ZERO3}:
        return
    for one in parameters:
        kept, made = array(one.shape, plan.precision.gradients), array(one.shape, one.dtype)
        added = call("aten::add", kept, made)
        yield Operator(
            "accumulation of a gradient",
            added.name,
            added.signature,
            Phase.BACKWARD,
            is_weight_gradient=True,
        )


def blocks_of_model(
    model: Model | ModuleProgram, plan: Plan, known: KnownSteps | None = None
) -> ModelBlocks:
    """What one rank does for one microbatch of a model, or a module of its own, under a plan.

    Args:
        model: the model.
        plan: the plan.
        known: steps of a transformer's layers under other plans.

    Raises:
        WorkloadError: for a model of which only totals are known, and for sizes that the plan's
            ranks cannot divide.
    """
    if isinstance(model, Transformer):
        return _in_channels(blocks_of_transformer(model, plan, known), plan)
    if isinstance(model, Recommender):
        return blocks_of_recommender(model, plan)
    if isinstance(model, Diffusion):
        return _in_channels(blocks_of_diffusion(model, plan), plan)
    if isinstance(model, ModuleProgram):
        return _in_channels(blocks_of_program(model, plan), plan)
    raise WorkloadError(
        f"model {model.name!r} is a {model.kind}, of which only totals are known: describe its "
        "shape in a file of its own, or take another"
    )


def _in_channels(blocks: ModelBlocks, plan: Plan) -> ModelBlocks:
    """The blocks, whose exchanges take the channels that the plan states; alike stay one object."""
    if plan.channels == Channels():
        return blocks
    known: dict[int, Passes] = {}

    def of_block(block: Block) -> Block:
        items = (
            replace(item, channels=plan.channels.of(item.group))
            if isinstance(item, Exchange)
            else item
            for item in block.items
        )
        return replace(block, items=tuple(items))

    def of_part(part: Passes | None) -> Passes | None:
        if part is None:
            return None
        if id(part) not in known:
            halves = part.input_backward, part.weight_backward
            known[id(part)] = replace(
                part,
                forward=of_block(part.forward),
                backward=of_block(part.backward),
                input_backward=halves[0] and of_block(halves[0]),
                weight_backward=halves[1] and of_block(halves[1]),
            )
        return known[id(part)]

    return replace(
        blocks,
        embedding=of_part(blocks.embedding),
        layers=tuple(one for one in map(of_part, blocks.layers) if one is not None),
        head=of_part(blocks.head),
        transfer_channels=plan.channels.of(Group.PIPELINE),
    )


def plan_of_blocks(plan: Plan) -> Plan:
    """A plan of the fewest ranks and microbatches that has the same blocks.

    Plans with the same one share their blocks: it keeps all that blocks read.
    """
    ranks = plan.tensor * plan.context
    data = -(-plan.expert * expert_tensor_size(plan) // ranks)
    sharding = Sharding.NONE if plan.sharding is Sharding.ZERO1 else plan.sharding
    # Gathered parameters are copied, and quantised anew; else they are read as any others are.
    is_read_alike = not plan.implementation.copies_shards and not plan.precision.is_quantised
    if sharding is Sharding.ZERO3 and is_read_alike:
        sharding = Sharding.ZERO2
    return replace(
        plan,
        data=data,
        global_batch=min(plan.num_microbatches, 2) * plan.micro_batch * data,
        pipeline=min(plan.pipeline, 2),  # a pipeline has the table at both ends
        schedule="1f1b",
        num_chunks=1,
        layers_of_chunk=None,
        name="",
        path=None,
        contiguous=None,
        outer_data=None,
        expert_stride=None,
        sharding=sharding,
        shard_ranks=None,
        # What is behind all units.
        overlap=replace(plan.overlap, parameters=False, gradients=False),
    )

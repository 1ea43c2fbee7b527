"""`blocks_of_program`: what a model's own code runs becomes blocks.

Its operators are taken as they are: what a plan says of implementation and number formats inside
layers does not change them. The plan says how they are repeated, recomputed, cut into stages and
accumulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from foretrace.base import collective_kind_of
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
from foretrace.workload.blocks.signatures import array, call
from foretrace.workload.blocks.steps import but_saved, moved, shard_copies
from foretrace.workload.exchanges.exchange import Exchange
from foretrace.workload.models.flops import Recompute
from foretrace.workload.plan.plan import Group, Plan, Sharding


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

"""Memory of a module's own code under a plan: what autograd keeps of it was seen as it ran.

Parameters, gradients and the optimizer's states are counted as for any model. Activations are
those of the module's own parts; PyTorch's allocator keeps them in blocks that are a little larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foretrace.operators import ModuleProgram, ProgramPart
from foretrace.workload.footprint.footprint import (
    ChunkBytes,
    Footprint,
    Peaks,
    StageFootprint,
    chunk_bytes,
    peaks_of,
)
from foretrace.workload.footprint.kept import Kept
from foretrace.workload.footprint.parts import PartBytes
from foretrace.workload.footprint.software import PYTORCH
from foretrace.workload.footprint.states import Held, gathered_bytes, reduction_bytes, states_of
from foretrace.workload.models.recompute import Recompute
from foretrace.workload.plan.plan import Plan, Sharding, chunk_layers
from foretrace.workload.schedule.schedule import Schedule

_NOTE = (
    "activations are what autograd keeps as the module runs; not counted: buffers of NCCL, and "
    "memory lost between tensors (fragmentation)"
)


@dataclass(frozen=True)
class _Chunk:
    """A run of a program's parts on one stage."""

    layers: tuple[ProgramPart, ...]
    ends: tuple[ProgramPart, ...]
    bytes: ChunkBytes


def footprint_of_program(
    program: ModuleProgram, plan: Plan, schedule: Schedule, *, capacity: int | None, context: int
) -> Footprint:
    """Bytes that every stage's ranks hold at the worst moment of a step.

    Args:
        program: of one microbatch.
        plan: a legal plan for it.
        schedule: of that plan.
        capacity: usable bytes of one chip, if known.
        context: bytes that a process holds before any tensor.

    Raises:
        WorkloadError: if layers do not fit the chunks, or a number format is unknown.
    """
    chunks = _chunks(program, plan, schedule)
    peaks = peaks_of(schedule.orders, [chunks[at].bytes for at in range(len(chunks))])
    stages = tuple(
        _stage(stage, program, plan, schedule=schedule, chunks=chunks, peaks=peaks, context=context)
        for stage in range(schedule.num_stages)
    )
    return Footprint(
        stages,
        capacity,
        notes=(_NOTE,),
        tensors=_kept(program.layers[0], plan),
    )


def _stage(
    stage: int,
    program: ModuleProgram,
    plan: Plan,
    *,
    schedule: Schedule,
    chunks: Mapping[int, _Chunk],
    peaks: Peaks,
    context: int,
) -> StageFootprint:
    own = {
        chunk: chunks[chunk] for chunk, home in enumerate(schedule.stage_of_chunk) if home == stage
    }
    kept = int(peaks.kept[stage])
    layers = tuple(_held(part) for chunk in own.values() for part in chunk.layers)
    ends = _ends(program, [part for chunk in own.values() for part in chunk.ends])
    total = sum((one.matrices for one in layers), ends.matrices)
    states = states_of(Held(matrices=total), plan, keeps_transposes=False)
    whole = sum(chunk.bytes.kept for chunk in own.values())
    buffers = PYTORCH.workspace_bytes
    if plan.pipeline > 1:  # one message that arrives and one that leaves
        buffers += 2 * max(part.input_bytes for part in program.all_parts)
    if plan.sharding is Sharding.ZERO3:
        buffers += gathered_bytes(plan, ends, layers)
    return StageFootprint(
        stage=stage,
        parameters=states.parameters,
        gradients=states.gradients,
        optimizer=states.optimizer,
        activations=kept,
        buffers=int(peaks.more[stage]) + buffers,
        context=context,
        num_in_flight=kept / whole if whole else 0.0,
        peak_unit=int(peaks.unit[stage]),
    )


def _ends(program: ModuleProgram, parts: list[ProgramPart]) -> Held:
    """Parameters of what comes before and behind all layers; a stage holds what is tied once."""
    found = sum(part.num_parameters for part in parts)
    is_last_alone = program.behind in parts and program.before not in parts
    return Held(matrices=found + (program.tied_parameters if is_last_alone else 0))


def _chunks(program: ModuleProgram, plan: Plan, schedule: Schedule) -> dict[int, _Chunk]:
    """Parts of every chunk of every route."""
    split = chunk_layers(plan, program.num_layers)
    found: dict[int, _Chunk] = {}
    for route in schedule.routes:
        at = 0
        for place, (chunk, count) in enumerate(zip(route, split, strict=True)):
            layers = program.layers[at : at + count]
            before = (program.before,) if place == 0 else ()
            behind = (program.behind,) if place == len(route) - 1 else ()
            opening = tuple(part for part in before if part is not None)
            closing = tuple(part for part in behind if part is not None)
            parts = (
                *(_end_bytes(part, plan) for part in opening),
                *(_layer_bytes(part, plan) for part in layers),
                *(_end_bytes(part, plan) for part in closing),
            )
            found[chunk] = _Chunk(
                layers, (*opening, *closing), chunk_bytes([(one, 1) for one in parts])
            )
            at += count
    return found


def _layer_bytes(part: ProgramPart, plan: Plan) -> PartBytes:
    kept = _kept(part, plan)
    # What is computed again is there once more while the layer's gradients are.
    dropped = max(0, part.kept_bytes - sum(each.num_bytes for each in kept))
    more = _gradients(plan, _held(part))
    return PartBytes(
        kept,
        forward=part.forward_bytes + dropped,
        backward=part.backward_bytes + dropped + more,
        until_weights=part.kept_bytes,
    )


def _end_bytes(part: ProgramPart, plan: Plan) -> PartBytes:
    more = _gradients(plan, _held(part))
    kept = (Kept("all that is kept", part.kept_bytes),)
    return PartBytes(kept, part.forward_bytes, part.backward_bytes + more)


def _kept(part: ProgramPart, plan: Plan) -> tuple[Kept, ...]:
    if plan.recompute is Recompute.FULL:
        return (Kept("input of the layer", part.input_bytes),)
    # What selective recompute drops depends on operators; all is the most it can be.
    return (Kept("all that is kept", part.kept_bytes),)


def _gradients(plan: Plan, held: Held) -> int:
    """Whole gradients that ZeRO-3 has for a moment."""
    return reduction_bytes(plan, Held(), held) if plan.sharding is Sharding.ZERO3 else 0


def _held(part: ProgramPart) -> Held:
    return Held(matrices=part.num_parameters)

"""Microbatches and schedule: the order of passes on every stage, compared with known schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from foretrace.base import WorkloadError
from foretrace.graph import NO_LAYER, NO_MICROBATCH, NO_STEP, Part, Phase
from foretrace.whatif.recorded.program import RecordedPiece
from foretrace.whatif.recorded.stages import Stages
from foretrace.workload import Pass, Plan, chunk_layers, schedule_of

# One pass of a chunk for a microbatch: what, which, and the chunk over all stages.
_Unit = tuple[Pass, int, int]
_PASS_OF_PHASE = {Phase.FORWARD: Pass.FORWARD, Phase.BACKWARD: Pass.BACKWARD}
NO_SCHEDULE = "none"  # as plans call it: a pipeline that has it cannot be laid out
_NAMES = ("1f1b", "gpipe")


@dataclass(frozen=True)
class RecordedPasses:
    """What a step's order of passes shows."""

    num_microbatches: int
    num_chunks: int  # of each stage
    layers_of_chunk: tuple[int, ...] | None  # `None`: as even as can be
    schedule: str  # NO_SCHEDULE: no known one fits
    contiguous: int | None
    notes: tuple[str, ...]


def passes_of(
    pieces_by_rank: Mapping[int, tuple[RecordedPiece, ...]],
    stages: Stages,
    plan: Plan,
    *,
    is_stated: bool = False,
) -> RecordedPasses:
    """Microbatches of a step, chunks of a stage, and the schedule that has the recorded order.

    Args:
        pieces_by_rank: of the recording.
        stages: its pipeline.
        plan: degrees; what it says of the batch is not looked at.
        is_stated: whether its schedule is stated, and tried before others.
    """
    notes: list[str] = []
    num_microbatches = _num_microbatches(pieces_by_rank, notes)
    chunks = _chunks(stages, notes)
    per_stage = len(chunks) // stages.count or 1
    lengths = tuple(len(each) for each in chunks)
    tried = replace(
        plan,
        num_chunks=per_stage,
        micro_batch=1,
        global_batch=num_microbatches * plan.data,
        layers_of_chunk=None,
    )
    even = chunk_layers(tried, sum(lengths)) if len(lengths) > 1 else lengths
    orders = _orders(pieces_by_rank, stages, chunks)
    names = (plan.schedule, *_NAMES) if is_stated else _NAMES
    schedule, contiguous = _schedule(tried, orders, names, notes)
    return RecordedPasses(
        num_microbatches=num_microbatches,
        num_chunks=per_stage,
        layers_of_chunk=None if lengths == even or stages.doubts else lengths,
        schedule=schedule,
        contiguous=contiguous,
        notes=tuple(notes),
    )


def _num_microbatches(
    pieces_by_rank: Mapping[int, tuple[RecordedPiece, ...]], notes: list[str]
) -> int:
    """Of a step; the most of any, where steps differ. Out: `notes` if they do."""
    seen: dict[tuple[int, int], set[int]] = {}
    has_layers = any(each.part == Part.LAYER for own in pieces_by_rank.values() for each in own)
    for rank, pieces in pieces_by_rank.items():
        for piece in pieces:
            is_counted = piece.part == Part.LAYER or not has_layers
            if is_counted and piece.microbatch != NO_MICROBATCH:
                seen.setdefault((rank, piece.step), set()).add(piece.microbatch)
    counts = {len(each) for (_, step), each in seen.items() if step != NO_STEP} or {
        len(each) for each in seen.values()
    }
    if len(counts) > 1:
        notes.append(
            f"steps and ranks differ in microbatches ({', '.join(map(str, sorted(counts)))}): "
            "the most were taken"
        )
    return max(counts, default=1)


def _chunks(stages: Stages, notes: list[str]) -> tuple[tuple[int, ...], ...]:
    """Layers of every chunk, in the order of the model. Out: `notes`."""
    runs = [runs_of_layers(own) for own in stages.layers]
    if stages.count == 1:
        return stages.layers
    if len({len(each) for each in runs}) > 1:
        notes.append(
            "stages hold different numbers of runs of layers, so they were taken for one chunk each"
        )
        return stages.layers
    return tuple(sorted((run for each in runs for run in each), key=lambda run: run[:1]))


def runs_of_layers(layers: Sequence[int]) -> list[tuple[int, ...]]:
    """Layers of a stage that follow each other: its chunks; one empty one of no layers."""
    found: list[list[int]] = []
    for layer in layers:
        if found and found[-1][-1] + 1 == layer:
            found[-1].append(layer)
        else:
            found.append([layer])
    return [tuple(each) for each in found] or [()]


def _orders(
    pieces_by_rank: Mapping[int, tuple[RecordedPiece, ...]],
    stages: Stages,
    chunks: Sequence[tuple[int, ...]],
) -> dict[int, tuple[_Unit, ...]]:
    """Units of every stage with a recorded rank, in issue order of the step with most of them."""
    chunk_of_layer = {layer: place for place, own in enumerate(chunks) for layer in own}
    found: dict[int, tuple[_Unit, ...]] = {}
    for rank, stage in sorted(stages.stage_by_rank.items()):
        if stage in found:
            continue
        by_step: dict[int, list[_Unit]] = {}
        for piece in pieces_by_rank[rank]:
            kind = _PASS_OF_PHASE.get(piece.phase)
            if (
                kind is None
                or piece.part != Part.LAYER
                or NO_LAYER in {piece.layer, piece.microbatch}
            ):
                continue
            unit = (kind, piece.microbatch, chunk_of_layer[piece.layer])
            units = by_step.setdefault(piece.step, [])
            if unit not in units[-2:]:  # a piece of recompute or a bucket may lie between
                units.append(unit)
        longest: list[_Unit] = max(by_step.values(), key=len, default=[])
        found[stage] = tuple(longest)
    return found


def _schedule(
    plan: Plan, orders: Mapping[int, tuple[_Unit, ...]], names: Sequence[str], notes: list[str]
) -> tuple[str, int | None]:
    """Name of the schedule with the recorded order, and its `contiguous`. Out: `notes`."""
    seen = [units for units in orders.values() if units]
    if not seen:
        notes.append("no passes of layers were found, so nothing shows a schedule")
        return (NO_SCHEDULE if plan.pipeline > 1 else "1f1b"), None
    kinds = {kind for units in seen for kind, _, _ in units}
    if Pass.BACKWARD not in kinds:
        notes.append("forward passes only")
    if plan.pipeline > 1 and plan.num_microbatches == 1 and names == _NAMES:
        notes.append("with one microbatch all schedules are the same: 1f1b is taken")
    for name, contiguous in _tried(plan, names):
        if _fits(replace(plan, schedule=name, contiguous=contiguous), orders, kinds):
            return name, contiguous
    notes.append(
        "the recorded order of passes is that of no known schedule: state one to change "
        "microbatches or stages"
    )
    return NO_SCHEDULE, None


def _tried(plan: Plan, names: Sequence[str]) -> list[tuple[str, int | None]]:
    """Names and `contiguous`, those first that are wanted first."""
    if plan.num_chunks > 1:
        return [("interleaved", None), ("interleaved", plan.num_microbatches)]
    return [(name, None) for name in names]


def _fits(plan: Plan, orders: Mapping[int, tuple[_Unit, ...]], kinds: set[Pass]) -> bool:
    try:
        schedule = schedule_of(plan)
    except WorkloadError:
        return False
    for stage, units in orders.items():
        known = tuple(
            (each.kind, each.microbatch, each.chunk)
            for each in schedule.units[stage]
            if each.kind in kinds
        )
        if known != units:
            return False
    return True

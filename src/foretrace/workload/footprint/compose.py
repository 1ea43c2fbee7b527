"""`footprint`: the bytes of every stage of a plan, and when they are the most.

`PlanMemory` counts for many plans of one model: what plans have in common is counted once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TypeVar

import numpy as np

from foretrace.base import Int64s, WorkloadError
from foretrace.machine import Chip
from foretrace.operators import ModuleProgram
from foretrace.workload.footprint.footprint import (
    ChunkBytes,
    Footprint,
    Peaks,
    StageFootprint,
    chunk_bytes,
    peaks_of,
)
from foretrace.workload.footprint.kept import transfer_bytes
from foretrace.workload.footprint.of_program import footprint_of_program
from foretrace.workload.footprint.parts import (
    PartBytes,
    embedding_bytes,
    head_bytes,
    layer_bytes,
)
from foretrace.workload.footprint.sizes import format_bytes, sizes_of
from foretrace.workload.footprint.software import Software, software_of
from foretrace.workload.footprint.states import (
    ChunkParts,
    Held,
    HeldEnds,
    Holdings,
    LayerKind,
    LayerKinds,
    StageParts,
    States,
    dummy_gradient_bytes,
    reduction_bytes,
)
from foretrace.workload.models.parameters import Model
from foretrace.workload.models.transformer import Transformer
from foretrace.workload.plan.plan import Plan, Sharding, chunk_layers, plan_of_layer
from foretrace.workload.schedule.catalogue import steady_microbatches, steady_schedule
from foretrace.workload.schedule.schedule import Orders, Schedule

# What a process holds on a device before any tensor: 1343 MiB.
# Measured: Hugging Face, transformers/docs/source/en/model_memory_anatomy.md (V100, CUDA 11.2),
# which calls 1 to 2 GB usual.
_CONTEXT_BYTES = 1343 * 2**20
# Products of 8-bit numbers want both inputs along rows.
# Source: TransformerEngine 2.9, pytorch/utils.py, is_non_tn_fp8_gemm_supported.
_ROWS_ONLY = ("Ada", "Hopper")
_NOTES = (
    "not counted: buffers of NCCL, and memory lost between tensors (fragmentation)",
    "activations are those of the fullest moment; every stage has its own",
)

_Numbered = TypeVar("_Numbered")


def footprint(
    model: Model | ModuleProgram,
    plan: Plan,
    schedule: Schedule,
    *,
    capacity: int | None = None,
    chip: Chip | None = None,
    software: Software | None = None,
) -> Footprint:
    """Bytes that every stage's ranks hold at the worst moment of a step.

    Args:
        model: a transformer, or a module of its own.
        plan: a legal plan for it.
        schedule: of that plan.
        capacity: usable bytes of one chip; the chip's memory, if left out.
        chip: what it runs on; without, 8-bit products are taken to need transposed weights.
        software: what it runs with; guessed from the sharding, if left out.

    Raises:
        WorkloadError: if the model is no transformer, its layers do not fit the chunks, or a
            number format is unknown.
    """
    if capacity is None and chip is not None:
        capacity = chip.memory_bytes
    if isinstance(model, ModuleProgram):
        return footprint_of_program(
            model, plan, schedule, capacity=capacity, context=_CONTEXT_BYTES
        )
    if not isinstance(model, Transformer):
        raise WorkloadError(
            f"memory of {model.name!r}, a {model.kind}, cannot be told: only a transformer's "
            "tensors are known one by one; see its weights with foretrace model show"
        )
    memory = PlanMemory(model, chip=chip, software=software)
    return replace(memory.footprint(plan, schedule), capacity=capacity)


class PlanMemory:
    """Bytes under many plans of one model; what several plans have in common is counted once."""

    def __init__(
        self, model: Transformer, *, chip: Chip | None = None, software: Software | None = None
    ) -> None:
        """Count nothing yet; the rest is as in `footprint`."""
        self._model, self._software = model, software
        self._rows_only = chip is None or chip.architecture in _ROWS_ONLY
        self._parts: dict[object, _Parts] = {}
        self._holdings: dict[object, Holdings] = {}
        self._kinds = LayerKinds(model)
        self._drawn = _Shapes(self._kinds)
        self._shapes: dict[object, _Shape] = {}

    def footprint(self, plan: Plan, schedule: Schedule) -> Footprint:
        """Every stage of a plan.

        Raises:
            WorkloadError: as `footprint`.
        """
        parts, shape = self._parts_of(plan), self._drawn.shape(plan, schedule)
        peaks = parts.peaks(shape)
        own = [(parts.stage(plan, held), parts.whole(held)) for held in shape.distinct_stages]
        stages = tuple(
            own[number][0].with_peak(stage, peaks, whole=own[number][1])
            for stage, number in enumerate(shape.stage_number.tolist())
        )
        kinds = self._kinds.of(plan)
        kept = parts.layers[kinds[0]].kept if kinds else ()
        return Footprint(stages, capacity=None, notes=_NOTES, tensors=kept)

    def stage_bytes(self, plan: Plan) -> Int64s:
        """What ranks of every stage hold at its worst moment, all in all; int64[stages].

        Args:
            plan: a legal plan.

        Raises:
            WorkloadError: as `footprint`.
        """
        parts = self._parts_of(plan)
        key = (
            *(plan.schedule, plan.pipeline, plan.num_chunks, plan.contiguous),
            *(steady_microbatches(plan), plan.layers_of_chunk, plan.path),
            plan.recompute_of_layer,
        )
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._drawn.shape(plan, steady_schedule(plan))
        highest = parts.highest.get(key)
        if highest is None:
            peaks = parts.peaks(shape)
            highest = parts.highest[key] = peaks.kept + peaks.more + parts.everywhere
        found: Int64s = highest + parts.of_stages(plan, shape.distinct_stages)[shape.stage_number]
        return found

    def room(self, plan: Plan, schedule: Schedule, capacity: int) -> tuple[Int64s, Int64s]:
        """What orders of the same units may hold, whatever they are.

        Args:
            plan: a legal plan.
            schedule: any order of its units, or none of them.
            capacity: of a chip.

        Returns:
            Bytes of every chunk for a microbatch, int64[4, chunks]: kept, in a forward pass, in a
            backward pass, kept until gradients of weights; and those left for them on every stage.
        """
        parts, shape = self._parts_of(plan), self._drawn.shape(plan, schedule)
        rows = [parts.chunk(one).row for one in shape.distinct_chunks]
        own = [parts.stage(plan, held).without_peak for held in shape.distinct_stages]
        left: Int64s = capacity - np.array(own, np.int64)[shape.stage_number]
        return np.array(rows, np.int64)[shape.chunk_number].T.copy(), left

    def _parts_of(self, plan: Plan) -> _Parts:
        """What plans have in common that give a rank the same work of a microbatch."""
        key = (
            *(plan.tensor, plan.context, plan.expert, plan.expert_tensor, plan.pipeline == 1),
            *(plan.micro_batch, plan.sequence, plan.sequence_parallel, plan.context_exchange),
            *(
                plan.recompute,
                plan.recompute_modules,
                plan.recompute_of_layer,
                plan.sharding is Sharding.ZERO3,
                plan.token_shares,
            ),
            *(plan.precision, plan.implementation, plan.adapters),
        )
        found = self._parts.get(key)
        if found is None:
            software = self._software or software_of(plan)
            own = (
                *(plan.tensor, plan.expert, plan.expert_tensor, plan.recompute_of_layer),
                *(plan.adapters, plan.implementation),
            )
            if own not in self._holdings:
                self._holdings[own] = Holdings(self._model, plan, self._kinds.of(plan))
            found = self._parts[key] = _Parts(
                self._holdings[own], plan, software, rows_only=self._rows_only
            )
        return found


@dataclass(frozen=True, eq=False)
class _Shape:
    """A schedule's units, and what its chunks and stages are made of."""

    orders: Orders
    distinct_chunks: tuple[ChunkParts, ...]
    chunk_number: Int64s  # int64[chunks], place among them
    distinct_stages: tuple[StageParts, ...]
    stage_number: Int64s  # int64[stages], place among them

    @cached_property
    def row(self) -> Int64s:
        """Place of each unit's chunk among the distinct ones; int64[units]."""
        found: Int64s = self.chunk_number[self.orders.chunk]
        return found


class _Shapes:
    """Makes shapes of one model."""

    def __init__(self, kinds: LayerKinds) -> None:
        self._kinds = kinds
        self._chunks: dict[object, ChunkParts] = {}
        self._stages: dict[tuple[ChunkParts, ...], StageParts] = {}
        self._known: dict[object, _Shape] = {}

    def shape(self, plan: Plan, schedule: Schedule) -> _Shape:
        """The shape of a plan's schedule; those of other orders of the same chunks are alike."""
        kinds = self._kinds.of(plan)
        split = chunk_layers(plan, len(kinds))
        key = schedule.routes, schedule.stage_of_chunk, split, plan.recompute_of_layer
        if key not in self._known:
            self._known[key] = self._made(schedule, kinds, split)
        return replace(self._known[key], orders=schedule.orders)

    def _made(self, schedule: Schedule, kinds: Sequence[LayerKind], split: Sequence[int]) -> _Shape:
        layers: dict[int, tuple[LayerKind, ...]] = {}
        ends: dict[int, HeldEnds] = {}
        for route in schedule.routes:
            at = 0
            for chunk, count in zip(route, split, strict=True):
                layers[chunk] = tuple(kinds[at : at + count])
                ends[chunk] = HeldEnds(chunk == route[0], chunk == route[-1])
                at += count
        chunks_of_stage: list[list[int]] = [[] for _ in range(schedule.num_stages)]
        for chunk, stage in enumerate(schedule.stage_of_chunk):
            chunks_of_stage[stage].append(chunk)
        chunks: dict[int, ChunkParts] = {}
        for own in chunks_of_stage:
            both = HeldEnds(any(ends[one].first for one in own), any(ends[one].last for one in own))
            for one in own:
                key = (layers[one], ends[one], both)
                chunks[one] = self._chunks.setdefault(key, ChunkParts(*key))
        stages = [
            self._stages.setdefault(parts, StageParts(parts))
            for parts in (tuple(chunks[one] for one in own) for own in chunks_of_stage)
        ]
        distinct_chunks, chunk_number = _numbered([chunks[one] for one in range(len(chunks))])
        distinct_stages, stage_number = _numbered(stages)
        return _Shape(schedule.orders, distinct_chunks, chunk_number, distinct_stages, stage_number)


def _numbered(values: Sequence[_Numbered]) -> tuple[tuple[_Numbered, ...], Int64s]:
    """The distinct values, and of every one its place among them."""
    place = {value: at for at, value in enumerate(dict.fromkeys(values))}
    return tuple(place), np.array([place[value] for value in values], np.int64)


@dataclass(frozen=True)
class _StageBytes:
    """Bytes of a stage beside what its worst moment adds."""

    states: States
    buffers: int

    @property
    def without_peak(self) -> int:
        """All of them, with the context."""
        states = self.states
        return (
            states.parameters + states.gradients + states.optimizer + self.buffers + _CONTEXT_BYTES
        )

    def with_peak(self, stage: int, peaks: Peaks, *, whole: int) -> StageFootprint:
        """What the stage holds at its worst moment; `whole`: kept of a microbatch by its chunks."""
        kept = int(peaks.kept[stage])
        return StageFootprint(
            stage=stage,
            parameters=self.states.parameters,
            gradients=self.states.gradients,
            optimizer=self.states.optimizer,
            activations=kept,
            buffers=int(peaks.more[stage]) + self.buffers,
            context=_CONTEXT_BYTES,
            num_in_flight=kept / whole if whole else 0.0,
            peak_unit=int(peaks.unit[stage]),
        )


class _Parts:
    """Bytes of a model's parts, and of chunks and stages of them, each counted once."""

    def __init__(
        self, holdings: Holdings, plan: Plan, software: Software, *, rows_only: bool
    ) -> None:
        self._holdings, self._plan = holdings, plan
        model = holdings.model
        self.layers = {
            kind: layer_bytes(model, plan_of_layer(plan, layer.index), software, layer=layer)
            for kind, layer in holdings.kinds.items()
        }
        self._embedding = embedding_bytes(model, plan, software)
        self._head = head_bytes(model, plan, software)
        precision = plan.precision
        is_narrow = format_bytes(precision.parameters) < format_bytes(precision.activations)
        self._keeps_transposes = is_narrow and rows_only
        # What stays: one message that arrives and one that leaves, and what libraries keep.
        self._buffers = software.workspace_bytes
        self._buffers += 2 * transfer_bytes(sizes_of(model, plan, software))
        if software.keeps_dummy_gradients:
            self._buffers += dummy_gradient_bytes(model, plan)
        self._chunks: dict[ChunkParts, ChunkBytes] = {}
        self._reduced: dict[tuple[LayerKind | None, HeldEnds], PartBytes] = {}
        self.highest: dict[object, Int64s] = {}  # by shape, the worst moments of stages

    def peaks(self, shape: _Shape) -> Peaks:
        """The worst moment of every stage."""
        chunks = [self.chunk(chunk) for chunk in shape.distinct_chunks]
        return peaks_of(shape.orders, chunks, shape.row)

    def whole(self, stage: StageParts) -> int:
        """Bytes kept for one microbatch by all chunks of a stage."""
        return sum(self.chunk(chunk).kept for chunk in stage.chunks)

    def stage(self, plan: Plan, stage: StageParts) -> _StageBytes:
        """Bytes of a stage, under a plan that has these parts."""
        transposes = self._keeps_transposes
        states = self._holdings.states(stage, plan, keeps_transposes=transposes)
        return _StageBytes(states, self._buffers + self._holdings.whole_bytes(stage, plan))

    @property
    def everywhere(self) -> int:
        """Bytes that every stage has, whatever it holds."""
        return self._buffers + _CONTEXT_BYTES

    def of_stages(self, plan: Plan, stages: tuple[StageParts, ...]) -> Int64s:
        """Bytes of stages beside those and their worst moments; int64[stages]."""
        transposes = self._keeps_transposes
        return self._holdings.of_stages(stages, plan, keeps_transposes=transposes)

    def chunk(self, chunk: ChunkParts) -> ChunkBytes:
        """Bytes of a chunk for one microbatch."""
        found = self._chunks.get(chunk)
        if found is None:
            found = self._chunks[chunk] = chunk_bytes(list(self._runs_of(chunk)))
        return found

    def _runs_of(self, chunk: ChunkParts) -> Iterator[tuple[PartBytes, int]]:
        """A chunk's parts, and how many of each follow one another."""
        ends = chunk.ends_of_stage
        if chunk.ends.first:
            yield self._with_reduction(self._embedding, ends, None), 1
        for kind, own in groupby(chunk.layers):
            yield self._with_reduction(self.layers[kind], ends, kind), len(list(own))
        if chunk.ends.last:
            yield self._head, 1

    def _with_reduction(self, part: PartBytes, ends: HeldEnds, kind: LayerKind | None) -> PartBytes:
        """With the whole gradients that ZeRO-3 has for a moment."""
        if self._plan.sharding is not Sharding.ZERO3:
            return part
        found = self._reduced.get((kind, ends))
        if found is None:
            held, both = self._holdings, self._holdings.ends(ends)
            own = Held() if kind is None else held.layers[kind]
            more = reduction_bytes(self._plan, both, own, is_embedding=kind is None)
            found = self._reduced[kind, ends] = replace(part, backward=part.backward + more)
        return found

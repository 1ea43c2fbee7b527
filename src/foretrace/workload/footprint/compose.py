"""`footprint`: the bytes of every stage of a plan, and when they are the most."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from foretrace.base import WorkloadError
from foretrace.machine import Chip
from foretrace.operators import ModuleProgram
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.footprint.footprint import (
    ChunkBytes,
    Footprint,
    StageFootprint,
    chunk_bytes,
    stage_peak,
)
from foretrace.workload.footprint.gathered import (
    dummy_gradient_bytes,
    gathered_bytes,
    reduction_bytes,
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
from foretrace.workload.footprint.states import Held, ends_held, layer_held, states_of
from foretrace.workload.models.parameters import Model
from foretrace.workload.models.transformer import Layer, Reach, Transformer
from foretrace.workload.plan.plan import Plan, Sharding, chunk_layers
from foretrace.workload.schedule.schedule import Schedule

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
    stages = _Stages(model, plan, schedule, software or software_of(plan), chip)
    return Footprint(
        stages=tuple(stages.footprint(stage) for stage in range(schedule.num_stages)),
        capacity=capacity,
        notes=_NOTES,
        tensors=stages.layer(model.layers[0]).kept if model.layers else (),
    )


class _Stages:
    """Work on all stages; layers that are alike are looked at once."""

    def __init__(
        self,
        model: Transformer,
        plan: Plan,
        schedule: Schedule,
        software: Software,
        chip: Chip | None,
    ) -> None:
        self._model, self._plan = model, plan
        self._schedule, self._software = schedule, software
        self._chip = chip
        self._layers = model.layers
        self._bytes: dict[tuple[bool, Reach | None], PartBytes] = {}
        self._held: dict[tuple[bool, Reach | None], Held] = {}
        self._split = chunk_layers(plan, model.num_layers)
        self._layers_of_chunk = self._assigned()

    def layer(self, layer: Layer) -> PartBytes:
        """Bytes of a layer for one microbatch."""
        key = (layer.has_experts, layer.reach)
        if key not in self._bytes:
            self._bytes[key] = layer_bytes(self._model, self._plan, self._software, layer)
            self._held[key] = layer_held(self._model, layer, self._plan)
        return self._bytes[key]

    def footprint(self, stage: int) -> StageFootprint:
        """Bytes of one stage."""
        chunks = [
            chunk for chunk, home in enumerate(self._schedule.stage_of_chunk) if home == stage
        ]
        ends = reduce(Held.__add__, (self._ends(chunk) for chunk in chunks), Held())
        ends = self._without_copy(ends, chunks)
        activations = {chunk: self._chunk(chunk, ends) for chunk in chunks}
        peak = stage_peak(self._schedule.units[stage], activations)
        layers = tuple(
            self._layer_held(layer) for chunk in chunks for layer in self._of_chunk(chunk)
        )
        held = reduce(Held.__add__, layers, ends)
        states = states_of(held, self._plan, keeps_transposes=self._keeps_transposes())
        whole = sum(each.kept for each in activations.values())
        return StageFootprint(
            stage=stage,
            parameters=states.parameters,
            gradients=states.gradients,
            optimizer=states.optimizer,
            activations=peak.kept,
            buffers=peak.more + self._buffers(ends, layers) + self._added_up(chunks),
            context=_CONTEXT_BYTES,
            num_in_flight=peak.kept / whole if whole else 0.0,
            peak_unit=peak.unit,
        )

    def _added_up(self, chunks: list[int]) -> int:
        """Whole gradients of one chunk: ZeRO-2 adds them up in a pipeline before it scatters."""
        if self._plan.sharding is not Sharding.ZERO2 or self._plan.pipeline == 1:
            return 0
        held = [
            reduce(Held.__add__, map(self._layer_held, self._of_chunk(chunk)), self._ends(chunk))
            for chunk in chunks
        ]
        largest = max(each.dense + each.experts for each in held)
        return round(format_bytes(self._plan.precision.gradients) * largest)

    def _assigned(self) -> dict[int, tuple[Layer, ...]]:
        """Layers of every chunk of every route."""
        found: dict[int, tuple[Layer, ...]] = {}
        for route in self._schedule.routes:
            at = 0
            for chunk, count in zip(route, self._split, strict=True):
                found[chunk] = self._layers[at : at + count]
                at += count
        return found

    def _chunk(self, chunk: int, ends: Held) -> ChunkBytes:
        parts = [self._reduced(self.layer(each), ends, each) for each in self._of_chunk(chunk)]
        if self._is_first(chunk):
            embedding = embedding_bytes(self._model, self._plan, self._software)
            parts.insert(0, self._reduced(embedding, ends, None))
        if self._is_last(chunk):
            parts.append(head_bytes(self._model, self._plan, self._software))
        return chunk_bytes(tuple(parts))

    def _reduced(self, part: PartBytes, ends: Held, layer: Layer | None) -> PartBytes:
        """With the whole gradients that ZeRO-3 has for a moment."""
        if self._plan.sharding is not Sharding.ZERO3:
            return part
        held = Held() if layer is None else self._layer_held(layer)
        more = reduction_bytes(self._plan, ends, held, is_embedding=layer is None)
        return replace(part, backward=part.backward + more)

    def _of_chunk(self, chunk: int) -> tuple[Layer, ...]:
        return self._layers_of_chunk[chunk]

    def _ends(self, chunk: int) -> Held:
        embedding, output = ends_held(self._model, self._plan)
        first = embedding if self._is_first(chunk) else Held()
        return first + (output if self._is_last(chunk) else Held())

    def _without_copy(self, ends: Held, chunks: list[int]) -> Held:
        """Tied embeddings count once on a stage that holds both."""
        is_both = any(map(self._is_first, chunks)) and any(map(self._is_last, chunks))
        if not (self._model.ties_embeddings and is_both):
            return ends
        table = Setting(self._model, self._plan).vocabulary * self._model.hidden
        return Held(ends.matrices, ends.rest - table, ends.experts)

    def _is_first(self, chunk: int) -> bool:
        return any(route[0] == chunk for route in self._schedule.routes)

    def _is_last(self, chunk: int) -> bool:
        return any(route[-1] == chunk for route in self._schedule.routes)

    def _layer_held(self, layer: Layer) -> Held:
        self.layer(layer)
        return self._held[layer.has_experts, layer.reach]

    def _keeps_transposes(self) -> bool:
        precision = self._plan.precision
        is_narrow = format_bytes(precision.parameters) < format_bytes(precision.activations)
        architecture = self._chip.architecture if self._chip else _ROWS_ONLY[-1]
        return is_narrow and architecture in _ROWS_ONLY

    def _buffers(self, ends: Held, layers: tuple[Held, ...]) -> int:
        """What stays, beside what lives within the peak's unit."""
        plan, model = self._plan, self._model
        # One message that arrives and one that leaves.
        found = self._software.workspace_bytes
        found += 2 * transfer_bytes(sizes_of(model, plan, self._software))
        if self._software.keeps_dummy_gradients:
            found += dummy_gradient_bytes(model, plan)
        if plan.sharding is Sharding.ZERO3:
            found += gathered_bytes(plan, ends, layers)
        return found

"""`Holdings`: parameters of layers, chunks and stages on a rank, counted once for many plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from foretrace.workload.blocks.setting import Setting
from foretrace.workload.footprint.gathered import gathered_bytes
from foretrace.workload.footprint.states import (
    Held,
    States,
    ends_held,
    layer_held,
    states_of,
)
from foretrace.workload.models.transformer import Layer, Transformer
from foretrace.workload.plan.plan import Plan


@dataclass(frozen=True, eq=False)
class LayerKind:
    """Layers of one are alike, and do the same again; alike ones are one object."""

    layer: Layer
    again: str


class LayerKinds:
    """Kinds of a model's layers."""

    def __init__(self, model: Transformer) -> None:
        self._layers = model.layers
        self._known: dict[tuple[Layer, str], LayerKind] = {}
        self._of_plans: dict[tuple[str, ...] | None, tuple[LayerKind, ...]] = {}

    def of(self, plan: Plan) -> tuple[LayerKind, ...]:
        """Of every layer."""
        again = plan.recompute_of_layer
        found = self._of_plans.get(again)
        if found is None:
            words = [""] * len(self._layers) if again is None else again
            keys = [(layer.kind, word) for layer, word in zip(self._layers, words, strict=True)]
            found = tuple(self._known.setdefault(key, LayerKind(*key)) for key in keys)
            self._of_plans[again] = found
        return found


@dataclass(frozen=True)
class HeldEnds:
    """Whether something holds the model's embedding, and its output."""

    first: bool
    last: bool


@dataclass(frozen=True, eq=False)
class ChunkParts:
    """What a chunk is made of; alike ones are one object."""

    layers: tuple[LayerKind, ...]
    ends: HeldEnds
    ends_of_stage: HeldEnds


@dataclass(frozen=True, eq=False)
class StageParts:
    """The chunks of a stage; alike ones are one object."""

    chunks: tuple[ChunkParts, ...]


@dataclass(frozen=True)
class StageHeld:
    """What a stage holds, whoever divides it."""

    ends: Held  # the embedding and the output
    held: Held  # all
    largest: int  # parameters of its largest chunk
    layers: tuple[Held, ...]


class Holdings:
    """Parameters of chunks and stages on a rank, each counted once."""

    def __init__(self, model: Transformer, plan: Plan, kinds: tuple[LayerKind, ...]) -> None:
        self.model, self._plan = model, plan
        self.kinds = dict(zip(kinds, model.layers, strict=True))  # with a layer of each
        self.layers = {kind: layer_held(model, layer, plan) for kind, layer in self.kinds.items()}
        self._ends = ends_held(model, plan)
        self._stages: dict[StageParts, StageHeld] = {}
        self._states: dict[object, States] = {}
        self._gathered: dict[object, int] = {}

    def stage(self, stage: StageParts) -> StageHeld:
        """What a stage holds."""
        found = self._stages.get(stage)
        if found is None:
            found = self._stages[stage] = self._stage_held(stage.chunks)
        return found

    def states(self, stage: StageParts, plan: Plan, *, keeps_transposes: bool) -> States:
        """Bytes of what stays, whatever a microbatch is."""
        key = (
            *(stage, plan.precision, plan.sharding, plan.shard_ranks),
            *(plan.data * plan.context, keeps_transposes),
        )
        found = self._states.get(key)
        if found is None:
            held = self.stage(stage).held
            found = self._states[key] = states_of(held, plan, keeps_transposes=keeps_transposes)
        return found

    def gathered(self, stage: StageParts, plan: Plan) -> int:
        """Bytes that ZeRO-3 gathers on a stage."""
        key = (
            *(stage, plan.prefetch, plan.reshard_after_forward, plan.pipeline == 1),
            *(plan.precision, plan.implementation),
        )
        found = self._gathered.get(key)
        if found is None:
            own = self.stage(stage)
            found = self._gathered[key] = gathered_bytes(plan, own.ends, own.layers)
        return found

    def _stage_held(self, chunks: Sequence[ChunkParts]) -> StageHeld:
        ends = self.ends(chunks[0].ends_of_stage) if chunks else Held()
        counts = Counter(chunks)
        layers = {
            chunk: reduce(
                Held.__add__,
                (self.layers[kind].times(count) for kind, count in Counter(chunk.layers).items()),
                Held(),
            )
            for chunk in counts
        }
        both = [own + self._both_ends(chunk.ends) for chunk, own in layers.items()]
        own = [layers[chunk].times(count) for chunk, count in counts.items()]
        return StageHeld(
            ends=ends,
            held=reduce(Held.__add__, own, ends),
            largest=max((one.dense + one.experts for one in both), default=0),
            layers=tuple(self.layers[kind] for chunk in chunks for kind in chunk.layers),
        )

    def _both_ends(self, ends: HeldEnds) -> Held:
        embedding, output = self._ends
        first = embedding if ends.first else Held()
        return first + (output if ends.last else Held())

    def ends(self, ends: HeldEnds) -> Held:
        """The embedding and the output; tied ones count once where a stage holds both."""
        found = self._both_ends(ends)
        if not (self.model.ties_embeddings and ends.first and ends.last):
            return found
        table = Setting(self.model, self._plan).vocabulary * self.model.hidden
        return replace(found, rest=found.rest - table)

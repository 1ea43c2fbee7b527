"""Bytes that stay from step to step, and buffers beside them, of layers, chunks and stages.

PyTorch's allocator keeps a pool for each stream, and memory that one stream has reserved serves no
other. PyTorch's FSDP2 gathers into buffers of a stream of its own, copies them out for the stream
that computes, and copies whole gradients, in the format in which they are reduced, there too.

Source:
    PyTorch 2.13, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (`foreach_all_gather`,
    `foreach_reduce`) and _fsdp_param_group.py (a reduction's input lives until the next one's);
    torch/distributed/pipelining/stage.py (no reduction before the last microbatch).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from foretrace.base import Int64s
from foretrace.workload.blocks.adapters import adapter_count
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.footprint.sizes import format_bytes
from foretrace.workload.models.parameters import (
    layer_parameters,
    norm_parameters,
    output_parameters,
    prediction_parameters,
    table_parameters,
)
from foretrace.workload.models.parts import (
    EXPERTS,
    NORMS,
    ROUTER,
)
from foretrace.workload.models.transformer import Layer, Positions, Transformer
from foretrace.workload.plan.groups import expert_tensor_size, shard_size
from foretrace.workload.plan.plan import Plan, Sharding

_FP32 = 4


@dataclass(frozen=True)
class Held:
    """Parameters that one rank holds, before they are divided over data-parallel ranks."""

    matrices: int = 0  # of layers; these may be in 8 bits
    rest: int = 0  # norms, routers, embedding, output projection: always in 16
    experts: int = 0
    adapters: int = 0  # beside all others, which are frozen then

    @property
    def dense(self) -> int:
        """All but experts' and adapters'."""
        return self.matrices + self.rest

    def __add__(self, other: Held) -> Held:
        """Both."""
        return Held(
            self.matrices + other.matrices,
            self.rest + other.rest,
            self.experts + other.experts,
            self.adapters + other.adapters,
        )

    def times(self, count: int) -> Held:
        """So many of it."""
        own = (self.matrices, self.rest, self.experts, self.adapters)
        return Held(*(count * one for one in own))


@dataclass(frozen=True)
class States:
    """Bytes of them on one rank."""

    parameters: int
    gradients: int
    optimizer: int


def layer_held(model: Transformer, layer: Layer, plan: Plan) -> Held:
    """Parameters of one layer that a rank holds.

    Tensor ranks divide matrices, and repeat norms and routers; experts are divided over EXPERT
    and EXPERT_TENSOR.
    """
    held = _divided({p.name: p.total for p in layer_parameters(model, layer).parts}, plan)
    return replace(held, adapters=adapter_count(Setting(model, plan), layer))


def ends_held(model: Transformer, plan: Plan) -> tuple[Held, Held]:
    """Parameters of the embedding and of the output, without what they share.

    The output is the last norm, the projection and the modules that predict further tokens. Tied
    embeddings count with both, since stages that hold either hold a copy.
    """
    table = output = Setting(model, plan).vocabulary * model.hidden
    if model.patches is not None:
        table, output = table_parameters(model), output_parameters(model)
    positions = model.context * model.hidden if model.positions is Positions.LEARNED else 0
    norm = norm_parameters(model)
    embedding = Held(rest=table + positions + (norm if model.has_embedding_norm else 0))
    behind = Held(rest=output + norm)
    if model.num_prediction_modules:
        counts: Counter[str] = Counter()
        for part in prediction_parameters(model).parts:
            counts[part.name] += part.total * model.num_prediction_modules
        behind += _divided(counts, plan)
        own = adapter_count(Setting(model, plan), model.layers[-1])
        behind += Held(adapters=own * model.num_prediction_modules)
    return embedding, behind


def _divided(counts: dict[str, int] | Counter[str], plan: Plan) -> Held:
    experts = counts.get(EXPERTS, 0) // (plan.expert * expert_tensor_size(plan))
    rest = counts.get(NORMS, 0) + counts.get(ROUTER, 0)
    matrices = sum(counts.values()) - counts.get(EXPERTS, 0) - rest
    return Held(matrices=matrices // plan.tensor, rest=rest, experts=experts)


def states_of(held: Held, plan: Plan, *, keeps_transposes: bool) -> States:
    """Bytes of what stays, under a plan's sharding.

    ZeRO-3 shards the copy that the optimizer keeps and works with gathered ones, which are
    buffers; so the shard is the copy, where there is one.

    Args:
        held: parameters of a rank before they are divided over data-parallel ranks.
        plan: any plan.
        keeps_transposes: whether 8-bit matrices are kept a second time, transposed: products of
            8-bit numbers want both inputs along rows before Blackwell.

    Source:
        Rajbhandari et al., arXiv:1910.02054, section 5; Zhao et al., arXiv:2304.11277; for fp8
        TransformerEngine 2.9, pytorch/utils.py, is_non_tn_fp8_gemm_supported.
    """
    precision, sharding = plan.precision, plan.sharding
    trained = held if plan.adapters is None else Held(rest=held.adapters)
    whole, split = float(trained.dense + trained.experts), _sharded(trained, plan)
    gradient = format_bytes(precision.gradients)
    gradients = gradient * (whole if sharding in {Sharding.NONE, Sharding.ZERO1} else split)
    optimizer = precision.optimizer_bytes * (whole if sharding is Sharding.NONE else split)
    if sharding is Sharding.ZERO3:
        copy = format_bytes(precision.parameters)
        if precision.optimizer_bytes >= 3 * _FP32:
            copy, optimizer = _FP32, optimizer - _FP32 * split
        return States(round(copy * split), round(gradients), round(optimizer))
    parameters = working_bytes(held, plan, keeps_transposes=keeps_transposes)
    return States(parameters, round(gradients), round(optimizer))


def working_bytes(held: Held, plan: Plan, *, keeps_transposes: bool = False) -> int:
    """Bytes of parameters as products read them."""
    number = format_bytes(plan.precision.parameters)
    wide = format_bytes(plan.precision.activations)
    if number >= wide:
        return round(number * (held.dense + held.experts + held.adapters))
    matrices, rest = held.matrices + held.experts, held.rest + held.adapters
    return round(number * matrices * (2 if keeps_transposes else 1) + wide * rest)


def _sharded(held: Held, plan: Plan) -> float:
    """Parameters of a rank's shard."""
    ranks = shard_size(plan)
    copies = plan.ranks_of_stage // (plan.expert * expert_tensor_size(plan))
    expert_ranks = copies if plan.shard_ranks is None else min(copies, plan.shard_ranks)
    return held.dense / ranks + held.experts / max(1, expert_ranks)


def gathered_bytes(plan: Plan, ends: Held, layers: tuple[Held, ...]) -> int:
    """Whole parameters of ZeRO-3 on a rank, and gradients that wait for a pipeline's end.

    Args:
        plan: a plan whose parameters are sharded.
        ends: parameters of the embedding and the output on this stage, gathered as one group
            that stays from the forward pass to the backward pass.
        layers: those of each layer of the stage; each is a group.
    """
    ends_whole = working_bytes(ends, plan)
    size_of = {each: working_bytes(each, plan) for each in set(layers)}
    sizes = sorted((size_of[each] for each in layers), reverse=True)
    ahead = sizes[: 1 + plan.prefetch]
    if not plan.implementation.copies_shards:
        # Gathered where they are read, some ahead.
        return ends_whole + sum(ahead if plan.reshard_after_forward else sizes)
    whole = ends_whole + sum(sizes[:1] if plan.reshard_after_forward else sizes)
    return whole + max(ends_whole, sum(ahead)) + _waiting_bytes(plan, ends, layers)


def reduction_bytes(plan: Plan, ends: Held, held: Held, *, is_embedding: bool = False) -> int:
    """Whole gradients of ZeRO-3 while a layer's backward pass runs, or the embedding's.

    Args:
        plan: a plan whose parameters are sharded.
        ends: parameters of the embedding and the output on this stage.
        held: parameters of the layer.
        is_embedding: whether it is the embedding's pass instead, whose gradients are as large as
            its part of `ends`, and after which all of `ends` is reduced.
    """
    reduced = format_bytes(plan.precision.reduced)
    computed = format_bytes(plan.precision.activations)
    if _waiting_bytes(plan, ends, (held,)):
        return round(computed * (held.dense + held.experts))
    if is_embedding:
        return round((computed + reduced) * ends.dense)
    count = held.dense + held.experts
    if not plan.implementation.copies_shards:
        return round(reduced * count)
    # Its own and what the reduction before still reads; the output's gradient waits for the
    # embedding's, which is of one group with it.
    return round(computed * (count + ends.dense / 2) + 2 * reduced * count)


def _waiting_bytes(plan: Plan, ends: Held, layers: tuple[Held, ...]) -> int:
    if plan.pipeline == 1 or not plan.implementation.copies_shards:
        return 0
    counts = sum(each.dense + each.experts for each in (ends, *layers))
    return round(format_bytes(plan.precision.reduced) * counts)


def dummy_gradient_bytes(model: Transformer, plan: Plan) -> int:
    """One unused gradient for every shape of weights in the model's layers."""
    number = format_bytes(plan.precision.activations)
    shapes = _mixer_shapes(model, plan)
    widths = []
    if model.num_dense_layers:
        widths.append(model.feed_forward.width // plan.tensor)
    if model.experts is not None and any(layer.has_experts for layer in model.layers):
        experts = model.experts
        widths.append(experts.width // expert_tensor_size(plan))
        widths.append(experts.num_shared * experts.shared_width // plan.tensor)
    for width in filter(None, widths):
        up = width * (2 if model.feed_forward.is_gated else 1)
        shapes |= {(up, model.hidden), (model.hidden, width)}
    return round(sum(rows * columns for rows, columns in shapes) * number)


def _mixer_shapes(model: Transformer, plan: Plan) -> set[tuple[int, int]]:
    attention, hidden = model.attention, model.hidden
    if model.states is not None:
        own = Setting(model, plan).own_states
        found = {(own.projected, hidden), (hidden, own.inner)}
        found |= {(wide, own.gate_rank) for wide in (own.num_decays, own.inner) if own.gate_rank}
        rest = replace(model, states=None)
        return found | (_mixer_shapes(rest, plan) if attention.num_heads else set())
    heads, latent = attention.num_heads, attention.latent
    output = (hidden, heads * attention.value_size // plan.tensor)
    if latent is None:
        rows = (heads + 2 * attention.num_kv_heads) * attention.head_size // plan.tensor
        rows += heads * attention.value_size * attention.has_output_gate // plan.tensor
        return {(rows, hidden), output}
    queries = heads * attention.score_size // plan.tensor
    values = heads * (attention.head_size + attention.value_size) // plan.tensor
    # The projections down are not divided.
    query = (
        {(latent.query_rank, hidden), (queries, latent.query_rank)}
        if latent.query_rank
        else {(queries, hidden)}
    )
    if (indexer := attention.indexer) is not None:
        query |= {
            (indexer.num_heads * indexer.head_size, latent.query_rank),
            (indexer.head_size, hidden),
            (indexer.num_heads, hidden),
        }
    return query | {
        (latent.rank + latent.rotary_size, hidden),
        (values, latent.rank),
        output,
    }


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
        self._of_stages: dict[object, Int64s] = {}

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

    def of_stages(
        self, stages: tuple[StageParts, ...], plan: Plan, *, keeps_transposes: bool
    ) -> Int64s:
        """Bytes of `states` and `whole_bytes` of several stages; int64[stages]."""
        key = (
            *(stages, plan.precision, plan.sharding, plan.shard_ranks, plan.data * plan.context),
            *(plan.prefetch, plan.reshard_after_forward, plan.pipeline == 1, keeps_transposes),
        )
        found = self._of_stages.get(key)
        if found is None:
            states = [self.states(one, plan, keeps_transposes=keeps_transposes) for one in stages]
            own = [one.parameters + one.gradients + one.optimizer for one in states]
            more = [self.whole_bytes(one, plan) for one in stages]
            found = self._of_stages[key] = np.array([own, more], np.int64).sum(axis=0)
        return found

    def whole_bytes(self, stage: StageParts, plan: Plan) -> int:
        """Bytes of what ranks divide, where a stage has all of it for a moment."""
        if plan.sharding is Sharding.ZERO3:
            return self.gathered(stage, plan)
        if plan.sharding is Sharding.ZERO2 and plan.pipeline > 1:
            # Whole gradients of one chunk are added up before they are scattered.
            return round(format_bytes(plan.precision.gradients) * self.stage(stage).largest)
        return 0

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

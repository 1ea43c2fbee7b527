"""Bytes that stay from step to step: parameters, gradients, states of the optimizer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from foretrace.workload.blocks.adapters import adapter_count
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.footprint.sizes import format_bytes
from foretrace.workload.models.parameters import (
    EXPERTS,
    NORMS,
    ROUTER,
    layer_parameters,
    norm_parameters,
    output_parameters,
    prediction_parameters,
    table_parameters,
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
    copies = plan.tensor * plan.context * plan.data // (plan.expert * expert_tensor_size(plan))
    expert_ranks = copies if plan.shard_ranks is None else min(copies, plan.shard_ranks)
    return held.dense / ranks + held.experts / max(1, expert_ranks)

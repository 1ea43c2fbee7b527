"""`blocks_of_transformer`: a transformer under a plan becomes the blocks of one rank."""

from __future__ import annotations

from dataclasses import replace

from foretrace.graph import Part
from foretrace.workload.blocks.adapters import adapter_count
from foretrace.workload.blocks.attention import attention_steps
from foretrace.workload.blocks.block import ModelBlocks, ParameterCount, Passes
from foretrace.workload.blocks.calls import elementwise, embedding, gathered_copy
from foretrace.workload.blocks.ends import (
    embedding_steps,
    head_steps,
    loss_steps,
    patch_steps,
    pooled_steps,
)
from foretrace.workload.blocks.experts import expert_steps, feed_forward_steps
from foretrace.workload.blocks.linear import Weight, columns
from foretrace.workload.blocks.pointwise import (
    Joint,
    joins_sums,
    norm_step,
    residual_gradient_sum,
    residual_step,
    stream_norm_steps,
)
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.blocks.states import state_steps
from foretrace.workload.blocks.steps import (
    Items,
    Step,
    operator,
    passes_of,
    shard_copies,
    within,
)
from foretrace.workload.exchanges.activations import handed_over
from foretrace.workload.models.parameters import (
    feed_forward_extras,
    feed_forward_weights,
    indexer_extras,
    indexer_weights,
    norm_parameters,
    output_parameters,
    query_key_scales,
    router_weights,
    state_extras,
    state_weights,
    table_parameters,
)
from foretrace.workload.models.recompute import Recompute, RecomputeModule
from foretrace.workload.models.transformer import (
    Experts,
    Layer,
    Norm,
    Positions,
    ReachKind,
    Transformer,
)
from foretrace.workload.plan.plan import Plan, plan_of_layer

_ALONE = Joint(sums_gradients=False)


class KnownSteps:
    """Steps of one model's layers, made once for plans that differ in what is computed again."""

    def __init__(self) -> None:
        """Know none yet."""
        self._known: dict[object, list[Step]] = {}

    def of(self, setting: Setting, layer: Layer) -> list[Step]:
        """Steps of a layer and of those like it."""
        key = without_recompute(setting.plan), layer.kind
        if key not in self._known:
            self._known[key] = layer_steps(setting, layer)
        return self._known[key]


def without_recompute(plan: Plan) -> Plan:
    """The plan, computing nothing again: all but backward passes take the same."""
    return replace(plan, recompute=Recompute.NONE, recompute_modules=None, recompute_of_layer=None)


def blocks_of_transformer(
    model: Transformer, plan: Plan, steps: KnownSteps | None = None
) -> ModelBlocks:
    """What one rank does for one microbatch, part by part; layers alike are one object.

    Args:
        model: the model.
        plan: the plan.
        steps: known of other plans of the model.

    Raises:
        WorkloadError: for sizes that ranks cannot divide evenly, and settings blocks lack.
    """
    setting, steps = Setting(model, plan), steps or KnownSteps()
    known: dict[tuple[Layer, str], Passes] = {}
    layers: list[Passes] = []
    for layer in model.layers:
        again = "" if plan.recompute_of_layer is None else plan.recompute_of_layer[layer.index]
        key = (layer.kind, again)
        if key not in known:
            own = plan_of_layer(plan, layer.index)
            known[key] = _layer(replace(setting, plan=own), layer, steps)
        layers.append(known[key])
    transfer = handed_over(plan, setting.tokens * model.hidden)
    is_tied = model.ties_embeddings and plan.adapters is None
    return ModelBlocks(
        embedding=_embedding(setting),
        layers=tuple(layers),
        head=_head(setting),
        transfer_bytes=transfer.num_bytes,
        transfer_dtype=transfer.dtype,
        tied_parameters=table_count(setting) if is_tied else 0,
        notes=_notes(setting),
    )


def _layer(setting: Setting, layer: Layer, steps: KnownSteps) -> Passes:
    parameters = layer_count(setting, layer)
    if setting.plan.adapters is not None:
        parameters = ParameterCount(adapter_count(setting, layer))
    return _passes(setting, Part.LAYER, steps.of(setting, layer), parameters)


def layer_steps(setting: Setting, layer: Layer) -> list[Step]:
    """Attention, a state space, or both beside each other, and what follows them.

    Each branch has its norms inside of its residual sum.
    """
    model = setting.model
    has_mixer = layer.has_attention or layer.has_states
    is_joined = (
        joins_sums(setting) and model.norm_place.is_before and has_mixer and layer.has_feed_forward
    )
    steps: list[Step] = []
    if has_mixer:
        steps += _mixer(setting, layer)
        if not is_joined:
            has_bias = layer.has_attention and model.attention.has_output_bias
            is_last = not layer.has_feed_forward
            steps.append(residual_step(setting, has_bias=has_bias, is_last=is_last))
    if layer.has_feed_forward:
        steps += _feed_forward_part(setting, layer, is_joined=is_joined)
    return steps


def _mixer(setting: Setting, layer: Layer) -> list[Step]:
    """What lets tokens see others, between its norms."""
    states = setting.model.states if layer.has_states else None
    label = "attention" if layer.has_attention else "states"
    is_last = not layer.has_feed_forward and not setting.model.norm_place.is_behind
    steps = _opening(setting, label)
    if layer.has_attention:
        steps += attention_steps(setting, layer.reach, is_last=is_last)
    if states is not None:
        steps += state_steps(setting, states, is_last=is_last)
    if states is not None and layer.has_attention:
        shape = (setting.own_tokens, setting.model.hidden)
        both = elementwise("aten::add", shape, setting.made, reads=2)
        gradient = operator("sum of input gradients", both)
        steps.insert(1, Step((), (gradient,)))
        steps.append(Step((operator("attention and states", both),), is_needed_again=False))
    return [*steps, *_closing(setting, label)]


def _feed_forward_part(setting: Setting, layer: Layer, *, is_joined: bool) -> list[Step]:
    """A dense part or experts between its norms, and their residual sum."""
    model = setting.model
    experts = model.experts if layer.has_experts else None
    steps = _opening(setting, "feed-forward", Joint(sums_before=is_joined))
    if experts is not None:
        steps += within(RecomputeModule.EXPERTS, expert_steps(setting, experts))
    else:
        is_last = not model.norm_place.is_behind
        dense = feed_forward_steps(setting, model.feed_forward.width, is_last=is_last)
        steps += within(RecomputeModule.FEED_FORWARD, dense)
    steps += _closing(setting, "feed-forward")
    has_bias = experts is None and model.feed_forward.has_bias
    steps.append(residual_step(setting, has_bias=has_bias, is_last=True))
    return steps


def _opening(setting: Setting, label: str, joint: Joint | None = None) -> list[Step]:
    """The norm before a branch; without one its gradient meets the residual stream's by itself."""
    if not setting.model.norm_place.is_before:
        return [Step((), (residual_gradient_sum(setting),))]
    steps = stream_norm_steps(setting, f"{label} norm", joint)
    return within(RecomputeModule.LAYER_NORM, steps)


def _closing(setting: Setting, label: str) -> list[Step]:
    """The norm of what a branch gives, of the tokens that the sum over ranks of TENSOR leaves.

    Source:
        NVIDIA-NeMo/Megatron-Bridge, models/gemma/gemma3_provider.py,
        `TERowParallelLinearLayerNorm`.
    """
    if not setting.model.norm_place.is_behind:
        return []
    sizes = (setting.own_tokens, setting.model.hidden)
    return [norm_step(setting, f"norm behind {label}", sizes)]


def _embedding(setting: Setting) -> Passes:
    is_encoder = setting.model.patches is not None
    steps = patch_steps(setting) if is_encoder else embedding_steps(setting)
    is_frozen = setting.plan.adapters is not None
    parameters = ParameterCount() if is_frozen else embedding_count(setting)
    return _passes(setting, Part.EMBEDDING, steps, parameters)


def _head(setting: Setting) -> Passes:
    model = setting.model
    count = model.num_prediction_modules
    is_encoder = model.patches is not None
    steps = pooled_steps(setting) if is_encoder else head_steps(setting, has_branches=count > 0)
    is_frozen = setting.plan.adapters is not None
    parameters = ParameterCount() if is_frozen else head_count(setting)
    for _ in range(count):
        steps += _module_steps(setting)
        one = ParameterCount(adapter_count(setting, model.layers[-1]))
        one = one if is_frozen else module_count(setting)
        parameters = ParameterCount(parameters.dense + one.dense, parameters.expert + one.expert)
    return _passes(setting, Part.HEAD, steps, parameters)


def _module_steps(setting: Setting) -> list[Step]:
    """A prediction module: the next token's embedding joined to the last layer's output.

    Source:
        DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 2.2; Megatron-LM,
        multi_token_prediction.py: the projection is divided by columns and gathered.
    """
    model, plan = setting.model, setting.plan
    width, own = model.hidden, setting.own_tokens
    tokens = (plan.micro_batch, setting.length)
    looked_up = embedding(setting.vocabulary, width, tokens, setting.kept)
    halves = gathered_copy((2 * own, width), setting.kept, row_stride=2 * width)
    joined = operator("embedding beside output", halves)
    weight = Weight("module projection", 2 * width, setting.share(width, "hidden size"))
    return [
        Step((operator("embedding of the next token", looked_up),)),
        *stream_norm_steps(setting, "module embedding norm", _ALONE),
        *stream_norm_steps(setting, "module output norm"),
        Step((joined,), (joined,)),
        columns(setting, (weight,)),
        *layer_steps(setting, model.layers[-1]),
        *stream_norm_steps(setting, "module final norm", _ALONE),
        columns(
            setting,
            (Weight("module output projection", width, setting.vocabulary),),
            is_wide=True,
        ),
        *loss_steps(setting),
    ]


def _passes(setting: Setting, part: Part, steps: list[Step], parameters: ParameterCount) -> Passes:
    plan = setting.plan
    opening: Items = ()
    copied, sent = shard_copies(parameters.dense + parameters.expert, plan)
    if copied:
        steps = [Step(copied, sent, is_again=False), *steps]
        opening = copied if plan.reshard_after_forward else ()
    return passes_of(part, steps, parameters, plan, opening=opening)


def _notes(setting: Setting) -> tuple[str, ...]:
    model, plan = setting.model, setting.plan
    found: list[str] = []
    if model.vocabulary % plan.tensor:
        found.append(
            f"vocabulary of {model.vocabulary:,} filled up to {setting.vocabulary:,} rows on "
            f"each of {plan.tensor} ranks"
        )
    reach = model.reach
    is_short = reach is not None and reach.num_tokens < plan.sequence
    if reach is not None and is_short and (reach.kind is ReachKind.WINDOW or plan.context > 1):
        found.append(
            f"attention over {reach.num_tokens:,} tokens costs as much as each query against the "
            "mean number of keys it sees"
        )
    if model.attention.has_soft_cap and plan.implementation.attention != "plain":
        found.append("the soft cap of scores is inside of the attention kernel and costs nothing")
    if model.states is not None:
        found.append(
            "scans of states are costed as batched products and movements: no kernel of theirs "
            "was measured, and half to twice their time is in the interval"
        )
    if model.attention.indexer is not None:
        found.append(
            "an indexer's scores are costed as attention of half its head size, and attention to "
            "what it picks as that to so many latents or to all tokens, whichever multiplies less: "
            "no kernel of theirs was measured"
        )
    if plan.token_shares is not None:
        found.append("experts have the load of the most loaded rank on all ranks")
    return tuple(found)


def layer_count(setting: Setting, layer: Layer) -> ParameterCount:
    """Of one layer: matrices divided by ranks of TENSOR, norms, routers and short vectors whole."""
    model = setting.model
    dense = layer.num_branches * model.norm_place.num_norms * norm_parameters(model)
    if layer.has_attention:
        dense += _attention(setting)
    if layer.has_states:
        own = setting.own_states
        dense += state_weights(own, model.hidden) + state_extras(own, model.hidden)
    if not layer.has_feed_forward:
        return ParameterCount(dense)
    if not layer.has_experts or model.experts is None:
        return ParameterCount(dense + _feed_forward(setting, model.feed_forward.width))
    return _with_experts(setting, model.experts, dense)


def _attention(setting: Setting) -> int:
    attention, hidden = setting.model.attention, setting.model.hidden
    heads = setting.heads
    found = hidden if attention.has_output_bias else 0
    found += heads * attention.value_size * hidden * (1 + attention.has_output_gate)
    found += indexer_weights(attention, hidden) + indexer_extras(attention)
    if attention.has_query_key_norm:
        found += query_key_scales(attention)
    if attention.has_sinks:
        found += heads
    latent = attention.latent
    if latent is None:
        inputs = (heads + 2 * setting.key_heads) * attention.head_size
        return found + inputs * (hidden + int(attention.has_input_bias))
    queries = heads * attention.score_size
    down = hidden * (latent.rank + latent.rotary_size)
    up = latent.rank * heads * (attention.head_size + latent.value_size)
    query = hidden * queries
    if latent.query_rank:
        query = (hidden + queries) * latent.query_rank
    return found + query + down + up + latent.query_rank + latent.rank


def _feed_forward(setting: Setting, width: int) -> int:
    said, hidden = setting.model.feed_forward, setting.model.hidden
    own = setting.columns(width)
    return feed_forward_weights(said, own, hidden) + feed_forward_extras(said, own, hidden)


def _with_experts(setting: Setting, experts: Experts, dense: int) -> ParameterCount:
    said, hidden = setting.model.feed_forward, setting.model.hidden
    dense += router_weights(experts, hidden) + (experts.count if experts.has_router_bias else 0)
    for _ in range(experts.num_shared):
        dense += _feed_forward(setting, experts.shared_width)
    own = experts.width // setting.expert_tensor
    one = feed_forward_weights(said, own, hidden) + feed_forward_extras(said, own, hidden)
    return ParameterCount(dense, experts.count // setting.plan.expert * one)


def table_count(setting: Setting) -> int:
    """Of what makes tokens vectors: ranks of TENSOR divide a vocabulary, and repeat the rest."""
    if setting.model.patches is not None:
        return table_parameters(setting.model)
    return setting.vocabulary * setting.model.hidden


def embedding_count(setting: Setting) -> ParameterCount:
    """Of the table of tokens, learned positions, and the norm after them."""
    model = setting.model
    found = table_count(setting)
    if model.positions is Positions.LEARNED:
        found += model.context * model.hidden
    if model.has_embedding_norm:
        found += norm_parameters(model)
    return ParameterCount(found)


def head_count(setting: Setting) -> ParameterCount:
    """Of the last norm and the output projection; a tied table counts where it is held twice."""
    model = setting.model
    found = norm_parameters(model)
    if model.patches is not None:
        return ParameterCount(found + output_parameters(model))
    if not model.ties_embeddings or setting.plan.pipeline > 1:
        found += table_count(setting)
    return ParameterCount(found)


def module_count(setting: Setting) -> ParameterCount:
    """Of one prediction module: a projection of two vectors to one, three norms, a last layer."""
    model = setting.model
    inner = layer_count(setting, model.layers[-1])
    projection = 2 * model.hidden * setting.share(model.hidden, "hidden size")
    norms = 3 * (2 if model.norm is Norm.LAYER else 1) * model.hidden
    return ParameterCount(inner.dense + projection + norms, inner.expert)

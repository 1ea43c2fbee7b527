"""Parameters of each part of a transformer that one rank holds."""

from __future__ import annotations

from foretrace.workload.blocks.block import ParameterCount
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.models.parameters import (
    feed_forward_extras,
    feed_forward_weights,
    norm_parameters,
    router_weights,
)
from foretrace.workload.models.transformer import Experts, Layer, Norm, Positions


def layer_count(setting: Setting, layer: Layer) -> ParameterCount:
    """Of one layer: matrices divided by ranks of TENSOR, norms, routers and short vectors whole."""
    model = setting.model
    dense = 2 * norm_parameters(model) + _attention(setting)
    if not layer.has_experts or model.experts is None:
        return ParameterCount(dense + _feed_forward(setting, model.feed_forward.width))
    return _with_experts(setting, model.experts, dense)


def _attention(setting: Setting) -> int:
    attention, hidden = setting.model.attention, setting.model.hidden
    heads = setting.heads
    found = hidden if attention.has_output_bias else 0
    found += heads * attention.value_size * hidden
    if attention.has_query_key_norm:
        found += 2 * attention.head_size
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


def embedding_count(setting: Setting) -> ParameterCount:
    """Of the table of tokens, learned positions, and the norm after them."""
    model = setting.model
    found = setting.vocabulary * model.hidden
    if model.positions is Positions.LEARNED:
        found += model.context * model.hidden
    if model.has_embedding_norm:
        found += norm_parameters(model)
    return ParameterCount(found)


def head_count(setting: Setting) -> ParameterCount:
    """Of the last norm and the output projection; a tied table counts where it is held twice."""
    model = setting.model
    found = norm_parameters(model)
    if not model.ties_embeddings or setting.plan.pipeline > 1:
        found += setting.vocabulary * model.hidden
    return ParameterCount(found)


def module_count(setting: Setting) -> ParameterCount:
    """Of one prediction module: a projection of two vectors to one, three norms, a last layer."""
    model = setting.model
    inner = layer_count(setting, model.layers[-1])
    projection = 2 * model.hidden * setting.share(model.hidden, "hidden size")
    norms = 3 * (2 if model.norm is Norm.LAYER else 1) * model.hidden
    return ParameterCount(inner.dense + projection + norms, inner.expert)

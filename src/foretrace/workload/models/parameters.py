"""Parameters of a model, part by part, from the weights of each layer's matrices.

Weights take part in a matrix product: a token costs two FLOPs for each. Biases, scales of norms
and sinks are parameters that do not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from foretrace.answer import Plain
from foretrace.workload.models.diffusion import DenoisingUNet, Diffusion, DiT
from foretrace.workload.models.parts import (
    ATTENTION,
    BOTTOM,
    CROSS,
    EMBEDDING,
    EXPERTS,
    FEED_FORWARD,
    INDEXER,
    NORMS,
    OUTPUT,
    POSITIONS,
    PREDICTION,
    ROUTER,
    SHARED_EXPERTS,
    STATES,
    TABLES,
    TOP,
    WHOLE,
)
from foretrace.workload.models.published import TotalsOnly
from foretrace.workload.models.recommender import Interaction, Recommender
from foretrace.workload.models.transformer import (
    Experts,
    FeedForward,
    Layer,
    ModelAttention,
    Norm,
    Patches,
    Pooling,
    Positions,
    StateRule,
    StateSpace,
    Transformer,
)

Model = Transformer | Recommender | DenoisingUNet | DiT | TotalsOnly


@dataclass(frozen=True)
class ModelPart(Plain):
    """Parameters of one part of a model."""

    json_names: ClassVar = {"name": "part"}

    name: str
    total: int
    active: int  # those that one token passes through; of a dense part all


@dataclass(frozen=True)
class Parameters(Plain):
    """Parameters of a model."""

    json_also = ("total", "active")

    parts: tuple[ModelPart, ...]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(part.total for part in self.parts)

    @property
    def active(self) -> int:
        """All but those of experts that a token is not sent to."""
        return sum(part.active for part in self.parts)

    def of(self, name: str) -> ModelPart:
        """The part of that name; an empty one, if the model has none."""
        return next((part for part in self.parts if part.name == name), ModelPart(name, 0, 0))


def parameters(model: Model) -> Parameters:
    """Parameters of a model by part; a model of which only totals are known is one part."""
    if isinstance(model, Transformer):
        return _of_transformer(model)
    if isinstance(model, Recommender):
        return _dense(_of_recommender(model))
    if isinstance(model, Diffusion):
        counts: Counter[str] = Counter()
        for piece in model.pieces():
            counts[piece.part] += piece.parameters
        return _dense(counts)
    active = model.parameters if model.active_parameters is None else model.active_parameters
    return Parameters((ModelPart(WHOLE, round(model.parameters), round(active)),))


def _dense(counts: Counter[str]) -> Parameters:
    return Parameters(
        tuple(ModelPart(name, count, count) for name, count in counts.items() if count)
    )


def layer_parameters(model: Transformer, layer: Layer) -> Parameters:
    """Parameters of one layer of a transformer."""
    hidden, feed_forward = model.hidden, model.feed_forward
    parts: list[ModelPart] = []
    if layer.has_attention:
        attention = attention_weights(model.attention, hidden)
        attention += attention_extras(model.attention, hidden)
        parts.append(ModelPart(ATTENTION, attention, attention))
    if layer.has_attention and model.attention.indexer is not None:
        indexer = indexer_weights(model.attention, hidden) + indexer_extras(model.attention)
        parts.append(ModelPart(INDEXER, indexer, indexer))
    if layer.has_states and model.states is not None:
        states = state_weights(model.states, hidden) + state_extras(model.states, hidden)
        parts.append(ModelPart(STATES, states, states))
    norms = layer.num_branches * model.norm_place.num_norms * norm_parameters(model)
    parts.append(ModelPart(NORMS, norms, norms))
    if layer.has_experts and model.experts is not None:
        return Parameters((*parts, *_expert_parts(model, model.experts)))
    if not layer.has_feed_forward:
        return Parameters(tuple(parts))
    dense = feed_forward_weights(feed_forward, feed_forward.width, hidden) + feed_forward_extras(
        feed_forward, feed_forward.width, hidden
    )
    return Parameters((*parts, ModelPart(FEED_FORWARD, dense, dense)))


def _expert_parts(model: Transformer, experts: Experts) -> tuple[ModelPart, ...]:
    hidden, feed_forward = model.hidden, model.feed_forward

    def one(width: int) -> int:
        return feed_forward_weights(feed_forward, width, hidden) + feed_forward_extras(
            feed_forward, width, hidden
        )

    router = router_weights(experts, hidden) + (experts.count if experts.has_router_bias else 0)
    shared = experts.num_shared * one(experts.shared_width)
    routed = one(experts.width)
    return (
        ModelPart(ROUTER, router, router),
        ModelPart(EXPERTS, experts.count * routed, experts.num_active * routed),
        ModelPart(SHARED_EXPERTS, shared, shared),
    )


def _of_transformer(model: Transformer) -> Parameters:
    totals: Counter[str] = Counter()
    active: Counter[str] = Counter()

    def add(name: str, total: int, used: int | None = None) -> None:
        totals[name] += total
        active[name] += total if used is None else used

    add(EMBEDDING, table_parameters(model))
    if model.positions is Positions.LEARNED:
        add(POSITIONS, model.context * model.hidden)
    # Layers alike are counted once.
    for layer, count in Counter(layer.kind for layer in model.layers).items():
        for part in layer_parameters(model, layer).parts:
            add(part.name, count * part.total, count * part.active)
    add(NORMS, (2 if model.has_embedding_norm else 1) * norm_parameters(model))
    if model.num_prediction_modules:
        module = prediction_parameters(model)
        add(
            PREDICTION,
            model.num_prediction_modules * module.total,
            model.num_prediction_modules * module.active,
        )
    if not model.ties_embeddings:
        add(OUTPUT, output_parameters(model))
    return Parameters(tuple(ModelPart(name, count, active[name]) for name, count in totals.items()))


def table_parameters(model: Transformer) -> int:
    """Of the table of tokens; or of the projection of patches, with a bias, and the class token."""
    patches = model.patches
    if patches is None:
        return model.vocabulary * model.hidden
    return (patches.num_numbers + 1 + int(patches.has_class_token)) * model.hidden


def output_parameters(model: Transformer) -> int:
    """Of the projection to the vocabulary; or of what pools tokens, and of a classifier."""
    hidden, patches = model.hidden, model.patches
    if patches is None:
        return model.vocabulary * hidden
    extras = {
        Pooling.NONE: 0,
        Pooling.CLASS: hidden,
        # Biases, the query, a norm.
        Pooling.ATTENTION: (4 + 1) * hidden
        + norm_parameters(model)
        + feed_forward_extras(model.feed_forward, model.feed_forward.width, hidden),
    }[patches.pooling]
    of_classes = (hidden + 1) * patches.num_classes
    return pooling_weights(model, patches) + extras + of_classes


def pooling_weights(model: Transformer, patches: Patches) -> int:
    """Weights of what pools tokens.

    Source:
        huggingface/transformers, modeling_vit.py, `ViTPooler`; modeling_siglip.py,
        `SiglipMultiheadAttentionPoolingHead`.
    """
    hidden, width = model.hidden, model.feed_forward.width
    return {
        Pooling.NONE: 0,
        Pooling.CLASS: hidden * hidden,
        Pooling.ATTENTION: 4 * hidden * hidden
        + feed_forward_weights(model.feed_forward, width, hidden),
    }[patches.pooling]


def prediction_parameters(model: Transformer) -> Parameters:
    """One prediction module: a projection of two vectors to one, three norms, a last layer.

    Source:
        DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 2.2.
    """
    projection = 2 * model.hidden * model.hidden
    norms = 3 * norm_parameters(model)
    return Parameters(
        (
            ModelPart(PREDICTION, projection, projection),
            ModelPart(NORMS, norms, norms),
            *layer_parameters(model, model.layers[-1]).parts,
        )
    )


def _of_recommender(model: Recommender) -> Counter[str]:
    counts: Counter[str] = Counter({TABLES: sum(model.rows) * model.size})
    counts[BOTTOM] = sum((inputs + 1) * outputs for inputs, outputs in model.dense_shapes("bottom"))
    if model.interaction is Interaction.CROSS:
        width = model.interaction_width
        counts[CROSS] = model.num_cross_layers * (2 * width * model.cross_rank + width)
    counts[TOP] = sum((inputs + 1) * outputs for inputs, outputs in model.dense_shapes("top"))
    return counts


def attention_weights(attention: ModelAttention, hidden: int) -> int:
    """Weights of the projections to queries, keys, values and back."""
    heads, latent = attention.num_heads, attention.latent
    output = heads * attention.value_size * hidden * (1 + attention.has_output_gate)
    if latent is None:
        inputs = heads + 2 * attention.num_kv_heads
        return hidden * inputs * attention.head_size + output
    queries = heads * attention.score_size
    query = (hidden + queries) * latent.query_rank if latent.query_rank else hidden * queries
    down = hidden * (latent.rank + latent.rotary_size)
    up = latent.rank * heads * (attention.head_size + latent.value_size)
    return query + down + up + output


def attention_extras(attention: ModelAttention, hidden: int) -> int:
    """Biases, scales of norms inside, and sinks."""
    heads, latent = attention.num_heads, attention.latent
    found = hidden if attention.has_output_bias else 0
    if attention.has_input_bias:
        found += (heads + 2 * attention.num_kv_heads) * attention.head_size
    if attention.has_query_key_norm:
        found += query_key_scales(attention)
    if attention.has_sinks:
        found += heads
    if latent is not None:
        found += latent.query_rank + latent.rank
    return found


def indexer_weights(attention: ModelAttention, hidden: int) -> int:
    """Weights of an indexer's queries, its key, and what weighs its heads; 0 without one."""
    indexer, latent = attention.indexer, attention.latent
    if indexer is None or latent is None:
        return 0
    queries = latent.query_rank * indexer.num_heads * indexer.head_size
    return queries + hidden * (indexer.head_size + indexer.num_heads)


def indexer_extras(attention: ModelAttention) -> int:
    """Scales and biases of the norm of an indexer's keys."""
    return 0 if attention.indexer is None else 2 * attention.indexer.head_size


def state_weights(states: StateSpace, hidden: int) -> int:
    """Weights of all projections and of the convolution."""
    projections = hidden * (states.projected + states.inner)
    gates = states.gate_rank * (states.inner + states.num_decays)
    return projections + gates + states.convolution * states.convolved


def state_extras(states: StateSpace, hidden: int) -> int:
    """Biases, the scales of the norm, and what heads have of their own.

    By the scan a decay, a step and a bypass; by the delta rule a decay and a step, by number of a
    key if decays are.
    """
    heads = states.num_heads
    found = {StateRule.SCAN: 3 * heads, StateRule.DECAY: 0}.get(
        states.rule, heads + states.num_decays
    )
    found += states.projected + hidden if states.has_bias else 0
    found += states.convolved if states.has_convolution_bias else 0
    scales = states.head_size if states.rule.is_delta else states.inner
    return found + (scales if states.has_norm else 0)


def query_key_scales(attention: ModelAttention) -> int:
    """Scales of the norms of queries and keys, which all ranks of TENSOR have whole."""
    all_heads = attention.num_heads + attention.num_kv_heads
    return (all_heads if attention.norms_all_heads else 2) * attention.head_size


def feed_forward_weights(feed_forward: FeedForward, width: int, hidden: int) -> int:
    """Weights of a feed-forward part, or of one expert, of that width."""
    return (3 if feed_forward.is_gated else 2) * hidden * width


def feed_forward_extras(feed_forward: FeedForward, width: int, hidden: int) -> int:
    """Its biases."""
    if not feed_forward.has_bias:
        return 0
    return (2 if feed_forward.is_gated else 1) * width + hidden


def router_weights(experts: Experts, hidden: int) -> int:
    """Weights that choose experts, and that weigh the shared one."""
    return hidden * (experts.count + (1 if experts.has_shared_gate else 0))


def norm_parameters(model: Transformer) -> int:
    """Parameters of one norm over the hidden size."""
    return (2 if model.norm is Norm.LAYER else 1) * model.hidden

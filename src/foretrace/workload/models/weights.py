"""Weights of the matrices in one layer of a transformer, and the small things beside them.

Weights take part in a matrix product: a token costs two FLOPs for each. Biases, scales of norms
and sinks are parameters that do not.
"""

from __future__ import annotations

from foretrace.workload.models.transformer import Attention, Experts, FeedForward, Norm, Transformer


def attention_weights(attention: Attention, hidden: int) -> int:
    """Weights of the projections to queries, keys, values and back."""
    heads, latent = attention.num_heads, attention.latent
    output = heads * attention.value_size * hidden
    if latent is None:
        inputs = heads + 2 * attention.num_kv_heads
        return hidden * inputs * attention.head_size + output
    queries = heads * attention.score_size
    query = (hidden + queries) * latent.query_rank if latent.query_rank else hidden * queries
    down = hidden * (latent.rank + latent.rotary_size)
    up = latent.rank * heads * (attention.head_size + latent.value_size)
    return query + down + up + output


def attention_extras(attention: Attention, hidden: int) -> int:
    """Biases, scales of norms inside, and sinks."""
    heads, latent = attention.num_heads, attention.latent
    found = hidden if attention.has_output_bias else 0
    if attention.has_input_bias:
        found += (heads + 2 * attention.num_kv_heads) * attention.head_size
    if attention.has_query_key_norm:
        found += 2 * attention.head_size
    if attention.has_sinks:
        found += heads
    if latent is not None:
        found += latent.query_rank + latent.rank
    return found


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

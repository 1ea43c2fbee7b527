"""Attention of one layer: projections, positions, scores, and what ranks of CONTEXT exchange.

With context parallelism a rank holds two pieces of each sequence, one from either end, so that
a causal mask leaves all ranks the same work (Llama 3, arXiv:2407.21783, section 3.3.2).
"""

from __future__ import annotations

from foretrace.workload.blocks.calls import fused, gathered_copy, row_sum
from foretrace.workload.blocks.indexer import index_steps
from foretrace.workload.blocks.linear import Weight, columns, plain, rows_divided
from foretrace.workload.blocks.pointwise import norm_step, rotary_step
from foretrace.workload.blocks.scores import scores_step
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.blocks.signatures import array, call
from foretrace.workload.blocks.steps import Step, operator, within
from foretrace.workload.exchanges.activations import whole_heads
from foretrace.workload.models.recompute import RecomputeModule
from foretrace.workload.models.transformer import Latent, Positions, Reach
from foretrace.workload.plan.plan import AdaptedModule


def attention_steps(setting: Setting, reach: Reach | None, *, is_last: bool = False) -> list[Step]:
    """From the normed input to the output projection; its sum over ranks of TENSOR included.

    `is_last`: its last product is the layer's.
    """
    attention = setting.model.attention
    heads = setting.heads
    if attention.latent is None:
        steps = _projections(setting, heads)
    else:
        steps = _latent_projections(setting, attention.latent, heads)
    if attention.indexer is not None and attention.latent is not None:
        steps += index_steps(setting, attention.indexer, attention.latent)
    steps.append(scores_step(setting, heads, reach))
    if attention.has_output_gate:
        shape = (setting.tokens, heads * attention.value_size)
        gated = fused(shape, setting.made, reads=2)
        gradient = fused(shape, setting.made, reads=3, writes=2)
        forward = (operator("attention by its gate", gated),)
        steps.append(Step(forward, (operator("attention by its gate, gradient", gradient),)))
    output = Weight(
        "attention output",
        heads * attention.value_size,
        setting.model.hidden,
        has_bias=attention.has_output_bias,
        module=AdaptedModule.OUTPUT,
    )
    return [*steps, rows_divided(setting, output, is_last=is_last)]


def _projections(setting: Setting, heads: int) -> list[Step]:
    attention = setting.model.attention
    size, keys = attention.head_size, setting.key_heads
    bias = attention.has_input_bias
    hidden = setting.model.hidden
    # A gate's weights lie beside the queries', head by head.
    queries = heads * size * (1 + attention.has_output_gate)
    weights: tuple[Weight, ...] = (
        Weight("qkv projection", hidden, queries + 2 * keys * size, bias, AdaptedModule.QKV),
    )
    if not setting.plan.implementation.fuses_projections:
        weights = (
            Weight("query projection", hidden, queries, bias, AdaptedModule.QKV),
            Weight("key projection", hidden, keys * size, bias, AdaptedModule.QKV),
            Weight("value projection", hidden, keys * size, bias, AdaptedModule.QKV),
        )
    steps = [columns(setting, weights)]
    said = setting.plan.implementation
    if said.fuses_projections and not said.fuses_activations:
        # What autograd makes of views of one product's result; heads lie apart in it.
        rows = setting.tokens * (heads + 2 * keys)
        joined = gathered_copy((rows, size), setting.made, row_stride=2 * size)
        steps.append(Step((), (operator("qkv gradients joined", joined),)))
    if attention.norms_all_heads:
        steps += _norm_of_all_heads(setting, "query", heads, attention.num_heads)
        steps += _norm_of_all_heads(setting, "key", keys, attention.num_kv_heads)
    elif attention.has_query_key_norm:
        for label, count in (("query norm", heads), ("key norm", keys)):
            steps.append(norm_step(setting, label, (setting.tokens * count, size)))
    if setting.model.positions is Positions.ROTARY:
        for label, count in (("query rotation", heads), ("key rotation", keys)):
            turned = attention.rotary_size
            steps.append(rotary_step(setting, label, setting.tokens, (count, size), turned=turned))
    if said.repeats_keys and keys < heads:
        steps.append(_repeated_keys(setting, heads, keys))
    return steps


def _norm_of_all_heads(setting: Setting, label: str, own: int, count: int) -> list[Step]:
    """Ranks of TENSOR have some heads of all tokens: for the norm they get some tokens, whole.

    Source:
        allenai/OLMo-core, nn/attention: `apply_tp`, whose norms are sequence parallel.
    """
    size = setting.model.attention.head_size
    rows = setting.share(setting.tokens, "tokens of a microbatch")
    normed = norm_step(setting, f"{label} norm", (rows, count * size))
    there, back = whole_heads(setting.plan, label, setting.tokens * own * size)
    return [Step(there, back), normed, Step(back, there)]


def _repeated_keys(setting: Setting, heads: int, keys: int) -> Step:
    """Keys and values are copied for every head that shares them, and their gradients summed."""
    size, dtype = setting.model.attention.head_size, setting.made
    shape = (setting.tokens, keys, heads // keys, size)
    source = array(shape, dtype, (keys * size, size, 0, 1))
    forward = call("aten::copy_", array(shape, dtype), source, "False")
    backward = row_sum(shape, dtype, 2)
    return Step(
        tuple(operator(f"repeated {what}", forward) for what in ("keys", "values")),
        tuple(operator(f"sum of {what} gradients", backward) for what in ("value", "key")),
    )


def _latent_projections(setting: Setting, latent: Latent, heads: int) -> list[Step]:
    """Queries, keys and values through short vectors, which every rank of TENSOR has whole.

    Source:
        DeepSeek-AI, "DeepSeek-V2", arXiv:2405.04434, section 2.1; Megatron-LM,
        multi_latent_attention.py.
    """
    attention, hidden, tokens = setting.model.attention, setting.model.hidden, setting.tokens
    own, dtype = setting.own_tokens, setting.multiplied
    down = Weight("key and value down projection", hidden, latent.rank + latent.rotary_size)
    queries = heads * attention.score_size
    steps: list[Step] = []
    if latent.query_rank:
        first = Weight("query down projection", hidden, latent.query_rank)
        steps.append(plain(setting, (first, down), own, dtype))
        ups = [norm_step(setting, "query latent norm", (own, latent.query_rank))]
        ups.append(columns(setting, (Weight("query up projection", latent.query_rank, queries),)))
    else:
        steps.append(plain(setting, (down,), own, dtype))
        ups = [columns(setting, (Weight("query projection", hidden, queries),))]
    ups.append(norm_step(setting, "key and value latent norm", (own, latent.rank)))
    up = heads * (attention.head_size + latent.value_size)
    ups.append(columns(setting, (Weight("key and value up projection", latent.rank, up),)))
    rotary = latent.rotary_size
    if setting.model.positions is Positions.ROTARY:
        ups.append(rotary_step(setting, "query rotation", tokens, (heads, rotary)))
        ups.append(rotary_step(setting, "key rotation", tokens, (1, rotary)))
    size = attention.score_size
    copied = gathered_copy(
        (tokens * heads, size), setting.made, row_stride=attention.head_size + latent.value_size
    )
    joined = tuple(operator(f"{what} with positions", copied) for what in ("queries", "keys"))
    return [*steps, *within(RecomputeModule.LATENT_UP, [*ups, Step(joined, joined)])]

"""Small transformers of every make."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from foretrace.workload import (
    Experts,
    FeedForward,
    Indexer,
    Latent,
    ModelAttention,
    Norm,
    NormPlace,
    Positions,
    Reach,
    ReachKind,
    StateRule,
    StateSpace,
    Transformer,
)
from tests.models import transformer

small = st.integers(1, 9)

latents = st.builds(
    Latent,
    query_rank=st.integers(0, 5),
    rank=small,
    rotary_size=small,
    value_size=small,
)
experts = st.builds(
    Experts,
    count=st.integers(3, 5),
    num_active=st.integers(1, 3),
    width=small,
    num_shared=st.integers(0, 2),
    shared_width=small,
    every=st.integers(1, 3),
    num_dense_first=st.integers(0, 2),
    has_router_bias=st.booleans(),
    has_shared_gate=st.just(value=False),
)
indexers = st.builds(Indexer, num_heads=small, head_size=small, num_chosen=st.integers(6, 9))


@st.composite
def states(draw: st.DrawFn) -> StateSpace:
    """Of every rule; those by a decay alone have no convolution, those by channel short vectors."""
    rule = draw(st.sampled_from(StateRule))
    is_convolved = rule is not StateRule.DECAY
    return StateSpace(
        num_heads=draw(st.sampled_from([2, 4])),
        head_size=draw(small),
        state_size=draw(small),
        num_groups=draw(st.sampled_from([1, 2])),
        convolution=draw(st.integers(1, 4)) if is_convolved else 0,
        chunk=draw(st.sampled_from([1, 2, 3, 6, 64])),
        has_bias=draw(st.booleans()),
        has_convolution_bias=is_convolved and draw(st.booleans()),
        has_norm=draw(st.booleans()),
        layers=draw(st.sampled_from([None, (0,), (0, 2, 4)])),
        rule=rule,
        gate_rank=draw(small) if rule is StateRule.CHANNEL_DELTA else 0,
    )


reaches = st.builds(
    Reach,
    kind=st.sampled_from(ReachKind),
    num_tokens=st.integers(1, 12),
    full_every=st.integers(0, 3),
)


@st.composite
def attentions(draw: st.DrawFn) -> ModelAttention:
    """Plain, grouped or latent attention."""
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    is_latent = draw(st.booleans())
    latent = draw(latents) if is_latent else None
    has_norm = not is_latent and draw(st.booleans())
    return ModelAttention(
        num_heads=kv_heads * group,
        num_kv_heads=kv_heads,
        head_size=draw(small),
        has_input_bias=not is_latent and draw(st.booleans()),
        has_output_bias=not is_latent and draw(st.booleans()),
        has_query_key_norm=has_norm,
        norms_all_heads=has_norm and draw(st.booleans()),
        has_soft_cap=draw(st.booleans()),
        has_sinks=not is_latent and draw(st.booleans()),
        latent=latent,
        has_output_gate=not is_latent and draw(st.booleans()),
        indexer=draw(st.none() | indexers) if latent is not None and latent.query_rank else None,
    )


@st.composite
def transformers(draw: st.DrawFn) -> Transformer:
    """Small transformers; every feature on or off."""
    base = transformer("llama3-8b")
    return replace(
        base,
        name="small",
        num_layers=draw(st.integers(1, 5)),
        hidden=draw(small),
        vocabulary=draw(small),
        context=draw(st.integers(1, 20)),
        attention=draw(attentions()),
        feed_forward=FeedForward(draw(small), draw(st.booleans()), draw(st.booleans())),
        experts=draw(st.none() | experts),
        states=draw(st.none() | states()),
        reach=draw(st.none() | reaches),
        positions=draw(st.sampled_from(Positions)),
        norm=draw(st.sampled_from(Norm)),
        norm_place=draw(st.sampled_from(NormPlace)),
        caps_logits=draw(st.booleans()),
        has_embedding_norm=draw(st.booleans()),
        ties_embeddings=draw(st.booleans()),
    )

"""What of a model's forward pass is computed again before its backward pass."""

from __future__ import annotations

from enum import StrEnum


class Recompute(StrEnum):
    """What is computed again before the backward pass.

    Source:
        Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
        arXiv 2205.05198.
    """

    NONE = "none"
    SELECTIVE = "selective"  # the scores
    FULL = "full"  # every layer


class RecomputeModule(StrEnum):
    """A part of a layer that selective recompute does again.

    Source:
        NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, `recompute_modules`.
    """

    CORE_ATTENTION = "core_attn"  # the scores
    LAYER_NORM = "layernorm"  # before attention, and before the feed-forward part or experts
    LATENT_UP = "mla_up_proj"  # from low-rank vectors to queries, keys and values, with rotation
    EXPERT_ACTIVATION = "moe_act"  # between the products of experts, shared ones too
    FEED_FORWARD = "mlp"  # of dense layers
    EXPERTS = "moe"  # router, experts and shared experts
    SHARED_EXPERTS = "shared_experts"

"""Layers of real networks in plain PyTorch, without any fused module."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from foretrace.workload import Norm, Transformer


class RootMeanSquare(nn.Module):
    """A norm of several operators, in fp32."""

    def __init__(self, size: int) -> None:
        """Scale every one of `size` channels."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalised and scaled."""
        wide = inputs.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return normed.type_as(inputs) * self.weight


class TorchLayer(nn.Module):
    """A layer of torchtitan's Llama in plain PyTorch, or of GPT-2 with LayerNorm and GELU."""

    def __init__(self, model: Transformer) -> None:
        """Modules of the model's sizes."""
        super().__init__()
        attention, hidden, width = model.attention, model.hidden, model.feed_forward.width
        self.heads, self.kv_heads = attention.num_heads, attention.num_kv_heads
        self.size, self.is_gated = attention.head_size, model.feed_forward.is_gated
        norm = RootMeanSquare if model.norm is Norm.RMS else nn.LayerNorm
        self.place = model.norm_place
        self.norms = nn.ModuleList(norm(hidden) for _ in range(2 * self.place.num_norms))
        self.query = nn.Linear(hidden, self.heads * self.size, bias=False)
        self.key = nn.Linear(hidden, self.kv_heads * self.size, bias=False)
        self.value = nn.Linear(hidden, self.kv_heads * self.size, bias=False)
        self.output = nn.Linear(self.heads * self.size, hidden, bias=False)
        self.gate = nn.Linear(hidden, width, bias=False)
        self.up = nn.Linear(hidden, width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, inputs: torch.Tensor, turns: torch.Tensor | None) -> torch.Tensor:
        """Attention and feed-forward part, each beside a residual."""
        norms = iter(self.norms)
        normed = next(norms)(inputs) if self.place.is_before else inputs
        branch = self.attend(normed, turns)
        middle = inputs + (next(norms)(branch) if self.place.is_behind else branch)
        normed = next(norms)(middle) if self.place.is_before else middle
        if self.is_gated:
            inner = functional.silu(self.gate(normed)) * self.up(normed)
        else:
            inner = functional.gelu(self.up(normed))
        branch = self.down(inner)
        result: torch.Tensor = middle + (next(norms)(branch) if self.place.is_behind else branch)
        return result

    def attend(self, inputs: torch.Tensor, turns: torch.Tensor | None) -> torch.Tensor:
        """Attention with rotary positions and repeated keys."""
        batch, sequence, _ = inputs.shape
        query = rotated(self.query(inputs).view(batch, sequence, -1, self.size), turns)
        key = rotated(self.key(inputs).view(batch, sequence, -1, self.size), turns)
        value = self.value(inputs).view(batch, sequence, -1, self.size)
        copies = self.heads // self.kv_heads
        if copies > 1:
            key, value = (each.repeat_interleave(copies, dim=2) for each in (key, value))
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        joined = mixed.transpose(1, 2).contiguous().view(batch, sequence, -1)
        result: torch.Tensor = self.output(joined)
        return result


def rotated(heads: torch.Tensor, turns: torch.Tensor | None) -> torch.Tensor:
    """Queries or keys, turned by their positions as complex numbers, if there are any."""
    if turns is None:
        return heads
    pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[:, None, :]).flatten(3).type_as(heads)


class Head(nn.Module):
    """The last norm, the output projection and the loss."""

    def __init__(self, model: Transformer) -> None:
        """Modules of the model's sizes."""
        super().__init__()
        self.norm = RootMeanSquare(model.hidden)
        self.output = nn.Linear(model.hidden, model.vocabulary, bias=False)
        self.is_capped = model.caps_logits

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss."""
        logits = self.output(self.norm(inputs))
        if self.is_capped:
            logits = torch.tanh(logits / 30.0) * 30.0
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def selective_stores() -> tuple[Any, Any]:
    """Torchtitan's rule, to keep attention and every second product, as contexts.

    For the forward pass and for what is computed again.
    """
    counts: dict[bool, int] = defaultdict(int)

    def policy(
        context: SelectiveCheckpointContext, operator: object, *_: object, **__: object
    ) -> CheckpointPolicy:
        is_product = operator is torch.ops.aten.mm.default
        counts[context.is_recompute] += is_product
        is_attention = "scaled_dot_product" in str(operator)
        if is_attention or (is_product and counts[context.is_recompute] % 2 == 1):
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    stores: tuple[Any, Any] = create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]
    return stores


class Checkpointed(nn.Module):
    """A layer under that rule, without positions."""

    def __init__(self, layer: TorchLayer) -> None:
        """Around a layer."""
        super().__init__()
        self.layer = layer

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The layer's result."""
        result: torch.Tensor = checkpoint(
            self.layer,
            inputs,
            None,
            use_reentrant=False,
            context_fn=selective_stores,
            preserve_rng_state=False,
        )
        return result

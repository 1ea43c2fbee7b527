"""Transformers in plain PyTorch, written apart from the closed forms that they check."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from foretrace.workload import Layer, Norm, Positions, Transformer


class ModelAttention(nn.Module):
    """Scores of all tokens with all, as two products of matrices."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        found, hidden = model.attention, model.hidden
        self.heads, self.kv_heads, self.size = found.num_heads, found.num_kv_heads, found.head_size
        bias = found.has_input_bias
        self.query = nn.Linear(hidden, self.heads * self.size, bias=bias)
        self.key = nn.Linear(hidden, self.kv_heads * self.size, bias=bias)
        self.value = nn.Linear(hidden, self.kv_heads * self.size, bias=bias)
        self.back = nn.Linear(self.heads * self.size, hidden, bias=found.has_output_bias)
        all_heads = (self.heads, self.kv_heads) if found.norms_all_heads else (1, 1)
        widths = [count * self.size for count in all_heads if found.has_query_key_norm]
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(width)) for width in widths)
        self.sinks = nn.Parameter(torch.ones(self.heads)) if found.has_sinks else None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, length, _ = tokens.shape
        query = self.query(tokens).view(batch, length, self.heads, self.size).transpose(1, 2)
        key = self.key(tokens).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        value = self.value(tokens).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        repeats = self.heads // self.kv_heads
        key = key.repeat_interleave(repeats, dim=1)
        value = value.repeat_interleave(repeats, dim=1)
        mixed = torch.matmul(torch.matmul(query, key.transpose(-1, -2)).softmax(-1), value)
        found: torch.Tensor = self.back(mixed.transpose(1, 2).reshape(batch, length, -1))
        return found


class LatentAttention(nn.Module):
    """DeepSeek-V2's, with keys and values made of one vector."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        found, hidden, latent = model.attention, model.hidden, model.attention.latent
        assert latent is not None
        self.found, self.latent = found, latent
        whole = found.head_size + latent.rotary_size
        if latent.query_rank:
            self.query = nn.Sequential(
                nn.Linear(hidden, latent.query_rank, bias=False),
                nn.RMSNorm(latent.query_rank),
                nn.Linear(latent.query_rank, found.num_heads * whole, bias=False),
            )
        else:
            self.query = nn.Sequential(nn.Linear(hidden, found.num_heads * whole, bias=False))
        self.down = nn.Linear(hidden, latent.rank + latent.rotary_size, bias=False)
        self.norm = nn.RMSNorm(latent.rank)
        up = found.num_heads * (found.head_size + latent.value_size)
        self.up = nn.Linear(latent.rank, up, bias=False)
        self.back = nn.Linear(found.num_heads * latent.value_size, hidden, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, length, _ = tokens.shape
        heads, size, latent = self.found.num_heads, self.found.head_size, self.latent
        query = self.query(tokens).view(batch, length, heads, -1).transpose(1, 2)
        short, rotary = self.down(tokens).split([latent.rank, latent.rotary_size], dim=-1)
        wide = self.up(self.norm(short)).view(batch, length, heads, -1).transpose(1, 2)
        key, value = wide.split([size, latent.value_size], dim=-1)
        rotary = rotary.unsqueeze(1).expand(batch, heads, length, latent.rotary_size)
        key = torch.cat([key, rotary], dim=-1)
        mixed = torch.matmul(torch.matmul(query, key.transpose(-1, -2)).softmax(-1), value)
        found: torch.Tensor = self.back(mixed.transpose(1, 2).reshape(batch, length, -1))
        return found


class StateNetwork(nn.Module):
    """Mamba-2 in chunks, masked or not: all heads of a group see what enters and reads a state."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        found = model.states
        assert found is not None
        self.found = found
        self.first = nn.Linear(model.hidden, found.projected, bias=found.has_bias)
        width, bias = found.convolved, found.has_convolution_bias
        self.convolution = nn.Conv1d(width, width, found.convolution, groups=width, bias=bias)
        self.of_heads = nn.ParameterList(nn.Parameter(torch.ones(found.num_heads)) for _ in "ADb")
        self.norm = nn.RMSNorm(found.inner) if found.has_norm else None
        self.back = nn.Linear(found.inner, model.hidden, bias=found.has_bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found, (batch, length, _) = self.found, tokens.shape
        groups, size, chunk = found.num_groups, found.state_size, min(found.chunk, length)
        gate, rest, _ = self.first(tokens).split(
            [found.inner, found.convolved, found.num_heads], dim=-1
        )
        padded = nn.functional.pad(rest.transpose(1, 2), (found.convolution - 1, 0))
        seen = self.convolution(padded).transpose(1, 2)
        split = seen.split([found.inner, groups * size, groups * size], dim=-1)
        heads, enters, reads = (
            one.reshape(batch, length // chunk, chunk, groups, -1).transpose(2, 3) for one in split
        )
        within = torch.matmul(torch.matmul(reads, enters.transpose(-1, -2)), heads)
        state = torch.matmul(enters.transpose(-1, -2), heads).cumsum(1)
        mixed = (within + torch.matmul(reads, state)).transpose(2, 3).reshape(batch, length, -1)
        mixed = mixed * gate.sigmoid()
        result: torch.Tensor = self.back(mixed if self.norm is None else self.norm(mixed))
        return result


class FeedForward(nn.Module):
    """Two matrices, or three with a gate."""

    def __init__(self, model: Transformer, width: int) -> None:
        super().__init__()
        bias = model.feed_forward.has_bias
        self.up = nn.Linear(model.hidden, width, bias=bias)
        gated = model.feed_forward.is_gated
        self.gate = nn.Linear(model.hidden, width, bias=bias) if gated else None
        self.down = nn.Linear(width, model.hidden, bias=bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        wide = self.up(tokens)
        wide = wide.relu() if self.gate is None else self.gate(tokens).sigmoid() * wide
        found: torch.Tensor = self.down(wide)
        return found


class ExpertLayer(nn.Module):
    """Every token passes the first experts: which ones makes no difference to the work."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        experts = model.experts
        assert experts is not None
        self.num_active = experts.num_active
        self.router = nn.Linear(model.hidden, experts.count, bias=experts.has_router_bias)
        self.gate = nn.Linear(model.hidden, 1, bias=False) if experts.has_shared_gate else None
        self.experts = nn.ModuleList(
            FeedForward(model, experts.width) for _ in range(experts.count)
        )
        self.shared = nn.ModuleList(
            FeedForward(model, experts.shared_width) for _ in range(experts.num_shared)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        weights = self.router(tokens).softmax(-1)
        found = torch.zeros_like(tokens)
        for index in range(self.num_active):
            found = found + weights[..., index : index + 1] * self.experts[index](tokens)
        for expert in self.shared:
            part = expert(tokens)
            found = found + (part if self.gate is None else self.gate(tokens).sigmoid() * part)
        return found


def norm(model: Transformer) -> nn.Module:
    """A norm over the hidden size."""
    if model.norm is Norm.RMS:
        return nn.RMSNorm(model.hidden)
    return nn.LayerNorm(model.hidden, bias=model.norm is Norm.LAYER)


class LayerNetwork(nn.Module):
    """One layer."""

    def __init__(self, model: Transformer, layer: Layer) -> None:
        super().__init__()
        latent = model.attention.latent
        attention = ModelAttention(model) if latent is None else LatentAttention(model)
        self.mixers = nn.ModuleList([attention] if layer.has_attention else [])
        self.mixers.extend([StateNetwork(model)] if layer.has_states else [])
        self.rest = (
            ExpertLayer(model)
            if layer.has_experts
            else FeedForward(model, model.feed_forward.width)
        )
        place = model.norm_place
        self.before = nn.ModuleList(norm(model) for _ in range(2 * place.is_before))
        self.behind = nn.ModuleList(norm(model) for _ in range(2 * place.is_behind))

    def branch(
        self, number: int, module: Callable[[torch.Tensor], torch.Tensor], tokens: torch.Tensor
    ) -> torch.Tensor:
        found = module(self.before[number](tokens) if self.before else tokens)
        total: torch.Tensor = tokens + (self.behind[number](found) if self.behind else found)
        return total

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.branch(1, self.rest, self.branch(0, self.mixed, tokens))

    def mixed(self, tokens: torch.Tensor) -> torch.Tensor:
        return sum((mixer(tokens) for mixer in self.mixers), torch.zeros_like(tokens))


class Network(nn.Module):
    """A whole model."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.embedding = nn.Embedding(model.vocabulary, model.hidden)
        is_learned = model.positions is Positions.LEARNED
        self.positions = nn.Embedding(model.context, model.hidden) if is_learned else None
        self.embedding_norm = norm(model) if model.has_embedding_norm else None
        self.layers = nn.ModuleList(LayerNetwork(model, layer) for layer in model.layers)
        self.norm = norm(model)
        self.output = nn.Linear(model.hidden, model.vocabulary, bias=False)
        if model.ties_embeddings:
            self.output.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found = self.embedding(tokens)
        for layer in self.layers:
            found = layer(found)
        result: torch.Tensor = self.output(self.norm(found))
        return result

"""Transformers in plain PyTorch, written apart from the closed forms that they check."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from foretrace.workload import Layer, Norm, Positions, StateRule, Transformer


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
        width = self.heads * self.size
        self.gate = nn.Linear(hidden, width, bias=False) if found.has_output_gate else None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, length, _ = tokens.shape
        query = self.query(tokens).view(batch, length, self.heads, self.size).transpose(1, 2)
        key = self.key(tokens).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        value = self.value(tokens).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        repeats = self.heads // self.kv_heads
        key = key.repeat_interleave(repeats, dim=1)
        value = value.repeat_interleave(repeats, dim=1)
        mixed = torch.matmul(torch.matmul(query, key.transpose(-1, -2)).softmax(-1), value)
        mixed = mixed.transpose(1, 2).reshape(batch, length, -1)
        if self.gate is not None:
            mixed = mixed * self.gate(tokens).sigmoid()
        found: torch.Tensor = self.back(mixed)
        return found


class IndexNetwork(nn.Module):
    """Scores of all tokens with all before, which nothing is taught by."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        found, latent = model.attention.indexer, model.attention.latent
        assert found is not None
        assert latent is not None
        self.found = found
        self.queries = nn.Linear(latent.query_rank, found.num_heads * found.head_size, bias=False)
        self.key = nn.Linear(model.hidden, found.head_size, bias=False)
        self.weights = nn.Linear(model.hidden, found.num_heads, bias=False)
        self.norm = nn.LayerNorm(found.head_size)

    def forward(self, tokens: torch.Tensor, short: torch.Tensor) -> torch.Tensor:
        batch, length, _ = tokens.shape
        query = self.queries(short).view(batch, length, self.found.num_heads, -1).transpose(1, 2)
        key = self.norm(self.key(tokens)).unsqueeze(1).transpose(-1, -2)
        scores = torch.matmul(query, key.expand(batch, self.found.num_heads, -1, length)).relu()
        weighed = scores * self.weights(tokens).transpose(1, 2).unsqueeze(-1)
        found: torch.Tensor = weighed.sum(1).topk(min(self.found.num_chosen, length)).indices
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
        self.indexer = IndexNetwork(model) if found.indexer is not None else None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, length, _ = tokens.shape
        if self.indexer is not None:
            with torch.no_grad():
                self.indexer(tokens, torch.zeros(batch, length, self.latent.query_rank))
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
    """Scans in chunks, masked or not: all heads of a group see what enters and reads a state."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        found = model.states
        assert found is not None
        self.found = found
        self.first = nn.Linear(model.hidden, found.projected, bias=found.has_bias)
        width, bias = found.convolved, found.has_convolution_bias
        self.convolution = (
            nn.Conv1d(width, width, found.convolution, groups=width, bias=bias)
            if found.convolution
            else None
        )
        vectors = "ADb" if found.rule is StateRule.SCAN else ""
        self.of_heads = nn.ParameterList(nn.Parameter(torch.ones(found.num_heads)) for _ in vectors)
        self.norm = nn.RMSNorm(found.inner) if found.has_norm else None
        self.back = nn.Linear(found.inner, model.hidden, bias=found.has_bias)

    def convolved(self, rest: torch.Tensor) -> torch.Tensor:
        if self.convolution is None:
            return rest
        padded = nn.functional.pad(rest.transpose(1, 2), (self.found.convolution - 1, 0))
        found: torch.Tensor = self.convolution(padded).transpose(1, 2)
        return found

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found, (batch, length, _) = self.found, tokens.shape
        groups, size, chunk = found.num_groups, found.state_size, min(found.chunk, length)
        steps = found.num_heads if found.rule is StateRule.SCAN else 0
        gate, rest, _ = self.first(tokens).split([found.inner, found.convolved, steps], dim=-1)
        seen = self.convolved(rest)
        split = torch.split(seen, [found.inner, groups * size, groups * size], dim=-1)
        heads, enters, reads = (
            one.reshape(batch, length // chunk, chunk, groups, -1).transpose(2, 3) for one in split
        )
        within = torch.matmul(torch.matmul(reads, enters.transpose(-1, -2)), heads)
        state = torch.matmul(enters.transpose(-1, -2), heads).cumsum(1)
        mixed = (within + torch.matmul(reads, state)).transpose(2, 3).reshape(batch, length, -1)
        mixed = mixed * gate.sigmoid()
        result: torch.Tensor = self.back(mixed if self.norm is None else self.norm(mixed))
        return result


def delta_rule(
    of_heads: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    decay: torch.Tensor,
    strength: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Results, and the last state, of queries, keys and values in chunks through states.

    They are [batch, heads, chunks, tokens, numbers].

    `decay`, of logarithms, and `strength` are [batch, heads, chunks, tokens].
    """
    query, key, value = of_heads
    total = decay.cumsum(-1)
    between = (total.unsqueeze(-1) - total.unsqueeze(-2)).tril().exp().tril()
    same = torch.eye(key.shape[-2], dtype=key.dtype)
    square = torch.matmul(key, key.transpose(-1, -2)) * between * strength.unsqueeze(-1)
    inverse = torch.linalg.solve_triangular(square.tril(-1) + same, same, upper=False)
    reads = torch.matmul(inverse, key * (strength * total.exp()).unsqueeze(-1))
    values = torch.matmul(inverse, value * strength.unsqueeze(-1))
    scores = torch.matmul(query, key.transpose(-1, -2)) * between
    found = []
    for at in range(key.shape[2]):
        last = total[:, :, at, -1:]
        written = values[:, :, at] - torch.matmul(reads[:, :, at], state)
        decayed = query[:, :, at] * total[:, :, at].exp().unsqueeze(-1)
        found.append(torch.matmul(decayed, state) + torch.matmul(scores[:, :, at], written))
        left = key[:, :, at] * (last - total[:, :, at]).exp().unsqueeze(-1)
        state = state * last.exp().unsqueeze(-1) + torch.matmul(left.transpose(-1, -2), written)
    return torch.stack(found, 2), state


class DeltaNetwork(nn.Module):
    """The delta rule in chunks; gates and decays of short vectors, where there are any."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        found = model.states
        assert found is not None
        self.found, rank = found, found.gate_rank
        self.first = nn.Linear(model.hidden, found.projected, bias=found.has_bias)
        wide = (found.num_decays, found.inner) if rank else ()
        self.ups = nn.ModuleList(nn.Linear(rank, one, bias=False) for one in wide)
        width, bias = found.convolved, found.has_convolution_bias
        self.convolution = nn.Conv1d(width, width, found.convolution, groups=width, bias=bias)
        widths = (found.num_heads, found.num_decays)
        self.of_heads = nn.ParameterList(nn.Parameter(torch.ones(one)) for one in widths)
        self.norm = nn.RMSNorm(found.head_size) if found.has_norm else nn.Identity()
        self.back = nn.Linear(found.inner, model.hidden, bias=found.has_bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found, (batch, length, _) = self.found, tokens.shape
        chunk, heads = min(found.chunk, length), found.num_heads
        gates = [found.gate_rank] * 2 if found.gate_rank else [found.num_decays, found.inner]
        rest, *parts, strength = self.first(tokens).split([found.convolved, *gates, heads], dim=-1)
        parts = [up(one) for up, one in zip(self.ups, parts, strict=True)] if self.ups else parts
        padded = nn.functional.pad(rest.transpose(1, 2), (found.convolution - 1, 0))
        seen = self.convolution(padded).transpose(1, 2)
        numbers = found.num_groups * found.state_size
        split = seen.split([numbers, numbers, found.inner], dim=-1)

        def chunks(one: torch.Tensor, count: int) -> torch.Tensor:
            cut = one.reshape(batch, length // chunk, chunk, count, -1).permute(0, 3, 1, 2, 4)
            return cut.repeat_interleave(heads // count, dim=1)

        query, key = (chunks(one, found.num_groups) for one in split[:2])
        decay = chunks(parts[0], heads).sum(-1)
        state = tokens.sum() * torch.zeros(batch, heads, found.state_size, found.head_size)
        of_heads = (query, key, chunks(split[2], heads))
        mixed, _ = delta_rule(of_heads, decay, chunks(strength, heads).squeeze(-1), state)
        mixed = self.norm(mixed).permute(0, 2, 3, 1, 4).reshape(batch, length, -1)
        result: torch.Tensor = self.back(mixed * parts[1].sigmoid())
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
        if layer.has_states and model.states is not None:
            is_delta = model.states.rule.is_delta
            self.mixers.append(DeltaNetwork(model) if is_delta else StateNetwork(model))
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

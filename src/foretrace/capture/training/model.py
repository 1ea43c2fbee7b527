"""The model: a GPT of which one process holds one stage, and of that its tensor-parallel share.

This file imports PyTorch at its top: only the processes of a training run load it.
"""

# ruff: noqa: D102 - `forward` is what PyTorch says it is
from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrace.capture.training.settings import TrainingSettings
from foretrace.capture.training.tensor_parallel import (
    DividedEmbedding,
    TensorRanks,
    cross_entropy,
    entered,
    left,
)


class TrainedAttention(nn.Module):
    """Causal attention over this rank's share of the heads."""

    def __init__(self, settings: TrainingSettings, ranks: TensorRanks) -> None:
        super().__init__()
        self.ranks = ranks
        self.heads = settings.heads // ranks.count
        self.head_width = settings.hidden // settings.heads
        width = self.heads * self.head_width
        self.project = nn.Linear(settings.hidden, 3 * width, bias=False)
        self.out = nn.Linear(width, settings.hidden, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        batch, sequence, _ = inputs.shape
        projected = self.project(entered(inputs, self.ranks))
        heads = projected.view(batch, sequence, 3, self.heads, self.head_width)
        query, key, value = heads.transpose(1, 3).unbind(2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined = mixed.transpose(1, 2).reshape(batch, sequence, -1)
        return left(self.out(joined), self.ranks)


class ParallelFeedForward(nn.Module):
    """Two products with GELU between them, over this rank's share of the channels."""

    def __init__(self, settings: TrainingSettings, ranks: TensorRanks) -> None:
        super().__init__()
        self.ranks = ranks
        channels = settings.feed_forward // ranks.count
        self.up = nn.Linear(settings.hidden, channels, bias=False)
        self.down = nn.Linear(channels, settings.hidden, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.gelu(self.up(entered(inputs, self.ranks)))
        return left(self.down(hidden), self.ranks)


class ParallelLayer(nn.Module):
    """Attention and feed-forward, each behind a norm and beside a residual."""

    def __init__(self, settings: TrainingSettings, ranks: TensorRanks, *, extra_ns: int) -> None:
        super().__init__()
        self.extra_ns = extra_ns
        self.attention_norm = nn.LayerNorm(settings.hidden)
        self.attention = TrainedAttention(settings, ranks)
        self.feed_forward_norm = nn.LayerNorm(settings.hidden)
        self.feed_forward = ParallelFeedForward(settings, ranks)

    def forward(self, hidden: Tensor) -> Tensor:
        if self.extra_ns:
            work(self.extra_ns)
        hidden = hidden + self.attention(self.attention_norm(hidden))
        added: Tensor = self.feed_forward(self.feed_forward_norm(hidden))
        return hidden + added


class Stage(nn.Module):
    """The layers of one pipeline stage, the embedding before the first, the loss after the last."""

    def __init__(
        self, settings: TrainingSettings, ranks: TensorRanks, *, stage: int, extra_ns: int
    ) -> None:
        super().__init__()
        self.ranks = ranks
        self.is_first, self.is_last = stage == 0, stage == settings.pipeline - 1
        if self.is_first:
            self.embedding = DividedEmbedding(settings.vocabulary, settings.hidden, ranks)
            self.positions = nn.Embedding(settings.sequence, settings.hidden)
        self.layers = nn.ModuleList(
            ParallelLayer(settings, ranks, extra_ns=extra_ns)
            for _ in range(settings.layers // settings.pipeline)
        )
        if self.is_last:
            self.norm = nn.LayerNorm(settings.hidden)
            columns = settings.vocabulary // ranks.count
            self.head = nn.Linear(settings.hidden, columns, bias=False)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Hidden states, or the loss of the last stage.

        Args:
            inputs: tokens [batch, sequence] on the first stage, else what the stage before gives.
            targets: the tokens that follow, [batch, sequence]; only the last stage reads them.
        """
        hidden: Tensor = inputs
        if self.is_first:
            places = torch.arange(inputs.shape[1], device=inputs.device)
            hidden = self.embedding(inputs) + self.positions(places)
        for layer in self.layers:
            hidden = layer(hidden)
        if not self.is_last:
            return hidden
        logits: Tensor = self.head(entered(self.norm(hidden), self.ranks))
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), self.ranks)


def work(duration_ns: int) -> None:
    """Keep this thread busy for so long."""
    until_ns = time.perf_counter_ns() + duration_ns
    while time.perf_counter_ns() < until_ns:
        pass

"""Modules as users write them: Llama, a ResNet, DLRM, and one that returns what nobody expects."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

HIDDEN, HEADS, KEYS, WIDTH, VOCABULARY, TOKENS = 64, 8, 2, 160, 128, 32


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False, dtype=torch.bfloat16)


class RootMeanSquare(nn.Module):
    """As meta-llama/llama has it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=torch.bfloat16))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        wide = data.float()
        root = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (wide * root).type_as(data) * self.weight


def turned(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles).flatten(3).type_as(heads)


def repeated(heads: torch.Tensor, times: int) -> torch.Tensor:
    batch, length, count, size = heads.shape
    spread = heads.unsqueeze(3).expand(batch, length, count, times, size)
    return spread.reshape(batch, length, count * times, size)


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, keys: int) -> None:
        super().__init__()
        self.size, self.times = hidden // heads, heads // keys
        self.wq, self.wo = linear(hidden, hidden), linear(hidden, hidden)
        self.wk, self.wv = (linear(hidden, keys * self.size) for _ in range(2))

    def forward(self, data: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        batch, length, _ = data.shape
        made = (one(data).view(batch, length, -1, self.size) for one in (self.wq, self.wk, self.wv))
        query, key, value = made
        query, key = turned(query, angles), turned(key, angles)
        key, value = repeated(key, self.times), repeated(value, self.times)
        query, key, value = (one.transpose(1, 2) for one in (query, key, value))
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.wo(found.transpose(1, 2).reshape(batch, length, -1))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.w1, self.w3, self.w2 = (
            linear(hidden, width),
            linear(hidden, width),
            linear(width, hidden),
        )

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return self.w2(functional.silu(self.w1(data)) * self.w3(data))  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, keys: int, width: int) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = RootMeanSquare(hidden), RootMeanSquare(hidden)
        self.attention = Attention(hidden, heads, keys)
        self.feed_forward = FeedForward(hidden, width)

    def forward(self, data: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        data = data + self.attention(self.attention_norm(data), angles)
        return data + self.feed_forward(self.ffn_norm(data))  # type: ignore[no-any-return]


class Llama(nn.Module):
    """A Llama in plain PyTorch, with its loss."""

    def __init__(
        self,
        layers: int = 2,
        *,
        sizes: tuple[int, int, int, int, int] = (HIDDEN, HEADS, KEYS, WIDTH, VOCABULARY),
        tokens: int = TOKENS,
        ties: bool = False,
        repeats: bool = False,
    ) -> None:
        super().__init__()
        hidden, heads, keys, width, vocabulary = sizes
        self.tok = nn.Embedding(vocabulary, hidden, dtype=torch.bfloat16)
        self.layers = nn.ModuleList(Layer(hidden, heads, keys, width) for _ in range(layers))
        self.norm, self.output = RootMeanSquare(hidden), linear(hidden, vocabulary)
        if ties:
            self.output.weight = self.tok.weight
        # A plain attribute, as llama's own code has it.
        ones = torch.ones(1, tokens, 1, hidden // heads // 2)
        self.angles = torch.polar(ones, ones)
        self.repeats = repeats

    def forward(self, tokens: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        data = self.tok(tokens)
        for layer in self.layers:
            if self.repeats:
                data = checkpoint(layer, data, self.angles, use_reentrant=False)
            else:
                data = layer(data, self.angles)
        logits = self.output(self.norm(data)).float()
        return functional.cross_entropy(logits.flatten(0, 1), answers.flatten())


def tokens_and_answers(batch: int = 1, tokens: int = TOKENS) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(batch, tokens, dtype=torch.long), torch.zeros(
        batch, tokens, dtype=torch.long
    )


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        self.past = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.norms[0](self.first(data)))
        return functional.relu(self.norms[1](self.second(inner)) + self.past(data))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.stages = nn.ModuleList([Residual(16, 16, 1), Residual(16, 32, 2)])
        self.last = nn.Linear(32, 10)

    def forward(self, images: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        data = self.stem(images)
        for stage in self.stages:
            data = stage(data)
        return functional.cross_entropy(self.last(data.mean((2, 3))), answers)


def perceptron(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class Recommender(nn.Module):
    """DLRM: tables with pooled lookups, and all pairs of vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom, self.top = perceptron(13, 32, 16), perceptron(16 + 6, 32, 1)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, 16, mode="sum") for rows in (50, 70, 9))

    def forward(
        self, dense: torch.Tensor, ids: list[torch.Tensor], offsets: list[torch.Tensor]
    ) -> torch.Tensor:
        data = self.bottom(dense)
        found = [one(*given) for one, *given in zip(self.tables, ids, offsets, strict=True)]
        vectors = torch.stack([data, *found], 1)
        pairs = torch.bmm(vectors, vectors.transpose(1, 2))
        rows, columns = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([data, pairs[:, rows, columns]], 1)).mean()  # type: ignore[no-any-return]


def recommender_inputs() -> tuple[Any, ...]:
    ids = [torch.zeros(64, dtype=torch.long) for _ in range(3)]
    return torch.randn(32, 13), ids, [torch.arange(0, 64, 2) for _ in range(3)]


@dataclass
class Output:
    """What Hugging Face's models return: neither a tensor nor a tuple."""

    loss: torch.Tensor
    logits: torch.Tensor


class Classifier(nn.Module):
    """Written as Hugging Face's models are; `asks`: whether the mask's values decide what runs."""

    def __init__(self, *, asks: bool) -> None:
        super().__init__()
        self.embedding, self.asks = nn.Embedding(50, 32), asks
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False
        )
        self.last = nn.Linear(32, 50)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> Output:
        data = self.embedding(input_ids)
        is_padded = attention_mask is not None and self.asks and bool((attention_mask == 0).any())
        logits = self.last(self.encoder(data if not is_padded else data * 2))
        assert labels is not None
        return Output(functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits)


def classifier_inputs() -> dict[str, torch.Tensor]:
    ids = torch.zeros(2, 16, dtype=torch.long)
    return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones(2, 16)}


def encoder() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

"""Models that train in seconds: transformers, a recommender, a classifier of pictures.

This file imports PyTorch as it is loaded, so that it is loaded by functions that need a model.
Every task can be learnt and is drawn from its seed: words that follow from the two before, clicks
that follow from features, shapes in noise, sentences that speak well of something or do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

_WORDS = 64
_RANDOM = 0.1  # of words that follow from nothing
_TABLES, _ROWS, _WIDTH, _DENSE = 8, 2000, 16, 13
_HALF_OF_CLICKS = 0.8  # the score that half of all are above
_SIDE, _CLASSES = 16, 4
_VOCABULARY, _LONGEST, _SHORTEST = 1000, 16, 6
_PADDING, _FIRST, _NEGATIONS = 0, 1, range(20, 30)  # words that are none, and those that negate
_PLAIN = 0.5  # of words, which speak neither well nor badly

Batch = tuple[tuple[Tensor, ...], Tensor]  # inputs and what is right


class SmallBlock(nn.Module):
    """Attention and two products, each after a normalisation."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """The next hidden state: [samples, words, width]."""
        samples, words, width = hidden.shape
        heads = self.qkv(self.first(hidden)).view(samples, words, 3, self.heads, -1)
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)
        met = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        hidden = hidden + self.out(met.transpose(1, 2).reshape(samples, words, width))
        added: Tensor = self.down(functional.gelu(self.up(self.second(hidden))))
        return hidden + added


class SmallTransformer(nn.Module):
    """Predicts the next of 64 words, which follows from the two before."""

    def __init__(self, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_WORDS, width)
        self.blocks = nn.ModuleList(SmallBlock(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, _WORDS)

    def forward(self, words: Tensor) -> Tensor:
        """Scores of the next word at the last places; [samples, words]."""
        hidden = self.embedding(words)
        for block in self.blocks:
            hidden = block(hidden)
        scores: Tensor = self.head(self.norm(hidden))
        return scores[:, -1]


class BertLayer(nn.Module):
    """Attention over all words and two products, each before a normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        names = ("query", "key", "value", "out")
        self.attention = nn.ModuleDict({name: nn.Linear(width, width) for name in names})
        self.products = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, hidden: Tensor, is_word: Tensor) -> Tensor:
        """The next hidden state: [samples, words, width]."""
        samples, words, width = hidden.shape
        queries, keys, values = (
            self.attention[name](hidden).view(samples, words, self.heads, -1).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mask = is_word[:, None, None]
        met = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        found = self.attention["out"](met.transpose(1, 2).reshape(samples, words, width))
        hidden = self.first(hidden + found)
        last: Tensor = self.second(hidden + self.products(hidden))
        return last


class SmallBert(nn.Module):
    """An encoder of sentences: two layers, 128 wide, two heads, as the tiniest of BERT's kin.

    Source:
        Turc et al., "Well-Read Students Learn Better", arXiv:1908.08962, table 1, for its sizes.
    """

    def __init__(self, width: int = 128, layers: int = 2) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {"words": nn.Embedding(_VOCABULARY, width), "places": nn.Embedding(_LONGEST, width)}
        )
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(BertLayer(width, 2) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)
        for one in self.modules():
            if isinstance(one, nn.Embedding):
                nn.init.normal_(one.weight, std=0.02)

    def forward(self, words: Tensor) -> Tensor:
        """Two scores for each sentence; [samples, words]."""
        places = torch.arange(words.shape[1]).expand_as(words)
        hidden = self.norm(self.embeddings["words"](words) + self.embeddings["places"](places))
        for layer in self.layers:
            hidden = layer(hidden, words != _PADDING)
        scores: Tensor = self.classifier(self.pooler(hidden[:, 0]).tanh())
        return scores


class SmallRecommender(nn.Module):
    """DLRM: dense features and tables, their products with each other, a click.

    Source:
        Naumov et al., "Deep Learning Recommendation Model", arXiv:1906.00091.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(
            nn.Linear(_DENSE, 64), nn.ReLU(), nn.Linear(64, _WIDTH), nn.ReLU()
        )
        self.tables = nn.ModuleList(nn.Embedding(_ROWS, _WIDTH) for _ in range(_TABLES))
        pairs = _TABLES * (_TABLES + 1) // 2
        self.top = nn.Sequential(
            nn.Linear(_WIDTH + pairs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """One score for each sample; above 0 is a click."""
        bottom = self.bottom(dense)
        found = [table(sparse[:, at]) for at, table in enumerate(self.tables)]
        stacked = torch.stack([bottom, *found], 1)
        products = stacked @ stacked.mT
        below = torch.tril_indices(_TABLES + 1, _TABLES + 1, -1)
        scores: Tensor = self.top(torch.cat([bottom, products[:, below[0], below[1]]], 1))
        return scores


class SmallLeNet(nn.Module):
    """Two convolutions and three products, as LeNet-5."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.products = nn.Sequential(
            nn.Linear(16 * (_SIDE // 4) ** 2, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
            nn.Linear(84, _CLASSES),
        )  # fmt: skip

    def forward(self, pictures: Tensor) -> Tensor:
        """Scores of classes."""
        scores: Tensor = self.products(self.convolutions(pictures).flatten(1))
        return scores


def _words(size: int, generator: torch.Generator, length: int = 12) -> Batch:
    words = torch.randint(_WORDS, (size, length + 1), generator=generator)
    for at in range(2, length + 1):
        follows = (3 * words[:, at - 1] + 5 * words[:, at - 2]) % _WORDS
        is_random = torch.rand(size, generator=generator) < (_RANDOM if at < length else 0)
        words[:, at] = torch.where(is_random, words[:, at], follows)
    return (words[:, :-1],), words[:, -1]


def _clicks(size: int, generator: torch.Generator) -> Batch:
    # Logarithms of counts, half of which are 0, as in logs of clicks.
    dense = torch.randn((size, _DENSE), generator=generator).relu()
    sparse = torch.randint(_ROWS, (size, _TABLES), generator=generator)
    liking = torch.sin(torch.arange(_ROWS * 1.0) * 12.9898)[sparse]
    score = dense[:, :4].sum(1) / 2 + liking.sum(1) + 0.3 * dense[:, 4] * liking[:, 0]
    return (dense, sparse), (score > _HALF_OF_CLICKS).float()


def _pictures(size: int, generator: torch.Generator) -> Batch:
    kinds = torch.randint(_CLASSES, (size,), generator=generator)
    axis = torch.arange(_SIDE * 1.0)
    shift = 6.3 * torch.rand((size, 1, 1), generator=generator)
    wave = torch.stack([axis[:, None].expand(_SIDE, _SIDE), axis[None].expand(_SIDE, _SIDE),
                        axis[:, None] + axis, axis[:, None] - axis])  # fmt: skip
    picture = torch.sin(wave[kinds] * 0.9 + shift)
    noise = 0.5 * torch.randn((size, _SIDE, _SIDE), generator=generator)
    return ((picture + noise)[:, None],), kinds


def _sentences(size: int, generator: torch.Generator) -> Batch:
    # Words as often as in any language: the n-th most frequent 1/n times as often as the first.
    often = 1 / torch.arange(1.0, _VOCABULARY - 1)
    words = 2 + often.multinomial(size * _LONGEST, replacement=True, generator=generator)
    words = words.view(size, _LONGEST)
    lengths = torch.randint(_SHORTEST, _LONGEST + 1, (size, 1), generator=generator)
    words[torch.arange(_LONGEST) >= lengths] = _PADDING
    words[:, 0] = _FIRST
    kinds = torch.arange(_VOCABULARY * 1.0)
    worth = torch.sin(kinds * 12.9898) * (torch.sin(kinds * 78.233).abs() > _PLAIN)
    worth[: _NEGATIONS.stop] = 0  # the most frequent words are little ones
    is_negated = torch.isin(words, torch.tensor(_NEGATIONS)).roll(1, 1)
    said = torch.where(is_negated, -worth[words], worth[words]).sum(1)
    return (words,), (said > 0).long()


def _cross_entropy(scores: Tensor, right: Tensor) -> Tensor:
    return functional.cross_entropy(scores, right)


def _click_loss(scores: Tensor, right: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(scores[:, 0], right)


@dataclass(frozen=True, kw_only=True)
class SmallTask:
    """A model with its data, its loss, and its parts."""

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[int, torch.Generator], Batch]
    loss: Callable[[Tensor, Tensor], Tensor]
    parts: Mapping[str, str]  # patterns of parameters, as one looks at its faults
    rate: float = 1e-3


SMALL_TASKS: Mapping[str, SmallTask] = {
    one.name: one
    for one in (
        SmallTask(
            name="transformer", model=SmallTransformer, batch=_words, loss=_cross_entropy,
            parts={"embedding": "embedding.*", "attention": "blocks.*.qkv.*",
                   "products": "blocks.*.up.*", "head": "head.*"}, rate=3e-3,
        ),
        SmallTask(
            name="dlrm", model=SmallRecommender, batch=_clicks, loss=_click_loss,
            parts={"top": "top.*", "bottom": "bottom.*", "embedding": "tables.*"}, rate=3e-3,
        ),
        SmallTask(
            name="bert", model=SmallBert, batch=_sentences, loss=_cross_entropy,
            parts={"embedding": "embeddings.*", "attention": "layers.*.attention.*",
                   "products": "layers.*.products.*", "pooler": "pooler.*",
                   "classifier": "classifier.*"},
        ),
        SmallTask(
            name="lenet", model=SmallLeNet, batch=_pictures, loss=_cross_entropy,
            parts={"convolutions": "convolutions.*", "products": "products.*"},
        ),
    )
}  # fmt: skip


def train_small(task: SmallTask, *, steps: int, batch: int = 128, seed: int = 0) -> nn.Module:
    """A trained model of a task; the same seed gives the same one."""
    return _trained(task, (steps, batch), seed)[0].eval()


def training_losses(task: SmallTask, *, steps: int, batch: int, seed: int) -> list[float]:
    """The loss of every step of a training."""
    return _trained(task, (steps, batch), seed)[1]


def _trained(task: SmallTask, sizes: tuple[int, int], seed: int) -> tuple[nn.Module, list[float]]:
    steps, batch = sizes
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = task.model()
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.rate)
    losses = []
    for _ in range(steps):
        inputs, right = task.batch(batch, generator)
        loss = task.loss(model(*inputs), right)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return model, losses

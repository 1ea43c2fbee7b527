"""Training steps to record and to replay: a function that runs one step of each.

python tests/bench/workloads.py NAME record FOLDER [RANK RANKS]     # execution and Kineto trace
python tests/bench/workloads.py NAME paced FOLDER [RANK RANKS]      # a step for each line of input
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

Step = Callable[[], None]
WARMUP_STEPS = 3


def _trained(model: nn.Module, loss: Callable[[], torch.Tensor], *, is_adam: bool = False) -> Step:
    parameters = list(model.parameters())
    optimizer: torch.optim.Optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    if is_adam:
        optimizer = torch.optim.AdamW(parameters, lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]  # torch's own
        optimizer.step()

    return step


def perceptron(width: int = 1024, batch: int = 256) -> Step:
    """Linear layers with ReLU."""
    model = _perceptron(width)
    inputs, targets = torch.randn(batch, width // 2), torch.randint(0, 10, (batch,))
    return _trained(model, lambda: functional.cross_entropy(model(inputs), targets))


def _perceptron(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(width // 2, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 10),
    )


def distributed(width: int = 1024, batch: int = 256) -> Step:
    """The same with gradients averaged over ranks, in buckets."""
    model = nn.parallel.DistributedDataParallel(_perceptron(width), bucket_cap_mb=2)
    inputs, targets = torch.randn(batch, width // 2), torch.randint(0, 10, (batch,))
    return _trained(model, lambda: functional.cross_entropy(model(inputs), targets))


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        projected = self.inward(self.before(x))
        parts = projected.view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.outward(seen.transpose(1, 2).reshape(batch, length, width)))
        changed: torch.Tensor = self.down(functional.gelu(self.up(self.between(x))))
        return x + changed


class _Transformer(nn.Module):
    def __init__(self, words: int, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(_Layer(width, 4) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        scores: torch.Tensor = self.head(self.last(x))
        return scores


def transformer(width: int = 256, layers: int = 4, length: int = 128, words: int = 2000) -> Step:
    """A decoder with AdamW."""
    model = _Transformer(words, width, layers, length)
    tokens, targets = (torch.randint(0, words, (4, length)) for _ in range(2))

    def loss() -> torch.Tensor:
        return functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    return _trained(model, loss, is_adam=True)


class _Recommender(nn.Module):
    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.below = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.left: torch.Tensor
        self.right: torch.Tensor
        self.register_buffer("left", pairs[0])
        self.register_buffer("right", pairs[1])
        self.above = nn.Sequential(
            nn.Linear(width + pairs.shape[1], 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(
        self, dense: torch.Tensor, indices: list[torch.Tensor], offsets: torch.Tensor
    ) -> torch.Tensor:
        low = self.below(dense)
        pooled = [table(one, offsets) for table, one in zip(self.tables, indices, strict=True)]
        stacked = torch.stack([low, *pooled], 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))[:, self.left, self.right]
        score: torch.Tensor = self.above(torch.cat([low, products], 1))
        return score


def recommender(rows: int = 20_000, batch: int = 512, tables: int = 8, width: int = 64) -> Step:
    """Embedding tables, their products, and linear layers around."""
    model = _Recommender(tables, rows, width)
    dense, clicks = torch.randn(batch, 13), torch.rand(batch, 1).round()
    indices = [torch.randint(0, rows, (10 * batch,)) for _ in range(tables)]
    offsets = torch.arange(0, 10 * batch, 10)

    def loss() -> torch.Tensor:
        return functional.binary_cross_entropy_with_logits(model(dense, indices, offsets), clicks)

    return _trained(model, loss)


class _Residual(nn.Module):
    def __init__(self, inward: int, outward: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inward, outward, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outward, outward, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outward) for _ in range(2))
        self.short: nn.Module = nn.Identity()
        if stride > 1:
            self.short = nn.Sequential(
                nn.Conv2d(inward, outward, 1, stride, bias=False), nn.BatchNorm2d(outward)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(inside)) + self.short(x))


def residual(size: int = 96, batch: int = 8, width: int = 32) -> Step:
    """Convolutions with batch normalisation."""
    model = nn.Sequential(
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        _Residual(width, width, 1),
        _Residual(width, 2 * width, 2),
        _Residual(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, 100),
    )
    images, targets = torch.randn(batch, 3, size, size), torch.randint(0, 100, (batch,))
    return _trained(model, lambda: functional.cross_entropy(model(images), targets))


WORKLOADS: dict[str, Callable[[], Step]] = {
    "perceptron": perceptron,
    "transformer": transformer,
    "recommender": recommender,
    "residual": residual,
    "distributed": distributed,
}
# The same, small enough for a test.
SMALL: dict[str, Callable[[], Step]] = {
    "perceptron": lambda: perceptron(64, 8),
    "transformer": lambda: transformer(32, 2, 16, 50),
    "recommender": lambda: recommender(100, 16, 3, 8),
    "residual": lambda: residual(32, 2, 8),
    "distributed": lambda: distributed(64, 8),
}


def record(step: Step, folder: Path, rank: int = 0) -> None:
    """Leave an execution trace and a Kineto trace of one step, after some that warm up."""
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

    for _ in range(WARMUP_STEPS):
        step()
    observer = ExecutionTraceObserver()
    observer.register_callback(str(folder / f"et_rank{rank}.json"))
    with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as profiler:
        step()
    profiler.export_chrome_trace(str(folder / f"kineto_rank{rank}.json"))


def pace(step: Step) -> None:
    """Run a step for each line of input and print its seconds."""
    for _ in sys.stdin:
        begin = time.perf_counter()
        step()
        print(time.perf_counter() - begin, flush=True)  # noqa: T201  whoever paces reads it


def main(rank: int, name: str, verb: str, folder: str, num_ranks: int = 1) -> None:
    """Record or pace one workload, as one of several ranks."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if num_ranks > 1:
        url = (Path(folder) / f"rendezvous-{verb}").resolve().as_uri()
        dist.init_process_group("gloo", init_method=url, rank=rank, world_size=num_ranks)
    makers = SMALL if "small" in verb else WORKLOADS
    step = makers[name]()
    if verb.startswith("record"):
        record(step, Path(folder), rank)
    else:
        pace(step)
    if num_ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    _name, _verb, _folder, *_place = sys.argv[1:]
    _rank, _num_ranks = map(int, _place or (0, 1))
    main(_rank, _name, _verb, _folder, _num_ranks)

"""A small Llama trained on 4 CPU processes, and recorded: tensor parallel 2 x data parallel 2.

    torchrun --nproc-per-node 4 examples/cpu-llama-tp2-dp2/train.py --out traces/

Ranks 0-1 and 2-3 each hold one copy of the model between them (tensor parallel, as in
Megatron-LM: two all-reduces forward and two backward per layer); ranks 0-2 and 1-3 average
their gradients (data parallel: buckets that are reduced while backward goes on).

`--plant` makes something go wrong on purpose, for recordings whose cause of lost time is known.
"""

# ruff: noqa: ARG004, D102 - `forward` and `backward` are what PyTorch says they are
from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

import foretrace

TENSOR_PARALLEL = 2
WORLD_SIZE = 4

# What can be planted. Each recording of these reads its batches through a `DataLoader`.
PLANTS = ("nothing", "slow-forward", "slow-loader", "large-bucket")
SLEEP_SECONDS = 0.15  # more than half of a step, so that it stands out of a shared machine's noise
SLOW_FORWARD_RANK = 3
SLOW_LAYER = 1
SLOW_LOADER_RANK = 2
BUCKET_MB = 2
LARGE_BUCKET_MB = 1_000  # more than all gradients: one bucket, reduced once backward is over


@dataclass(frozen=True)
class Shape:
    """Sizes of the model and of one step's work, per data-parallel rank."""

    layers: int = 3
    width: int = 256
    heads: int = 8
    key_value_heads: int = 4
    feed_forward: int = 704
    vocabulary: int = 2048
    batch: int = 4
    sequence: int = 128

    @property
    def head_width(self) -> int:
        """Channels of one head."""
        return self.width // self.heads


class EnterParallel(torch.autograd.Function):
    """Into a tensor-parallel part: the same forward, the sum of all ranks' gradients backward."""

    @staticmethod
    def forward(context: FunctionCtx, inputs: Tensor, group: dist.ProcessGroup) -> Tensor:
        context.group = group
        return inputs.view_as(inputs)

    @staticmethod
    def backward(context: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class LeaveParallel(torch.autograd.Function):
    """Out of a tensor-parallel part: the sum of all ranks' outputs, the same gradient back."""

    @staticmethod
    def forward(context: FunctionCtx, outputs: Tensor, group: dist.ProcessGroup) -> Tensor:
        outputs = outputs.clone()
        dist.all_reduce(outputs, group=group)
        return outputs

    @staticmethod
    def backward(context: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def rotations(shape: Shape) -> Tensor:
    """Complex factor by position and pair of channels (Su et al., 2021)."""
    pairs = torch.arange(0, shape.head_width, 2) / shape.head_width
    angles = torch.outer(torch.arange(shape.sequence), 10_000.0**-pairs)
    return torch.polar(torch.ones_like(angles), angles)


def rotated(heads: Tensor, factors: Tensor) -> Tensor:
    """Heads turned by their position: each pair of channels is one complex number."""
    pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * factors).flatten(-2)


class Attention(nn.Module):
    """Grouped-query attention over this rank's share of the heads."""

    def __init__(self, shape: Shape, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.shape, self.group = shape, group
        self.heads = shape.heads // TENSOR_PARALLEL
        self.key_value_heads = shape.key_value_heads // TENSOR_PARALLEL
        all_heads = self.heads + 2 * self.key_value_heads
        self.project = nn.Linear(shape.width, all_heads * shape.head_width, bias=False)
        self.out = nn.Linear(self.heads * shape.head_width, shape.width, bias=False)

    def forward(self, inputs: Tensor, factors: Tensor) -> Tensor:
        batch, sequence, _ = inputs.shape
        projected = self.project(EnterParallel.apply(inputs, self.group))
        heads = projected.view(batch, sequence, -1, self.shape.head_width).transpose(1, 2)
        query_and_key, value = heads.split(
            (self.heads + self.key_value_heads, self.key_value_heads), dim=1
        )
        query, key = rotated(query_and_key, factors).split(
            (self.heads, self.key_value_heads), dim=1
        )
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
        joined = mixed.transpose(1, 2).reshape(batch, sequence, -1)
        return LeaveParallel.apply(self.out(joined), self.group)


class FeedForward(nn.Module):
    """SwiGLU over this rank's share of the channels."""

    def __init__(self, shape: Shape, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        channels = shape.feed_forward // TENSOR_PARALLEL
        self.gate_and_up = nn.Linear(shape.width, 2 * channels, bias=False)
        self.down = nn.Linear(channels, shape.width, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        gate, up = self.gate_and_up(EnterParallel.apply(inputs, self.group)).chunk(2, dim=-1)
        return LeaveParallel.apply(self.down(functional.silu(gate) * up), self.group)


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and beside a residual."""

    def __init__(
        self, shape: Shape, group: dist.ProcessGroup, *, sleep_seconds: float = 0.0
    ) -> None:
        super().__init__()
        self.sleep_seconds = sleep_seconds
        self.attention_norm = nn.RMSNorm(shape.width)
        self.attention = Attention(shape, group)
        self.feed_forward_norm = nn.RMSNorm(shape.width)
        self.feed_forward = FeedForward(shape, group)

    def forward(self, hidden: Tensor, factors: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden), factors)
        if self.sleep_seconds:
            time.sleep(self.sleep_seconds)
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


class Llama(nn.Module):
    """Embedding, layers, norm and head; gives the loss of predicting each next token."""

    def __init__(
        self, shape: Shape, group: dist.ProcessGroup, *, slow_layer: int | None = None
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(
            Layer(shape, group, sleep_seconds=SLEEP_SECONDS if layer == slow_layer else 0.0)
            for layer in range(shape.layers)
        )
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.factors = rotations(shape)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens[:, :-1])
        for layer in self.layers:
            hidden = layer(hidden, self.factors)
        logits = self.head(self.norm(hidden))
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def process_groups(rank: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """This rank's tensor-parallel and data-parallel groups; every rank makes all of them."""
    tensor = [dist.new_group(ranks, group_desc="tensor") for ranks in ([0, 1], [2, 3])]
    data = [dist.new_group(ranks, group_desc="data") for ranks in ([0, 2], [1, 3])]
    return tensor[rank // TENSOR_PARALLEL], data[rank % TENSOR_PARALLEL]


def batches(shape: Shape, seed: int) -> Iterator[Tensor]:
    """Endless batches of counting sequences: something that can be learnt."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        first = torch.randint(shape.vocabulary, (shape.batch, 1), generator=generator)
        yield (first + torch.arange(shape.sequence + 1)) % shape.vocabulary


class Batches(IterableDataset[Tensor]):
    """The same batches as a data set, each of which may take longer than it should."""

    def __init__(self, shape: Shape, seed: int, *, sleep_seconds: float = 0.0) -> None:
        self.shape, self.seed, self.sleep_seconds = shape, seed, sleep_seconds

    def __iter__(self) -> Iterator[Tensor]:
        for tokens in batches(self.shape, self.seed):
            if self.sleep_seconds:
                time.sleep(self.sleep_seconds)
            yield tokens


def loader(shape: Shape, rank: int, plant: str) -> Iterator[Tensor]:
    """This rank's batches, through a `DataLoader` where something is, or could be, planted."""
    seed = rank // TENSOR_PARALLEL
    if not plant:
        return batches(shape, seed)
    is_slow = plant == "slow-loader" and rank == SLOW_LOADER_RANK
    data = Batches(shape, seed, sleep_seconds=SLEEP_SECONDS if is_slow else 0.0)
    return iter(DataLoader(data, batch_size=None))


def main() -> None:
    """Train a few steps and record some of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="folder for the recorded files")
    parser.add_argument("--steps", type=int, default=4, help="steps to profile")
    parser.add_argument("--unprofiled", type=int, default=10, help="steps to time before")
    parser.add_argument("--layers", type=int, default=Shape.layers, help="layers of the model")
    parser.add_argument(
        "--plant", choices=PLANTS, default="", help="what to make slow; left out: as in traces/"
    )
    options = parser.parse_args()

    # One thread each: four processes share what may be two cores.
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if dist.get_world_size() != WORLD_SIZE:
        parser.error(f"needs {WORLD_SIZE} processes, got {dist.get_world_size()}")
    tensor_group, data_group = process_groups(rank)

    shape = Shape(layers=options.layers)
    # The same weights everywhere would do for a benchmark; shards must differ for learning.
    torch.manual_seed(rank % TENSOR_PARALLEL)
    is_slow = options.plant == "slow-forward" and rank == SLOW_FORWARD_RANK
    model = Llama(shape, tensor_group, slow_layer=SLOW_LAYER if is_slow else None)
    for parameter in (model.embedding.weight, model.head.weight):
        dist.broadcast(parameter.data, src=rank - rank % TENSOR_PARALLEL, group=tensor_group)
    replicated = DistributedDataParallel(
        model,
        process_group=data_group,
        bucket_cap_mb=LARGE_BUCKET_MB if options.plant == "large-bucket" else BUCKET_MB,
        gradient_as_bucket_view=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    tokens = loader(shape, rank, options.plant)
    losses = []
    with foretrace.record(
        options.out, steps=options.steps, unprofiled=options.unprofiled
    ) as recorder:
        while not recorder.is_done:
            loss = replicated(next(tokens))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(loss.detach(), op=dist.ReduceOp.SUM, group=data_group)
            losses.append(loss.item() / 2)
            recorder.step()
    if rank == 0:
        print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f} in {len(losses)} steps: {options.out}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

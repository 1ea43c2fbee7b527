"""Llama 3 in plain PyTorch: FSDP2 over hosts, tensor and sequence parallel within one.

    torchrun --nproc-per-node 8 train.py --size 8b --tp 8

or, without a cluster:

    foretrace run --world 1024 --machine dgx-h100 --out job/ -- train.py --size 70b --tp 8
"""

import argparse
import os
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Shape:
    """A model of the family."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int = 128_256


SHAPES = {
    "tiny": Shape(layers=2, hidden=64, heads=8, kv_heads=8, ffn=128, vocab=256),
    "8b": Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14_336),
    "70b": Shape(layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28_672),
}


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Causal attention with grouped keys and values."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.width = shape.hidden // shape.heads
        self.wq = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.wk = nn.Linear(shape.hidden, shape.kv_heads * self.width, bias=False)
        self.wv = nn.Linear(shape.hidden, shape.kv_heads * self.width, bias=False)
        self.wo = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Of one microbatch."""
        q, k, v = (
            one(x).unflatten(-1, (-1, self.width)).transpose(1, 2)
            for one in (self.wq, self.wk, self.wv)
        )
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        out: torch.Tensor = self.wo(y.transpose(1, 2).flatten(-2))
        return out


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.w1 = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.w2 = nn.Linear(shape.ffn, shape.hidden, bias=False)
        self.w3 = nn.Linear(shape.hidden, shape.ffn, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of one microbatch."""
        out: torch.Tensor = self.w2(functional.silu(self.w1(x)) * self.w3(x))
        return out


class Layer(nn.Module):
    """Attention and MLP, each behind a norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.hidden)
        self.attention = Attention(shape)
        self.mlp_norm = nn.RMSNorm(shape.hidden)
        self.mlp = Mlp(shape)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Of one microbatch."""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        out: torch.Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class Llama(nn.Module):
    """All of it."""

    def __init__(self, shape: Shape, sequence: int, *, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden)
        self.output = nn.Linear(shape.hidden, shape.vocab, bias=False)
        width = shape.hidden // shape.heads
        rate = 1 / 500_000 ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
        angle = torch.outer(torch.arange(sequence, dtype=torch.float32), rate)
        angle = torch.cat((angle, angle), dim=-1)
        self.register_buffer("cos", angle.cos().bfloat16(), persistent=False)
        self.register_buffer("sin", angle.sin().bfloat16(), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Of one microbatch."""
        x = self.embedding(tokens)
        for layer in self.layers:
            if self.recompute:
                x = checkpoint(layer, x, self.cos, self.sin, use_reentrant=False)
            else:
                x = layer(x, self.cos, self.sin)
        out: torch.Tensor = self.output(self.norm(x))
        return out


def parallel(model: Llama, mesh: torch.distributed.device_mesh.DeviceMesh) -> None:
    """Tensor and sequence parallel: activations between blocks are divided by token."""
    whole, by_token = Replicate(), Shard(1)
    parallelize_module(
        model,
        mesh,
        {
            "embedding": RowwiseParallel(input_layouts=whole, output_layouts=by_token),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(input_layouts=by_token, use_local_output=False),
        },
    )
    for layer in model.layers:
        parallelize_module(
            layer,
            mesh,
            {
                "attention_norm": SequenceParallel(),
                "attention": PrepareModuleInput(
                    input_layouts=(by_token, None, None),
                    desired_input_layouts=(whole, None, None),
                ),
                "attention.wq": ColwiseParallel(),
                "attention.wk": ColwiseParallel(),
                "attention.wv": ColwiseParallel(),
                "attention.wo": RowwiseParallel(output_layouts=by_token),
                "mlp_norm": SequenceParallel(),
                "mlp": PrepareModuleInput(
                    input_layouts=(by_token,), desired_input_layouts=(whole,)
                ),
                "mlp.w1": ColwiseParallel(),
                "mlp.w2": RowwiseParallel(output_layouts=by_token),
                "mlp.w3": ColwiseParallel(),
            },
        )


def sharded(model: Llama, mesh: torch.distributed.device_mesh.DeviceMesh) -> None:
    """FSDP2: products in bf16, masters and gradients in fp32."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def main() -> None:
    """Train on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SHAPES, default="8b")
    parser.add_argument("--tp", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--recompute", action="store_true")
    given = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    shards = dist.get_world_size() // given.tp
    mesh = init_device_mesh(device, (shards, given.tp), mesh_dim_names=("dp", "tp"))

    shape = SHAPES[given.size]
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Llama(shape, given.sequence, recompute=given.recompute)
    if given.tp > 1:
        parallel(model, mesh["tp"])
    sharded(model, mesh["dp"])
    model.to_empty(device=device)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    for _ in range(given.steps):
        tokens = torch.randint(shape.vocab, (given.batch, given.sequence + 1), device=device)
        with loss_parallel() if given.tp > 1 else nullcontext():
            logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
            del logits
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Training steps of one GPU that differ in one thing at a time, each recorded in a folder.

    python examples/h200/record.py --out examples/h200/traces
    python examples/h200/record.py --out /tmp/traces --only base layers-4

`VARIANTS` says what differs. Each is a Llama (RMSNorm, rotary positions, grouped-query attention,
SwiGLU), a GPT (LayerNorm, learned positions, GELU, biases) or a Llama with experts, all of it in
bf16, trained with AdamW.
"""

# ruff: noqa: D102 - `forward` is what PyTorch says it is
from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import foretrace


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Sizes of the model, work of a step, and how it is run."""

    family: str = "llama"  # "gpt"
    layers: int = 8
    hidden: int = 2048
    heads: int = 16
    key_value_heads: int = 8
    feed_forward: int = 5632
    vocabulary: int = 32_000
    sequence: int = 4096
    micro_batch: int = 2
    microbatches: int = 1
    experts: int = 0  # of each layer; 0: none
    chosen: int = 2  # experts of a token
    is_grouped: bool = True  # products of all experts at once; else expert by expert
    attention: SDPBackend = SDPBackend.FLASH_ATTENTION
    recomputes: bool = False
    optimizer: str = "fused"  # "foreach"
    is_compiled: bool = False
    is_graph: bool = False  # a whole step is one CUDA graph
    reads_loss: bool = False  # after each microbatch, which waits for the GPU


BASE = Variant()
SMALL = replace(
    BASE, layers=16, hidden=1024, heads=8, key_value_heads=4, feed_forward=2816, sequence=512
)
SMALL_ONE = replace(SMALL, micro_batch=1)
EXPERTS = replace(BASE, layers=4, feed_forward=1408, experts=8)
GPT = replace(BASE, family="gpt", key_value_heads=16, feed_forward=8192)

VARIANTS = {
    "base": BASE,
    "layers-4": replace(BASE, layers=4),
    "layers-16": replace(BASE, layers=16),
    "hidden-4096": replace(BASE, hidden=4096, heads=32, key_value_heads=16, feed_forward=11_264),
    "micro-batch-1": replace(BASE, micro_batch=1),
    "micro-batch-4": replace(BASE, micro_batch=4),
    "sequence-2048": replace(BASE, sequence=2048),
    "sequence-8192": replace(BASE, sequence=8192),
    "microbatches-4": replace(BASE, microbatches=4),
    "recompute": replace(BASE, recomputes=True),
    "plain-attention": replace(BASE, attention=SDPBackend.MATH),
    "foreach": replace(BASE, optimizer="foreach"),
    "small": SMALL_ONE,
    "small-micro-batch-4": replace(SMALL, micro_batch=4),
    "small-graph": replace(SMALL_ONE, is_graph=True),
    "small-reads-loss": replace(SMALL_ONE, microbatches=4, reads_loss=True),
    "small-microbatches-4": replace(SMALL_ONE, microbatches=4),
    "experts-8": EXPERTS,
    "experts-16": replace(EXPERTS, experts=16),
    "chosen-4": replace(EXPERTS, chosen=4),
    "experts-one-by-one": replace(EXPERTS, is_grouped=False),
    "gpt": GPT,
    "gpt-micro-batch-4": replace(GPT, micro_batch=4),
    "graph": replace(BASE, is_graph=True),
    "compiled": replace(BASE, is_compiled=True),
    "small-compiled": replace(SMALL_ONE, is_compiled=True),
}


def rotations(variant: Variant) -> tuple[Tensor, Tensor]:
    """Cosines and sines by position and channel of a head (Su et al., 2021)."""
    width = variant.hidden // variant.heads
    angles = torch.outer(
        torch.arange(variant.sequence), 10_000.0 ** -(torch.arange(0, width, 2) / width)
    ).repeat(1, 2)
    return angles.cos().bfloat16(), angles.sin().bfloat16()


def rotated(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Heads turned by their position: channels of both halves are pairs."""
    first, second = heads.chunk(2, -1)
    return heads * cosines + torch.cat((-second, first), -1) * sines


class Attention(nn.Module):
    """Causal attention, its keys and values shared by groups of heads."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.variant = variant
        self.width = variant.hidden // variant.heads
        has_bias = variant.family == "gpt"
        all_heads = variant.heads + 2 * variant.key_value_heads
        self.project = nn.Linear(variant.hidden, all_heads * self.width, bias=has_bias)
        self.out = nn.Linear(variant.hidden, variant.hidden, bias=has_bias)

    def forward(self, inputs: Tensor, factors: tuple[Tensor, Tensor]) -> Tensor:
        batch, sequence, _ = inputs.shape
        heads, shared = self.variant.heads, self.variant.key_value_heads
        projected = self.project(inputs).view(batch, sequence, -1, self.width).transpose(1, 2)
        query, key, value = projected.split((heads, shared, shared), dim=1)
        if self.variant.family == "llama":
            query, key = (rotated(part, *factors) for part in (query, key))
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=heads != shared
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, sequence, -1))


class FeedForward(nn.Module):
    """SwiGLU, or two layers with GELU between."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.is_gated = variant.family == "llama"
        wide = (2 if self.is_gated else 1) * variant.feed_forward
        self.up = nn.Linear(variant.hidden, wide, bias=not self.is_gated)
        self.down = nn.Linear(variant.feed_forward, variant.hidden, bias=not self.is_gated)

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.is_gated:
            return self.down(functional.gelu(self.up(inputs)))
        gate, up = self.up(inputs).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)


class Experts(nn.Module):
    """SwiGLU of the experts that each token chooses; no token is dropped."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.variant = variant
        experts, hidden, wide = variant.experts, variant.hidden, variant.feed_forward
        self.router = nn.Linear(hidden, experts, bias=False)
        self.first = nn.Parameter(torch.randn(experts, hidden, 2 * wide) * hidden**-0.5)
        self.last = nn.Parameter(torch.randn(experts, wide, hidden) * wide**-0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = inputs.flatten(0, 1)
        shares, choices = self.router(tokens).softmax(-1).topk(self.variant.chosen, dim=-1)
        order = choices.flatten().argsort(stable=True)
        source = order // self.variant.chosen
        rows, weights = tokens[source], shares.flatten()[order].unsqueeze(-1)
        counts = functional.one_hot(choices.flatten(), self.variant.experts).sum(0)
        made = self.grouped(rows, counts) if self.variant.is_grouped else self.each(rows, counts)
        return torch.zeros_like(tokens).index_add(0, source, made * weights).view_as(inputs)

    def grouped(self, rows: Tensor, counts: Tensor) -> Tensor:
        ends = counts.cumsum(0).to(torch.int32)
        gate, up = functional.grouped_mm(rows, self.first, offs=ends).chunk(2, -1)
        return functional.grouped_mm(functional.silu(gate) * up, self.last, offs=ends)

    def each(self, rows: Tensor, counts: Tensor) -> Tensor:
        made = []
        parts = rows.split(counts.tolist())  # waits for the GPU
        for part, first, last in zip(parts, self.first, self.last, strict=True):
            gate, up = (part @ first).chunk(2, -1)
            made.append((functional.silu(gate) * up) @ last)
        return torch.cat(made)


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and beside a residual."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        norm = nn.RMSNorm if variant.family == "llama" else nn.LayerNorm
        self.attention_norm, self.feed_forward_norm = norm(variant.hidden), norm(variant.hidden)
        self.attention = Attention(variant)
        self.feed_forward = Experts(variant) if variant.experts else FeedForward(variant)

    def forward(self, hidden: Tensor, factors: tuple[Tensor, Tensor]) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden), factors)
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


class Model(nn.Module):
    """Embedding, layers, norm and head; gives the loss of predicting each next token."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.variant = variant
        self.embedding = nn.Embedding(variant.vocabulary, variant.hidden)
        if variant.family == "gpt":
            self.positions = nn.Embedding(variant.sequence, variant.hidden)
        self.layers = nn.ModuleList(Layer(variant) for _ in range(variant.layers))
        self.norm = (nn.RMSNorm if variant.family == "llama" else nn.LayerNorm)(variant.hidden)
        self.head = nn.Linear(variant.hidden, variant.vocabulary, bias=False)
        cosines, sines = rotations(variant)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        if self.variant.family == "gpt":
            hidden = hidden + self.positions.weight
        factors = (self.cosines, self.sines)
        for layer in self.layers:
            if self.variant.recomputes:
                hidden = checkpoint(layer, hidden, factors, use_reentrant=False)
            else:
                hidden = layer(hidden, factors)
        logits = self.head(self.norm(hidden)).float()
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def step_of(variant: Variant, device: str) -> Callable[[], object]:
    """One step of training, ready to be called."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Model(variant).bfloat16()
        shape = (variant.microbatches, variant.micro_batch, variant.sequence)
        tokens, targets = (torch.randint(variant.vocabulary, shape) for _ in range(2))
    if variant.is_compiled:
        for layer in model.layers:
            layer.compile()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=1e-4,
        fused=variant.optimizer == "fused",
        foreach=variant.optimizer == "foreach",
        capturable=variant.is_graph,
    )

    def step() -> None:
        optimizer.zero_grad(set_to_none=not variant.is_graph)
        for batch, target in zip(tokens, targets, strict=True):
            with sdpa_kernel(variant.attention):
                loss = model(batch, target) / variant.microbatches
                loss.backward()
            if variant.reads_loss:
                loss.item()
        optimizer.step()

    return graphed(step) if variant.is_graph else step


def graphed(step: Callable[[], object]) -> Callable[[], object]:
    """The step as one CUDA graph, captured once it has run a few times beside the main stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def recorded(variant: Variant, folder: Path, *, device: str, steps: int) -> float:
    """Record some steps of a variant; the seconds that all of it took."""
    begun = time.perf_counter()
    step = step_of(variant, device)
    with foretrace.record(folder, steps=steps, warmup=3, unprofiled=6) as recorder:
        for _ in range(recorder.schedule.num_needed + 7):
            step()
            recorder.step()
    return time.perf_counter() - begun


def main() -> None:
    """Record what is asked for; one that fails does not stop the others."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="a folder for each variant")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--steps", type=int, default=3, help="steps to profile")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shrink", type=int, default=1, help="divide sizes, to try the script")
    options = parser.parse_args()

    failed = []
    for name in options.only:
        variant = shrunk(VARIANTS[name], options.shrink)
        try:
            seconds = recorded(
                variant, options.out / name, device=options.device, steps=options.steps
            )
            print(f"{name}: {seconds:.1f} s", flush=True)
        except Exception:  # noqa: BLE001 - whatever one variant raises, the others are recorded
            traceback.print_exc()
            failed.append(name)
        gc.collect()
        torch.compiler.reset()
        if options.device == "cuda":
            torch.cuda.empty_cache()
    if failed:
        sys.exit(f"not recorded: {', '.join(failed)}")


def shrunk(variant: Variant, by: int) -> Variant:
    """A variant that a CPU can run."""
    return replace(
        variant,
        layers=max(1, variant.layers // by),
        hidden=variant.hidden // by,
        heads=max(2, variant.heads // by),
        key_value_heads=max(1, variant.key_value_heads // by),
        feed_forward=variant.feed_forward // by,
        vocabulary=variant.vocabulary // by,
        sequence=variant.sequence // by,
    )


if __name__ == "__main__":
    main()

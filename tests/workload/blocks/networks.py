"""Layers of Llama and of MPT in plain PyTorch, and a recorder of the operators that they run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from foretrace.workload import NormPlace
from foretrace.workload.blocks.signatures import array
from tests.capture.module.networks import repeated, turned

HIDDEN, HEADS, KEYS, SIZE, WIDTH, TOKENS = 64, 8, 2, 8, 160, 32
DTYPES = {torch.bfloat16: "bf16", torch.float32: "fp32", torch.complex64: "complex64"}
# Copies go by several names, one of which reaches the device.
SAME = {"aten::_to_copy": "aten::copy_", "aten::clone": "aten::copy_"}
NO_KERNEL = ("aten::_unsafe_view",)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names of operators that work, and the bytes that they move by their shapes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: Counter[str] = Counter()
        self.num_bytes = 0
        self.products: Counter[tuple[int, ...]] = Counter()

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.name().partition(".")[0]
        if func.is_view or name in NO_KERNEL:
            return result
        self.names[named(name)] += 1
        if name == "aten::mm":
            self.products[*args[0].shape, args[1].shape[1]] += 1
        if "attention" not in name:
            self.num_bytes += moved(args) + moved([result])
        return result


def named(name: str) -> str:
    return "attention" if "attention" in name else SAME.get(name, name)


def moved(values: Any) -> int:
    """Bytes of tensors, an expanded dimension once."""
    total = 0
    for one in values:
        if isinstance(one, tuple):
            total += moved(one)
        if isinstance(one, torch.Tensor):
            said = array(tuple(one.shape), DTYPES[one.dtype], tuple(one.stride()))
            total += said.num_bytes
    return total


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False, dtype=torch.bfloat16)


class RootMeanSquare(nn.Module):
    """As meta-llama/llama has it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN, dtype=torch.bfloat16))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        wide = data.float()
        root = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (wide * root).type_as(data) * self.weight


class Layer(nn.Module):
    """A layer of Llama as torchtitan first wrote it, or of MPT with one projection and GELU."""

    def __init__(self, *, is_llama: bool, place: NormPlace = NormPlace.BEFORE) -> None:
        super().__init__()
        self.is_llama, self.place = is_llama, place
        keys = KEYS if is_llama else HEADS
        self.keys = keys
        inputs = (HEADS, keys, keys) if is_llama else (HEADS + 2 * keys,)
        self.inputs = nn.ModuleList(linear(HIDDEN, count * SIZE) for count in inputs)
        self.output = linear(HEADS * SIZE, HIDDEN)
        self.up = nn.ModuleList(linear(HIDDEN, WIDTH) for _ in range(2 if is_llama else 1))
        self.down = linear(WIDTH, HIDDEN)
        norms = [
            RootMeanSquare() if is_llama else nn.LayerNorm(HIDDEN, bias=False, dtype=torch.bfloat16)
            for _ in range(2 * place.num_norms)
        ]
        self.norms = nn.ModuleList(norms)

    def attend(self, data: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        batch, length, _ = data.shape
        if self.is_llama:
            made = [one(data).view(batch, length, -1, SIZE) for one in self.inputs]
            made[:2] = [turned(one, angles) for one in made[:2]]
            made[1:] = [repeated(one, HEADS // self.keys) for one in made[1:]]
        else:
            made = [
                one.reshape(batch, length, HEADS, SIZE)
                for one in self.inputs[0](data).chunk(3, dim=2)
            ]
        query, key, value = (one.transpose(1, 2) for one in made)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(found.transpose(1, 2).reshape(batch, length, -1))  # type: ignore[no-any-return]

    def forward(self, data: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        norms = iter(self.norms)
        normed = next(norms)(data) if self.place.is_before else data
        branch = self.attend(normed, angles)
        data = data + (next(norms)(branch) if self.place.is_behind else branch)
        normed = next(norms)(data) if self.place.is_before else data
        if self.is_llama:
            inner = functional.silu(self.up[0](normed)) * self.up[1](normed)
        else:
            inner = functional.gelu(self.up[0](normed))
        branch = self.down(inner)
        return data + (next(norms)(branch) if self.place.is_behind else branch)  # type: ignore[no-any-return]


def run(*, is_llama: bool, place: NormPlace = NormPlace.BEFORE) -> tuple[Recorder, Recorder]:
    layer = Layer(is_llama=is_llama, place=place)
    angles = torch.polar(torch.ones(TOKENS, SIZE // 2), torch.ones(TOKENS, SIZE // 2))
    data = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    with Recorder() as forward:
        result = layer(data, angles.view(1, TOKENS, 1, SIZE // 2))
    gradient = torch.ones_like(result)
    with Recorder() as backward:
        result.backward(gradient)
    return forward, backward

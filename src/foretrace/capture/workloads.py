"""What `foretrace measure` runs: products, attention and movements of many shapes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from foretrace.base import FORMAT_BY_NAME

if TYPE_CHECKING:
    import torch

Row = dict[str, object]

GEMM, ATTENTION, MOVEMENT = "gemm", "attention", "movement"
FAMILIES = (GEMM, ATTENTION, MOVEMENT)

_SEED = 0
_PRODUCT_SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
# Of one call: about 0.1 s at 100 TFLOP/s of a GPU, and at 20 GFLOP/s of a CPU.
_MOST_FLOPS = {"cuda": 2**43, "cpu": 2**31}
_LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
_HEADS = ((8, 8), (16, 16), (32, 8), (32, 32))
_HEAD_SIZES = (64, 128)
_BATCHES = (1, 4)
_ROWS = (1024, 4096, 16384, 65536)
_WIDTHS = (1024, 4096, 16384)
_MOST_BYTES = {"cuda": 1 << 30, "cpu": 1 << 24}  # of one tensor


@dataclass(frozen=True)
class Device:
    """What is measured, and what a table calls it."""

    kind: str  # "cuda", "cpu"
    name: str  # "NVIDIA A100-SXM4-80GB"
    dtypes: tuple[str, ...]  # "bf16", ...

    @property
    def is_gpu(self) -> bool:
        """Whether its work is timed by events."""
        return self.kind == "cuda"


@dataclass(frozen=True)
class Shape:
    """One thing to measure: the row's labels, and what runs forward and backward."""

    labels: Row
    forward: Callable[[], object]
    backward: Callable[[], object] | None = None


def shapes(family: str, device: Device) -> Iterator[Shape]:
    """All shapes of a family, in an order that is shuffled but always alike.

    Args:
        family: of `FAMILIES`.
        device: where their tensors are made, one shape at a time.
    """
    makers = {GEMM: _products, ATTENTION: _attentions, MOVEMENT: _movements}
    yield from makers[family](device)


def _shuffled(choices: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    found = list(choices)
    random.Random(_SEED).shuffle(found)  # noqa: S311 - an order, no secret
    return found


def _tensor(device: Device, dtype: str, *sizes: int, is_learnt: bool = False) -> torch.Tensor:
    import torch  # on demand: an optional dependency

    kind: torch.dtype = getattr(torch, FORMAT_BY_NAME[dtype].torch)
    return torch.randn(*sizes, device=device.kind, dtype=kind, requires_grad=is_learnt)


def _products(device: Device) -> Iterator[Shape]:
    import torch  # on demand: an optional dependency

    sizes = product(_PRODUCT_SIZES, _PRODUCT_SIZES, _PRODUCT_SIZES, device.dtypes)
    for m, n, k, dtype in _shuffled(sizes):
        if (
            2 * m * n * k > _MOST_FLOPS[device.kind]
            or max(m * k, k * n) * 4 > _MOST_BYTES[device.kind]
        ):
            continue
        left, right = _tensor(device, dtype, m, k), _tensor(device, dtype, n, k)
        labels: Row = {"batch": 1, "m": m, "n": n, "k": k, "dtype": dtype, "kernel": "linear"}

        def forward(left: torch.Tensor = left, right: torch.Tensor = right) -> object:
            return torch.nn.functional.linear(left, right)

        yield Shape(labels, forward)


def _attentions(device: Device) -> Iterator[Shape]:
    halves = [dtype for dtype in device.dtypes if dtype != "fp32"]
    choices = product(_BATCHES, _HEADS, _HEAD_SIZES, _LENGTHS, halves, (True, False))
    for batch, (heads, key_heads), head_size, length, dtype, is_causal in _shuffled(choices):
        if 4 * batch * heads * length * length * head_size > _MOST_FLOPS[device.kind]:
            continue
        query, key, value = (
            _tensor(device, dtype, batch, count, length, head_size, is_learnt=True)
            for count in (heads, key_heads, key_heads)
        )
        labels: Row = {
            "batch": batch,
            "heads": heads,
            "kv_heads": key_heads,
            "head_dim": head_size,
            "seq": length,
            "dtype": dtype,
            "causal": is_causal,
            "kernel": "scaled_dot_product_attention",
        }
        yield _attention(labels, query, key, value=value)


def _attention(
    labels: Row, query: torch.Tensor, key: torch.Tensor, *, value: torch.Tensor
) -> Shape:
    import torch  # on demand: an optional dependency

    def attend() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            is_causal=bool(labels["causal"]),
            enable_gqa=query.shape[1] != key.shape[1],
        )

    result = attend()
    gradient = torch.ones_like(result)

    def backward() -> object:
        return torch.autograd.grad(result, (query, key, value), gradient, retain_graph=True)

    return Shape(labels, torch.no_grad()(attend), backward)


def _movements(device: Device) -> Iterator[Shape]:
    for rows, width, dtype in _shuffled(product(_ROWS, _WIDTHS, device.dtypes)):
        if rows * width * 4 > _MOST_BYTES[device.kind]:
            continue
        data, other = (_tensor(device, dtype, rows, width) for _ in range(2))
        for name, run in _moves(data, other, _tensor(device, dtype, width)).items():
            labels: Row = {"op": name, "rows": rows, "width": width, "dtype": dtype}
            yield Shape(labels, run)


def _moves(
    data: torch.Tensor, other: torch.Tensor, weight: torch.Tensor
) -> dict[str, Callable[[], object]]:
    """Operators bounded by memory, by name, on the same tensors."""
    import torch  # on demand: an optional dependency

    functional = torch.nn.functional
    return {
        "aten::copy_": lambda: other.copy_(data),
        "aten::add": lambda: torch.add(data, other),
        "aten::gelu": lambda: functional.gelu(data),
        "aten::softmax": lambda: torch.softmax(data, -1),
        "aten::layer_norm": lambda: functional.layer_norm(data, weight.shape, weight, weight),
        "aten::t": lambda: data.t().contiguous(),
    }

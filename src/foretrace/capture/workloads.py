"""What `foretrace measure` runs: products, attention, experts and movements of many shapes."""

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

GEMM, SCALED_GEMM, ATTENTION = "gemm", "scaled-gemm", "attention"
ENCODER, DECODE, EXPERTS = "attention-encoder", "attention-decode", "moe"
MOVEMENT = "movement"
FAMILIES = (GEMM, SCALED_GEMM, ATTENTION, ENCODER, DECODE, EXPERTS, MOVEMENT)

_SEED = 0
_PRODUCT_SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
# Of one call: about 40 ms at 50 TFLOP/s of a GPU, and 0.1 s at 20 GFLOP/s of a CPU.
_MOST_FLOPS = {"cuda": 2**41, "cpu": 2**31}
_LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
_HEADS = ((8, 8), (16, 16), (32, 8), (32, 32))
_HEAD_SIZES = (64, 128)
_BATCHES = (1, 4)
_SHORT_LENGTHS = (16, 32, 64, 77, 197, 256, 512)  # 77 and 197: text and patches of CLIP's encoders
_SHORT_BATCHES = (8, 64, 256)
_KEPT_LENGTHS = (512, 2048, 8192, 32768)
_DECODE_BATCHES = (1, 8, 32, 128)
_DECODE_HEADS = ((32, 32), (32, 8), (64, 8), (8, 1))
_ROUTED_TOKENS = (64, 512, 4096, 16384)
# Width of tokens, width of an expert, experts, and how many a token chooses.
_EXPERTS = ((2048, 768, 128, 8), (4096, 1536, 64, 4), (4096, 14336, 8, 2), (2048, 1408, 64, 6))
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
    makers = {
        GEMM: _products,
        SCALED_GEMM: _scaled_products,
        ATTENTION: _attentions,
        ENCODER: _short_attentions,
        DECODE: _decodes,
        EXPERTS: _experts,
        MOVEMENT: _movements,
    }
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
        left, right = (_tensor(device, dtype, rows, k, is_learnt=device.is_gpu) for rows in (m, n))
        labels: Row = {"batch": 1, "m": m, "n": n, "k": k, "dtype": dtype, "kernel": "linear"}
        yield _differentiated(labels, torch.nn.functional.linear, left, right)


def _differentiated(
    labels: Row, run: Callable[..., torch.Tensor], *operands: torch.Tensor
) -> Shape:
    """A function of tensors and, if they are learnt, its backward pass."""
    import torch  # on demand: an optional dependency

    forward = torch.no_grad()(lambda: run(*operands))
    if not all(operand.requires_grad for operand in operands):
        return Shape(labels, forward)
    result = run(*operands)
    gradient = torch.ones_like(result)

    def backward() -> object:
        return torch.autograd.grad(result, operands, gradient, retain_graph=True)

    return Shape(labels, forward, backward)


def _scaled_products(device: Device) -> Iterator[Shape]:
    """Products of 8-bit operands that are quantised already, scaled as a whole or row by row."""
    import torch  # on demand: an optional dependency

    if not device.is_gpu:
        return
    sizes = product(_PRODUCT_SIZES, _PRODUCT_SIZES, _PRODUCT_SIZES, ("tensor", "row"))
    for m, n, k, scaled in _shuffled(sizes):
        if 2 * m * n * k > _MOST_FLOPS[device.kind] or max(m * k, k * n) > _MOST_BYTES[device.kind]:
            continue
        left, right = (_tensor(device, "bf16", rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
        by_row = scaled == "row"
        left_scale, right_scale = (
            torch.ones(shape if by_row else (), device=device.kind, dtype=torch.float32)
            for shape in ((m, 1), (1, n))
        )
        labels: Row = {"m": m, "n": n, "k": k, "dtype": "fp8", "scaled": scaled}

        def forward(
            left: torch.Tensor = left,
            right: torch.Tensor = right,
            left_scale: torch.Tensor = left_scale,
            right_scale: torch.Tensor = right_scale,
        ) -> object:
            # No public name multiplies in 8 bits (torch 2.11).
            return torch._scaled_mm(  # noqa: SLF001
                left,
                right.t(),
                left_scale,
                right_scale,
                out_dtype=torch.bfloat16,
                use_fast_accum=True,
            )

        yield Shape({**labels, "kernel": "_scaled_mm"}, forward)


def _attentions(device: Device) -> Iterator[Shape]:
    choices = product(_BATCHES, _HEADS, _HEAD_SIZES, _LENGTHS, _halves(device), (True, False))
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

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            is_causal=bool(labels.get("causal")),
            enable_gqa=query.shape[1] != key.shape[1],
        )

    return _differentiated(labels, attend, query, key, value)


def _short_attentions(device: Device) -> Iterator[Shape]:
    choices = product(_SHORT_BATCHES, (12, 16), _HEAD_SIZES, _SHORT_LENGTHS, _halves(device))
    for batch, heads, head_size, length, dtype in _shuffled(choices):
        if 4 * batch * heads * length * length * head_size > _MOST_FLOPS[device.kind]:
            continue
        query, key, value = (
            _tensor(device, dtype, batch, heads, length, head_size, is_learnt=True)
            for _ in range(3)
        )
        labels: Row = {
            "batch": batch,
            "heads": heads,
            "head_dim": head_size,
            "seq": length,
            "dtype": dtype,
            "causal": False,
            "kernel": "scaled_dot_product_attention",
        }
        yield _attention(labels, query, key, value=value)


def _decodes(device: Device) -> Iterator[Shape]:
    choices = product(_DECODE_BATCHES, _DECODE_HEADS, (128,), _KEPT_LENGTHS, _halves(device))
    for batch, (heads, key_heads), head_size, length, dtype in _shuffled(choices):
        if batch * key_heads * length * head_size * 2 > _MOST_BYTES[device.kind]:
            continue
        query = _tensor(device, dtype, batch, heads, 1, head_size)
        key, value = (_tensor(device, dtype, batch, key_heads, length, head_size) for _ in range(2))
        labels: Row = {
            "batch": batch,
            "heads": heads,
            "kv_heads": key_heads,
            "head_dim": head_size,
            "kv_len": length,
            "window": 0,
            "dtype": dtype,
            "kv_dtype": dtype,
            "kernel": "scaled_dot_product_attention",
        }
        yield _attention(labels, query, key, value=value)


def _halves(device: Device) -> list[str]:
    return [dtype for dtype in device.dtypes if dtype != "fp32"]


def _experts(device: Device) -> Iterator[Shape]:
    """Experts of one rank, evenly loaded: rows in order of experts, gated, weighed and summed."""
    import torch  # on demand: an optional dependency

    if not device.is_gpu or not hasattr(torch.nn.functional, "grouped_mm"):  # since torch 2.10
        return
    for tokens, (hidden, width, experts, chosen) in _shuffled(product(_ROUTED_TOKENS, _EXPERTS)):
        numbers = torch.arange(tokens * chosen, device=device.kind)
        order = (numbers % experts).argsort(stable=True)
        source = order // chosen
        counts = torch.bincount(numbers % experts, minlength=experts)
        ends = counts.cumsum(0).to(torch.int32)
        labels: Row = {
            "tokens": tokens,
            "hidden": hidden,
            "inter": width,
            "top_k": chosen,
            "experts": experts,
            "tp": 1,
            "ep": 1,
            "dtype": "bf16",
            "distribution": "balanced",
            "kernel": "grouped_mm",
        }

        operands = (
            _tensor(device, "bf16", *sizes, is_learnt=True)
            for sizes in (
                (tokens, hidden),
                (experts, hidden, 2 * width),
                (experts, width, hidden),
                (tokens * chosen, 1),
            )
        )
        yield _differentiated(labels, _joined_experts(source, ends), *operands)


def _joined_experts(source: torch.Tensor, ends: torch.Tensor) -> Callable[..., torch.Tensor]:
    """Experts as a function of tokens, both weights, and the share of each row in its token.

    Args:
        source: int64[rows], the token of each row, rows in order of their experts.
        ends: int32[experts], the row behind each expert's last.
    """
    import torch  # on demand: an optional dependency

    functional = torch.nn.functional

    def forward(
        tokens: torch.Tensor, first: torch.Tensor, last: torch.Tensor, shares: torch.Tensor
    ) -> torch.Tensor:
        inside = functional.grouped_mm(tokens[source], first, offs=ends)
        gate, up = inside.chunk(2, -1)
        made = functional.grouped_mm(functional.silu(gate) * up, last, offs=ends)
        return torch.zeros_like(tokens).index_add(0, source, made * shares)

    return forward


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
    order = torch.randperm(len(data), device=data.device)
    return {
        "aten::copy_": lambda: other.copy_(data),
        "aten::add": lambda: torch.add(data, other),
        "aten::gelu": lambda: functional.gelu(data),
        "aten::softmax": lambda: torch.softmax(data, -1),
        "aten::layer_norm": lambda: functional.layer_norm(data, weight.shape, weight, weight),
        "aten::rms_norm": lambda: functional.rms_norm(data, weight.shape, weight),
        "aten::index_select": lambda: torch.index_select(data, 0, order),
        "aten::index_add_": lambda: other.index_add_(0, order, data),
        "aten::t": lambda: data.t().contiguous(),
    }

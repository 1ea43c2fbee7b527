"""Operators that a GPU has a kernel for, where PyTorch would take them apart without a device.

On the device "meta", which has shapes and no memory, PyTorch falls back to the plainest way:
attention as two products with all scores, dropout as three operators. While `as_on_a_gpu` holds,
they are what CUDA runs.

Source:
    PyTorch 2.13: aten/src/ATen/native/transformers/attention.cpp and cuda/sdp_utils.cpp (which
    kernel takes what), native/Dropout.cpp, native/layer_norm.cpp (`rms_norm`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Above gradients, so that kernels' own derivatives are taken.
ON_META, ON_FAKE_CPU = "AutogradMeta", "AutogradCPU"
_WIDEST_HEAD = 256  # of flash attention: sdp_utils.cpp, check_head_dim_size_flash


@contextmanager
def as_on_a_gpu(key: str = ON_META) -> Iterator[None]:
    """While it holds, operators without memory are a GPU's; `key` says whose tensors they are."""
    import torch  # on demand: an optional dependency

    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        library.impl("scaled_dot_product_attention", _attention, key)
        library.impl("dropout", _dropout, key)
        if hasattr(torch.ops.aten, "_fused_rms_norm_backward"):  # since PyTorch 2.9
            # `Library.impl` refuses shapes for what a CPU takes apart; CUDA does not. Tensors that
            # pretend to be a CPU's are taken apart too, unless the CPU seems to have a kernel.
            for backend in ("Meta", "CPU") if key == ON_FAKE_CPU else ("Meta",):
                library.m.impl("_fused_rms_norm", backend, _rms_norm, False)  # noqa: FBT003
                library.m.impl("_fused_rms_norm_backward", backend, _rms_norm_backward, False)  # noqa: FBT003
        yield
    finally:
        library._destroy()  # noqa: SLF001 - as PyTorch's own tests do


def _attention(  # noqa: PLR0917 - PyTorch's own signature
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - PyTorch's own signature
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    import torch  # on demand: an optional dependency

    aten = torch.ops.aten
    is_narrow = query.dtype in {torch.float16, torch.bfloat16}
    has_heads = query.dim() == 4  # noqa: PLR2004  batch, heads, tokens, size
    head = query.shape[-1]
    if attn_mask is None and is_narrow and has_heads and head <= _WIDEST_HEAD:
        query, key, value = (_padded(one) for one in (query, key, value))
        scale = 1 / math.sqrt(head) if scale is None else scale
        found = aten._scaled_dot_product_flash_attention(  # noqa: SLF001
            query, key, value, dropout_p, is_causal, scale=scale
        )[0]
        return found[..., :head] if found.shape[-1] != head else found  # type: ignore[no-any-return]
    if has_heads and query.shape[-1] == value.shape[-1]:
        if enable_gqa:
            key, value = (_for_every_head(one, query.shape[1]) for one in (key, value))
        bias = _bias(attn_mask, query, key)
        return aten._scaled_dot_product_efficient_attention(  # type: ignore[no-any-return]  # noqa: SLF001
            query, key, value, bias, torch.is_grad_enabled(), dropout_p, is_causal, scale=scale
        )[0]
    return aten._scaled_dot_product_attention_math(  # type: ignore[no-any-return]  # noqa: SLF001
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    """Heads of a size that is no multiple of 8 are filled up."""
    import torch  # on demand: an optional dependency

    missing = -tensor.shape[-1] % 8
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def _for_every_head(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    return tensor.repeat_interleave(heads // tensor.shape[1], 1)


def _bias(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
    """A mask of yes and no becomes what is added to scores, as wide as these."""
    import torch  # on demand: an optional dependency

    if mask is None:
        return None
    if mask.dtype is torch.bool:
        absent = torch.full_like(mask, -math.inf, dtype=query.dtype)
        mask = torch.where(mask, torch.zeros_like(absent), absent)
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _dropout(data: torch.Tensor, share: float, train: bool) -> torch.Tensor:  # noqa: FBT001
    import torch  # on demand: an optional dependency

    if not train or share == 0:
        return data
    return torch.native_dropout(data, share, train)[0]


def _rms_norm(
    data: torch.Tensor,
    shape: Sequence[int],
    weight: torch.Tensor | None = None,
    epsilon: float | None = None,  # noqa: ARG001 - PyTorch's own signature
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch  # on demand: an optional dependency

    del weight
    rows = (*data.shape[: data.dim() - len(shape)], *(1 for _ in shape))
    return torch.empty_like(data), data.new_empty(rows, dtype=torch.float32)


def _rms_norm_backward(  # noqa: PLR0917 - PyTorch's own signature
    gradient: torch.Tensor,  # noqa: ARG001
    data: torch.Tensor,
    shape: Sequence[int],  # noqa: ARG001
    root: torch.Tensor,  # noqa: ARG001
    weight: torch.Tensor | None,
    mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    import torch  # on demand: an optional dependency

    return (
        torch.empty_like(data) if mask[0] else None,
        torch.empty_like(weight) if weight is not None and mask[1] else None,
    )

"""Fused attention: its shape, and its work.

Source of the formulas: torch/utils/flop_counter.py (PyTorch 2.13). Forward is two products,
queries x keys and scores x values; backward five, the scores once more among them. Of a causal
mask only what it leaves is counted, as Dao (arXiv:2307.08691, section 4) does; PyTorch's counter
counts all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from foretrace.operators.framework import base_of
from foretrace.operators.shapes import Shapes, Tensor, parsed_shapes
from foretrace.operators.work import Work, moved

# Softmaxes over attention scores, forward and backward, by the operators' names.
_SCORES = {
    "ScaledUpperTriangMaskedSoftmax": True,
    "ScaledMaskedSoftmax": False,
    "ScaledSoftmax": False,
    "_softmax": False,
    "_softmax_backward_data": False,
}


@dataclass(frozen=True)
class AttentionShape:
    """One call of fused attention."""

    batch: int
    heads: int  # of the queries
    kv_heads: int
    query_length: int
    kv_length: int
    head_size: int  # of queries and keys
    value_size: int
    is_causal: bool | None  # None: the trace does not say
    is_backward: bool
    is_end_aligned: bool = False  # the last query sees the last key; else the first the first

    @property
    def num_pairs(self) -> int:
        """Pairs of a query and a key that are not masked, of one head of one sequence."""
        if not self.is_causal:
            return self.query_length * self.kv_length
        if self.is_end_aligned and self.kv_length > self.query_length:
            before = self.query_length * (self.kv_length - self.query_length)
            return before + self.query_length * (self.query_length + 1) // 2
        # Query i of the first min(q, kv) sees i + 1 keys; PyTorch aligns masks at the top left.
        stairs = min(self.query_length, self.kv_length)
        return stairs * (stairs + 1) // 2 + (self.query_length - stairs) * self.kv_length


@dataclass(frozen=True)
class _Layout:
    """Where an operator's inputs stand."""

    query: int
    causal: int  # -1: not among the inputs
    is_heads_second: bool = True  # (batch, heads, length, size); else (batch, length, heads, size)
    causal_values: tuple[str, ...] = ("True", "true")
    is_end_aligned: bool = False  # flash-attention since 2.1, as its README says

    @property
    def is_backward(self) -> bool:
        """Queries come first, after the output's gradient if there is one."""
        return self.query == 1


# Schemas: torch/aten native_functions.yaml, PyTorch 2.13. `custom_mask_type` 1 and 2 are causal.
_LAYOUTS = {
    "scaled_dot_product_attention": _Layout(0, 5),
    "_scaled_dot_product_flash_attention": _Layout(0, 4),
    "_scaled_dot_product_flash_attention_backward": _Layout(1, 11),
    "_scaled_dot_product_flash_attention_for_cpu": _Layout(0, 4),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _Layout(1, 7),
    "_scaled_dot_product_efficient_attention": _Layout(0, 6),
    "_scaled_dot_product_efficient_attention_backward": _Layout(1, 11),
    "_scaled_dot_product_cudnn_attention": _Layout(0, 6),
    "_scaled_dot_product_cudnn_attention_backward": _Layout(1, 14),
    "_scaled_dot_product_attention_math": _Layout(0, 5),
    "_flash_attention_forward": _Layout(0, 8, is_heads_second=False),
    "_flash_attention_backward": _Layout(1, 11, is_heads_second=False),
    "_efficient_attention_forward": _Layout(0, 9, is_heads_second=False, causal_values=("1", "2")),
    "_efficient_attention_backward": _Layout(
        1, 14, is_heads_second=False, causal_values=("1", "2")
    ),
    # What blocks of a model with an indexer have: what it scores, and what it picks.
    "_picked_attention_forward": _Layout(0, 8, is_heads_second=False),
    "_picked_attention_backward": _Layout(1, 11, is_heads_second=False),
    # Dao-AILab/flash-attention, flash_attn_interface.py: autograd functions and custom operators
    "FlashAttnFunc": _Layout(0, 5, is_heads_second=False, is_end_aligned=True),
    "_flash_attn_forward": _Layout(0, 5, is_heads_second=False, is_end_aligned=True),
    "_flash_attn_backward": _Layout(1, 11, is_heads_second=False, is_end_aligned=True),
}
_RANK = 4  # dimensions of a batch of sequences; packed ones have three, lengths apart


# Pure, and asked for the same few texts of a job by every question about it.
@lru_cache(maxsize=65_536)
def attention_shape(operator: str, signature: str) -> AttentionShape | None:
    """The shape of a fused attention operator; none if it is none or does not say."""
    layout = _LAYOUTS.get(base_of(operator))
    shapes = parsed_shapes(signature) if layout is not None else None
    if layout is None or shapes is None:
        return None
    return _shape(shapes, layout)


def _shape(shapes: Shapes, layout: _Layout) -> AttentionShape | None:
    found = [shapes.tensor(layout.query + at) for at in range(3)]
    query, key, value = found
    if query is None or key is None or value is None:
        return None
    if any(len(one.shape) != _RANK for one in (query, key, value)):
        return None
    head, length = (1, 2) if layout.is_heads_second else (2, 1)
    causal = shapes.values[layout.causal] if 0 <= layout.causal < len(shapes.values) else ""
    return AttentionShape(
        batch=query.shape[0],
        heads=query.shape[head],
        kv_heads=key.shape[head],
        query_length=query.shape[length],
        kv_length=key.shape[length],
        head_size=query.shape[3],
        value_size=value.shape[3],
        is_causal=causal in layout.causal_values if causal else None,
        is_backward=layout.is_backward,
        is_end_aligned=layout.is_end_aligned,
    )


def attention_work(operator: str, shapes: Shapes) -> Work | None:
    """FLOPs and bytes of a fused attention operator; none if it is none."""
    layout = _LAYOUTS.get(base_of(operator))
    shape = _shape(shapes, layout) if layout is not None else None
    if shape is None or layout is None:
        return None
    query, key, value = (shapes.tensor(layout.query + at) for at in range(3))
    if query is None or key is None or value is None:
        return None
    out = Tensor((shape.batch, shape.heads, shape.query_length, shape.value_size), query.dtype)
    pairs = 2 * shape.batch * shape.heads * shape.num_pairs
    forward = (query, key, value)
    if shape.is_backward:
        flops = pairs * (3 * shape.head_size + 2 * shape.value_size)
        return moved(
            flops, read=(*forward, out, out), written=forward, dtype=query.dtype, is_product=True
        )
    flops = pairs * (shape.head_size + shape.value_size)
    return moved(flops, read=forward, written=(out,), dtype=query.dtype, is_product=True)


def scores_shape(operator: str, signature: str) -> AttentionShape | None:
    """The shape of unfused attention, by its softmax over scores (batch, heads, query, key).

    Megatron's fused masked softmax takes (batch x heads, query, key). What scores do not tell
    is 0; `batch` holds batch x heads where these are one dimension.
    """
    base = base_of(operator)
    shapes = parsed_shapes(signature) if base in _SCORES else None
    scores = shapes.tensor(0) if shapes is not None else None
    if scores is None:
        return None
    is_causal = _SCORES[base]
    if len(scores.shape) != (_RANK - 1 if is_causal else _RANK):
        return None
    return AttentionShape(
        batch=scores.shape[0],
        heads=0 if is_causal else scores.shape[1],
        kv_heads=0,
        query_length=scores.shape[-2],
        kv_length=scores.shape[-1],
        head_size=0,
        value_size=0,
        is_causal=is_causal or None,
        is_backward="backward" in base,
    )

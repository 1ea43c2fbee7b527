"""`operation_of`: an operator, its signature and its kernel become what a model can cost."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from foretrace.cost.attention import CUDNN, FLASH, PROFILED
from foretrace.cost.gemm import LIBRARY
from foretrace.cost.memory_bound import Access
from foretrace.cost.older import OLDER, is_older
from foretrace.operators import (
    HOST_COPY,
    OperatorClass,
    Shapes,
    Tensor,
    attention_shape,
    kernel_family,
    operator_class,
    parsed_shapes,
    runs_in_tf32,
    work_of,
)

GEMM, CONVOLUTION, MOVEMENT = "gemm", "convolution", "movement"
ATTENTION, ATTENTION_BACKWARD = "attention", "attention backward"
ENCODER, DECODE = "attention encoder", "decode"
EXPERTS, EXPERT_EXCHANGE = "experts", "expert exchange"
UNKNOWN = ""

# Where a product's operands stand among an operator's inputs.
_OPERANDS = {
    **dict.fromkeys(
        ("mm", "bmm", "matmul", "mv", "_scaled_mm", "_int_mm", "_state_product"), (0, 1)
    ),
    **dict.fromkeys(
        ("addmm", "addmm_", "_addmm_activation", "baddbmm", "baddbmm_", "addmv", "addmv_"), (1, 2)
    ),
    **dict.fromkeys(("linear", "mkldnn_linear"), (0, 1)),
}
# Kernels that nobody measured, for which others stand in; their kind has this before it.
_STOOD_IN_FOR = ("_state_product", "_picked_attention_forward", "_picked_attention_backward")
STOOD_IN_FOR = "unmeasured "
_TURNED = ("linear", "mkldnn_linear")  # their weight is n x k
# Copies of one format without known strides: a contiguous one would not have been made.
_MOVES_IN_PLACE = ("copy_", "clone", "contiguous", "_to_copy", "to", "cat", "stack")
_ROW_CLASSES = (
    OperatorClass.NORMALISATION,
    OperatorClass.SOFTMAX,
    OperatorClass.LOSS,
    OperatorClass.REDUCTION,
)
# Of these an operator that no table names reads its inputs and writes as much as the largest.
_ALIKE_CLASSES = (
    OperatorClass.ELEMENTWISE,
    OperatorClass.NORMALISATION,
    OperatorClass.SOFTMAX,
)
_GATHER_CLASSES = (OperatorClass.EMBEDDING, OperatorClass.INDEXING)
# FBGEMM reads rows of many tables with a warp each, 128 bytes at a time: on an A100 lookups reach
# 0.836 of the memory's bandwidth (MAD-Max, arXiv:2310.02784, `mem_bw_util` of its released
# system), which is near what streams reach; its updates take the same rate (TorchRec's planner
# has them at twice the time of a lookup, for twice the bytes).
_WHOLE_ROWS = "split_embedding_"
# Rows of tables that HBM lacks come over the link to the host, or from its disks.
_FETCHES = {
    "lfu_cache_populate_cuda": Access.HOST,
    "ssd_cache_populate_cuda": Access.STORAGE,
}
# Rows so long are read and written as whole lines of memory, in whatever order.
_ROWS_BY_INDEX, _WHOLE_ROW_BYTES = "index_select", 1024
_STREAM_CLASSES = (OperatorClass.ELEMENTWISE, OperatorClass.OPTIMIZER, OperatorClass.COPY)
# Lists of tensors come without their format; a concatenation's kernel has its width in its name.
_WIDTH_IN_NAME = re.compile(r"OpaqueType<(\d+)")
_OPTIMIZER_BYTES = 4  # states and, as PyTorch's optimizers keep them, parameters in 32 bit


@dataclass(frozen=True)
class Operation:
    """One distinct operation: rows of one model, kind and format are costed together."""

    model: str  # GEMM, ...; UNKNOWN
    kind: str = ""  # of kernels: LIBRARY, FLASH, ...
    dtype: str = ""
    # gemm: batch, m, n, k; convolution: the same, products, bytes; attention: batch, heads,
    # key heads, head size, length, key length, 1 if causal; movement: bytes, Access; decode,
    # experts and their exchange: the columns of their shapes in order
    sizes: tuple[int, ...] = ()


_UNKNOWN_OPERATION = Operation(UNKNOWN)


def operation_of(operator: str, signature: str, kernel: str = "") -> Operation:
    """What a call does, or an operation of model UNKNOWN where name and shapes do not tell.

    Args:
        operator: "aten::addmm", ...; "" unknown.
        signature: JSON text of its inputs, as `trace` keeps it; "" unknown.
        kernel: name of the kernel that does it; "" unknown.
    """
    shapes = parsed_shapes(signature)
    if shapes is None:
        return _UNKNOWN_OPERATION
    base = operator.rsplit("::", 1)[-1].split(".", 1)[0]
    if base in _OPERANDS:
        return _product(base, shapes, kernel)
    kind = operator_class(kernel or operator, operator)
    if kind == OperatorClass.ATTENTION:
        return _attention(operator, signature, kernel)
    if "convolution" in base or base.startswith("conv"):
        return _convolution(operator, signature, shapes, kernel)
    is_host = bool(kernel) and kernel_family(kernel, operator) == HOST_COPY
    access = Access.HOST if is_host else _access(kind, base, shapes)
    if access is None:
        return _UNKNOWN_OPERATION
    is_alike = kind in _ALIKE_CLASSES
    return _movement(operator, signature, shapes, _Manner(access, kernel, is_alike=is_alike))


def _product(base: str, shapes: Shapes, kernel: str) -> Operation:
    first, second = (shapes.tensor(at) for at in _OPERANDS[base])
    if first is None or second is None or not first.shape or not second.shape:
        return _UNKNOWN_OPERATION
    left = first.shape if len(first.shape) > 1 else (1, *first.shape)
    right = second.shape if len(second.shape) > 1 else (*second.shape, 1)
    if base in _TURNED:
        right = right[::-1]
    if left[-1] != right[-2] or 0 in (*left, *right):
        return _UNKNOWN_OPERATION
    outer, m, n, k = left[:-2], left[-2], right[-1], left[-1]
    is_folded = all(size == 1 for size in right[:-2])  # one weight for all: a taller product
    batch, m = (1, m * math.prod(outer)) if is_folded else (math.prod(outer or right[:-2]), m)
    kind = OLDER if is_older(kernel) else LIBRARY
    if base in _STOOD_IN_FOR:
        kind = STOOD_IN_FOR + kind
    return Operation(GEMM, kind, _matrix_dtype(first, kernel), (batch, m, n, k))


def _matrix_dtype(operand: Tensor, kernel: str) -> str:
    if operand.dtype == "fp32" and runs_in_tf32(kernel):
        return "tf32"
    return operand.dtype


def _attention(operator: str, signature: str, kernel: str) -> Operation:
    shape = attention_shape(operator, signature)
    shapes = parsed_shapes(signature)
    if shape is None or shapes is None or not shapes.single:
        return _UNKNOWN_OPERATION
    # PyTorch and most traces run FlashAttention-2; what is newer says so in its name.
    said = f"{operator} {kernel}".lower()
    is_newer = any(text in said for text in ("sm90", "fa3", "fmha_sm")) and not shape.is_backward
    kind = CUDNN if CUDNN in said else FLASH if is_newer else PROFILED
    if operator.rsplit("::", 1)[-1] in _STOOD_IN_FOR:
        kind = STOOD_IN_FOR + kind
    # Half of the arithmetic goes over the size of keys, half over that of values.
    head_size = (shape.head_size + shape.value_size) // 2
    sizes = (
        *(shape.batch, shape.heads, shape.kv_heads, head_size),
        *(shape.query_length, shape.kv_length, int(bool(shape.is_causal))),
    )
    return Operation(
        ATTENTION_BACKWARD if shape.is_backward else ATTENTION,
        kind,
        shapes.single[0].dtype,
        sizes,
    )


def _convolution(operator: str, signature: str, shapes: Shapes, kernel: str) -> Operation:
    work = work_of(operator, signature)
    is_backward = "backward" in operator
    data, weight = (shapes.tensor(at) for at in ((1, 2) if is_backward else (0, 1)))
    if work is None or data is None or weight is None or not work.flops or work.num_bytes < 0:
        return _UNKNOWN_OPERATION
    channels = weight.shape[1] if len(weight.shape) > 1 else 1
    groups = max(1, data.shape[1] // max(1, channels))
    inner = channels * math.prod(weight.shape[2:])
    outputs = shapes.tensor(0) if is_backward else None
    rows = work.flops // (2 * weight.num_elements)
    if outputs is not None:
        rows = outputs.shape[0] * math.prod(outputs.shape[2:])
    products = max(1, round(work.flops / (2 * rows * weight.num_elements)))
    columns = max(1, weight.shape[0] // groups)
    dtype = _matrix_dtype(data, kernel)
    sizes = (groups, rows, columns, inner, products, work.num_bytes)
    return Operation(CONVOLUTION, LIBRARY, dtype, sizes)


def _access(kind: OperatorClass, base: str, shapes: Shapes) -> Access | None:
    if base in _FETCHES or base.startswith(_WHOLE_ROWS):
        return _FETCHES.get(base, Access.STREAM)
    if base == _ROWS_BY_INDEX and _row_bytes(shapes) >= _WHOLE_ROW_BYTES:
        return Access.PERMUTE
    if kind in _GATHER_CLASSES:
        return Access.GATHER
    if kind in _ROW_CLASSES:
        return Access.ROWS
    if kind not in _STREAM_CLASSES:
        return None
    return Access.UNEVEN if _is_uneven(base, shapes.single) else Access.STREAM


def _row_bytes(shapes: Shapes) -> int:
    """Bytes of one row of the table that an operator picks rows of; 0 if it is not known."""
    table = shapes.tensor(0)
    if table is None or not table.shape or not table.num_elements:
        return 0
    return table.num_bytes // table.shape[0]


def _is_uneven(base: str, tensors: Sequence[Tensor]) -> bool:
    """Whether operands of more than one element differ in shape or in the order of dimensions."""
    large = [one for one in tensors if one.num_elements > 1]
    if base in {"cat", "stack"}:
        return True
    if base in _MOVES_IN_PLACE and not any(one.strides for one in large):
        return len({one.dtype for one in large}) == 1
    shapes = {one.shape for one in large}
    orders = {_order(one) for one in large if one.strides}
    is_broken = any(_is_broken(one) for one in large if one.strides)
    return len(shapes) > 1 or len(orders) > 1 or is_broken


def _order(tensor: Tensor) -> tuple[int, ...]:
    """Dimensions of more than one element from the widest stride to the narrowest."""
    pairs = [
        (-stride, at)
        for at, (size, stride) in enumerate(zip(tensor.shape, tensor.strides, strict=False))
        if size > 1
    ]
    return tuple(at for _, at in sorted(pairs))


def _is_broken(tensor: Tensor) -> bool:
    """Whether the elements do not lie next to each other."""
    spans = zip(tensor.shape, tensor.strides, strict=False)
    reach = 1 + sum((size - 1) * stride for size, stride in spans if size > 1)
    return reach != tensor.num_elements


@dataclass(frozen=True)
class _Manner:
    """How an operator goes through memory."""

    access: Access
    kernel: str
    is_alike: bool  # what it writes has the shape of what it reads


def _movement(operator: str, signature: str, shapes: Shapes, manner: _Manner) -> Operation:
    num_bytes = _moved_bytes(operator, signature, shapes, manner)
    if num_bytes is None:
        return _UNKNOWN_OPERATION
    tensors = shapes.single
    dtype = tensors[0].dtype if tensors else ""
    access = manner.access
    return Operation(MOVEMENT, access.name.lower(), dtype, (num_bytes, int(access)))


def _moved_bytes(operator: str, signature: str, shapes: Shapes, manner: _Manner) -> int | None:
    work = work_of(operator, signature)
    if work is not None and work.num_bytes >= 0:
        return work.num_bytes
    lists = [one for each in shapes.inputs if isinstance(each, tuple) for one in each]
    if lists:
        width = _WIDTH_IN_NAME.search(manner.kernel)
        item = int(width.group(1)) if width else _OPTIMIZER_BYTES
        return 2 * item * sum(one.num_elements for one in lists)
    tensors = [one for one in shapes.single if one.element_bytes]
    if work is not None or not tensors or not manner.is_alike:
        return None
    return sum(one.num_bytes for one in tensors) + max(one.num_bytes for one in tensors)

"""Operators that memory bounds, lookups in embedding tables too: bytes count, FLOPs are few.

FLOPs per element are the operations written in the formula, by name below; every operator of
`aten` that no table names and whose class is elementwise counts one per element of its result.

Schemas: pytorch/FBGEMM, fbgemm_gpu/codegen/training: `split_embedding_codegen_forward_*_cuda` and
`split_embedding_backward_codegen_<optimizer>_*_exact_cuda`. A backward pass updates the rows that
were looked up; how many lookups meet in one row the shapes do not tell, so every lookup counts as
a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from foretrace.operators.shapes import Shapes, Tensor, broadcast, promoted
from foretrace.operators.work import Work, moved

# Operations per element, from the formulas:
_LAYER_NORM = 7  # sum; subtract, square, sum; scale by 1/std; times weight, plus bias
_LAYER_NORM_BACKWARD = 13  # x^ (2), dy w, its two sums (3), combined (4), dw (2), db (1)
_RMS_NORM = 4  # square, sum, scale, times weight
_SOFTMAX = 5  # maximum, subtract, exp, sum, divide
_SOFTMAX_BACKWARD = 4  # times, sum, subtract, times
_ADAM = 14  # decay (1), first moment (3), second (4), root, divide, epsilon (3), update (3)
_SGD = 4  # momentum (2), update (2)


# How many inputs are operands; a tensor after them is where the result goes (`out=`).
_ARITY = {
    **dict.fromkeys(
        (
            "abs", "neg", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "square",
            "reciprocal", "sin", "cos", "tanh", "sigmoid", "relu", "gelu", "silu", "erf", "floor",
            "ceil", "round", "sign", "logical_not", "bitwise_not", "isnan", "isinf", "isfinite",
            "clamp", "clamp_min", "clamp_max", "leaky_relu", "hardtanh", "elu", "nan_to_num",
        ),
        1,
    ),
    **dict.fromkeys(
        (
            "add", "sub", "mul", "div", "rsub", "pow", "maximum", "minimum", "fmod", "remainder",
            "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor",
            "eq", "ne", "lt", "le", "gt", "ge", "tanh_backward", "sigmoid_backward",
            "silu_backward", "threshold_backward", "gelu_backward",
        ),
        2,
    ),
}  # fmt: skip

_COMPARISONS = frozenset(
    (
        "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_and",
        "logical_or", "logical_not", "logical_xor",
    )
)  # fmt: skip


def _operands(base: str, shapes: Shapes) -> tuple[Tensor, ...]:
    """The tensors that an elementwise operator reads."""
    given = shapes.inputs[: _ARITY.get(base, len(shapes.inputs))]
    return tuple(one for one in given if isinstance(one, Tensor))


def elementwise(base: str, shapes: Shapes) -> Work | None:
    """One operation per element of the result, whose shape is what the operands broadcast to."""
    tensors = _operands(base, shapes)
    if not tensors:
        return None
    dtype = promoted(tensors)
    out = Tensor(broadcast(tensors), "bool" if base in _COMPARISONS else dtype)
    return moved(out.num_elements, read=tensors, written=(out,), dtype=dtype)


def _copy(shapes: Shapes) -> Work | None:
    """`copy_(to, from)`."""
    to, source = shapes.tensor(0), shapes.tensor(1)
    if to is None or source is None:
        return None
    return moved(0, read=(source,), written=(to,), dtype=source.dtype)


def _quantised(shapes: Shapes) -> Work | None:
    """`_quantize_both(to, to, from)`, `_quantize_rows(to, from)`."""
    *copies, source = shapes.single
    return moved(0, read=(source,), written=tuple(copies), dtype=source.dtype)


def _clone(shapes: Shapes) -> Work | None:
    source = shapes.tensor(0)
    if source is None:
        return None
    to = Tensor(source.shape, shapes.dtype(1) or source.dtype)
    return moved(0, read=(source,), written=(to,), dtype=source.dtype)


def _fill(shapes: Shapes) -> Work | None:
    to = shapes.tensor(0)
    return None if to is None else moved(0, read=(), written=(to,), dtype=to.dtype)


def _cat(shapes: Shapes) -> Work | None:
    parts = shapes.tensors(0)
    return moved(0, read=parts, written=parts, dtype="") if parts else None


def _reduction(shapes: Shapes) -> Work | None:
    """`sum(input, dims, keep, ...)`; without dimensions, all of it."""
    data = shapes.tensor(0)
    if data is None:
        return None
    named = shapes.numbers(1)
    left: tuple[int, ...] = ()
    if named:
        gone = {at % max(len(data.shape), 1) for at in named}
        left = tuple(size for at, size in enumerate(data.shape) if at not in gone)
    out = Tensor(left, data.dtype)
    return moved(data.num_elements, read=(data,), written=(out,), dtype=data.dtype)


def _normalisation(operations: int) -> Callable[[Shapes], Work | None]:
    """Reads the data and its parameters, writes as much as the data."""

    def work(shapes: Shapes) -> Work | None:
        data = shapes.tensor(0)
        if data is None:
            return None
        flops = operations * data.num_elements
        return moved(flops, read=shapes.single, written=(data,), dtype=data.dtype)

    return work


def _normalisation_backward(shapes: Shapes) -> Work | None:
    """`native_layer_norm_backward(grad, input, ...)`; parameters' gradients are small."""
    gradient, data = shapes.tensor(0), shapes.tensor(1)
    if gradient is None or data is None:
        return None
    flops = _LAYER_NORM_BACKWARD * data.num_elements
    return moved(flops, read=shapes.single, written=(data,), dtype=data.dtype)


def _rows(table: Tensor | None, index: Tensor | None) -> Work | None:
    """Rows of a table by index, copied."""
    if table is None or index is None or not table.shape:
        return None
    out = Tensor((*index.shape, *table.shape[1:]), table.dtype)
    return moved(0, read=(out, index), written=(out,), dtype=table.dtype)


def _index_select(shapes: Shapes) -> Work | None:
    """`index_select(input, dim, index)`."""
    table, index, along = shapes.tensor(0), shapes.tensor(2), shapes.numbers(1)
    if along and along[0] != 0:
        return None
    return _rows(table, index)


def _index_add(shapes: Shapes) -> Work | None:
    """`index_add_(to, dim, index, rows)`: rows are added to those of another tensor."""
    index, rows = shapes.tensor(2), shapes.tensor(3)
    if index is None or rows is None:
        return None
    flops = rows.num_elements
    return moved(flops, read=(rows, rows, index), written=(rows,), dtype=rows.dtype)


def _embedding(shapes: Shapes) -> Work | None:
    return _rows(shapes.tensor(0), shapes.tensor(1))


def _embedding_backward(shapes: Shapes) -> Work | None:
    """`embedding_dense_backward(grad, indices, rows, ...)`: adds up into a table of zeros."""
    gradient, index, rows = shapes.tensor(0), shapes.tensor(1), shapes.numbers(2)
    if gradient is None or index is None or not rows or rows[0] < 0 or not gradient.shape:
        return None
    table = Tensor((rows[0], gradient.shape[-1]), gradient.dtype)
    flops = gradient.num_elements
    return moved(flops, read=(gradient, index), written=(table,), dtype=gradient.dtype)


def _embedding_bag(shapes: Shapes) -> Work | None:
    """`_embedding_bag(weight, indices, offsets, ...)`: rows are added up by bag."""
    table, index, offsets = (shapes.tensor(at) for at in range(3))
    if table is None or index is None or offsets is None or not table.shape:
        return None
    size = table.shape[-1]
    has_last = shapes.flags(7) == (True,)
    rows = Tensor((index.num_elements, size), table.dtype)
    out = Tensor((max(offsets.num_elements - has_last, 0), size), table.dtype)
    return moved(rows.num_elements, read=(rows, index, offsets), written=(out,), dtype=table.dtype)


def _gather(shapes: Shapes) -> Work | None:
    """`gather(input, dim, index)`."""
    data, index = shapes.tensor(0), shapes.tensor(2)
    if data is None or index is None:
        return None
    out = Tensor(index.shape, data.dtype)
    return moved(0, read=(out, index), written=(out,), dtype=data.dtype)


def _top(shapes: Shapes) -> Work | None:
    """`topk(input, number, dim)`: values, and where they stand; one comparison an element."""
    data, number = shapes.tensor(0), shapes.numbers(1)
    if data is None or not number or not data.shape:
        return None
    out = (*data.shape[:-1], number[0])
    written = (Tensor(out, data.dtype), Tensor(out, "int64"))
    return moved(data.num_elements, read=(data,), written=written, dtype=data.dtype)


def _loss(shapes: Shapes) -> Work | None:
    """`nll_loss_forward(log probabilities, target, ...)`: one of each row is read."""
    data, target = shapes.tensor(0), shapes.tensor(1)
    if data is None or target is None:
        return None
    picked = Tensor(target.shape, data.dtype)
    out = Tensor((), data.dtype)
    return moved(target.num_elements, read=(picked, target), written=(out,), dtype=data.dtype)


def _loss_backward(shapes: Shapes) -> Work | None:
    """`nll_loss_backward(grad, log probabilities, target, ...)`: writes all of it."""
    data, target = shapes.tensor(1), shapes.tensor(2)
    if data is None or target is None:
        return None
    return moved(target.num_elements, read=(target,), written=(data,), dtype=data.dtype)


def _cross_entropy(shapes: Shapes) -> Work | None:
    """`cross_entropy_loss(logits, target, ...)`: a softmax, and one of each row."""
    data, target = shapes.tensor(0), shapes.tensor(1)
    if data is None or target is None:
        return None
    out = Tensor((), data.dtype)
    flops = _SOFTMAX * data.num_elements
    return moved(flops, read=(data, target), written=(out,), dtype=data.dtype)


def _optimizer(operations: int, written: int) -> Callable[[Shapes], Work | None]:
    """Fused over lists: parameters, gradients, states; the first and the states are written."""

    def work(shapes: Shapes) -> Work | None:
        lists = [one for one in shapes.inputs if isinstance(one, tuple) and one]
        if not lists:
            return None
        elements = sum(one.num_elements for one in lists[0])
        read = tuple(one for each in lists for one in each)
        kept = [each for at, each in enumerate(lists) if at != 1][:written]
        return moved(
            operations * elements,
            read=read,
            written=tuple(one for each in kept for one in each),
            dtype="",
        )

    return work


MOVEMENTS: dict[str, Callable[[Shapes], Work | None]] = {
    **dict.fromkeys(("copy", "copy_"), _copy),
    **dict.fromkeys(("_quantize_both", "_quantize_rows"), _quantised),
    **dict.fromkeys(("clone", "contiguous", "to", "_to_copy"), _clone),
    **dict.fromkeys(("fill", "fill_", "zero", "zero_"), _fill),
    **dict.fromkeys(("bernoulli", "uniform", "normal", "random", "exponential"), _fill),
    **dict.fromkeys(("cat", "stack", "concat"), _cat),
    **dict.fromkeys(
        ("sum", "mean", "amax", "amin", "max", "min", "prod", "any", "all"), _reduction
    ),
    **dict.fromkeys(
        ("argmax", "argmin", "prod", "norm", "linalg_vector_norm", "logsumexp"), _reduction
    ),
    **dict.fromkeys(("native_layer_norm", "layer_norm"), _normalisation(_LAYER_NORM)),
    **dict.fromkeys(("native_batch_norm", "cudnn_batch_norm"), _normalisation(_LAYER_NORM)),
    **dict.fromkeys(("miopen_batch_norm", "native_group_norm"), _normalisation(_LAYER_NORM)),
    "_native_batch_norm_legit": _normalisation(_LAYER_NORM),
    **dict.fromkeys(("rms_norm", "_fused_rms_norm"), _normalisation(_RMS_NORM)),
    "native_layer_norm_backward": _normalisation_backward,
    "native_group_norm_backward": _normalisation_backward,
    "native_batch_norm_backward": _normalisation_backward,
    "cudnn_batch_norm_backward": _normalisation_backward,
    # NVIDIA/apex fused_layer_norm.py; Megatron fused_softmax.py: autograd functions by class name
    "FusedLayerNormAffineFunction": _normalisation(_LAYER_NORM),
    **dict.fromkeys(
        ("_softmax", "softmax", "_log_softmax", "log_softmax"), _normalisation(_SOFTMAX)
    ),
    "ScaledUpperTriangMaskedSoftmax": _normalisation(_SOFTMAX),
    "ScaledMaskedSoftmax": _normalisation(_SOFTMAX),
    "ScaledSoftmax": _normalisation(_SOFTMAX),
    "_softmax_backward_data": _normalisation(_SOFTMAX_BACKWARD),
    "_log_softmax_backward_data": _normalisation(_SOFTMAX_BACKWARD),
    "index_select": _index_select,
    "index_add": _index_add,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    **dict.fromkeys(("_embedding_bag", "embedding_bag"), _embedding_bag),
    "gather": _gather,
    "topk": _top,
    "nll_loss_forward": _loss,
    "nll_loss_backward": _loss_backward,
    "cross_entropy_loss": _cross_entropy,
    "_fused_adam": _optimizer(_ADAM, 3),
    "_fused_adamw": _optimizer(_ADAM, 3),
    "_fused_sgd": _optimizer(_SGD, 2),
}
# Elementwise by class, but with a result that the inputs' shapes do not tell.
UNTOLD = frozenset(("arange", "tril_indices", "rand", "randn", "randint", "linspace"))


_STATE = "fp32"  # what an optimizer keeps
# Operations per number: gradient times rate, minus (SGD); square, add, root, divide besides.
_TABLE_SGD, _TABLE_ADAGRAD = 2, 6


def _table_rows(table: Tensor, index: Tensor, dimensions: Tensor, total: int) -> Tensor:
    """Rows that are looked up; where tables differ in width, of the mean width."""
    num_tables = max(1, dimensions.num_elements - 1)
    return Tensor((index.num_elements * total // num_tables,), table.dtype)


def _lookup(shapes: Shapes) -> Work | None:
    """`(weights, uvm, cache, placements, offsets, D_offsets, total_D, max_D, indices, offsets)`."""
    table, dimensions, index, bags = (shapes.tensor(at) for at in (0, 5, 8, 9))
    total = shapes.numbers(6)
    if table is None or dimensions is None or index is None or bags is None or not total:
        return None
    rows = _table_rows(table, index, dimensions, total[0])
    num_tables = max(1, dimensions.num_elements - 1)
    out = Tensor(((bags.num_elements - 1) // num_tables, total[0]), table.dtype)
    return moved(rows.num_elements, read=(rows, index, bags), written=(out,), dtype=table.dtype)


def _update(operations: int, states: str) -> Callable[[Shapes], Work | None]:
    """`(gradient, weights, uvm, cache, placements, offsets, D_offsets, max_D, ..., indices, ...)`.

    Args:
        operations: per number of a row.
        states: "none", "row" (one number each) or "all".
    """

    def work(shapes: Shapes) -> Work | None:
        gradient, table, dimensions, index = (shapes.tensor(at) for at in (0, 1, 6, 10))
        if gradient is None or table is None or dimensions is None or index is None:
            return None
        rows = _table_rows(table, index, dimensions, gradient.shape[-1] if gradient.shape else 0)
        kept = {
            "none": (),
            "row": (Tensor(index.shape, _STATE),),
            "all": (Tensor(rows.shape, _STATE),),
        }[states]
        return moved(
            operations * rows.num_elements,
            read=(gradient, index, rows, *kept),
            written=(rows, *kept),
            dtype=table.dtype,
        )

    return work


def _fetch(shapes: Shapes) -> Work | None:
    """Rows as bytes: what comes over a link; what goes back goes beside it."""
    rows = shapes.tensor(0)
    return None if rows is None else moved(0, read=(rows,), written=(), dtype=rows.dtype)


TABLES: dict[str, Callable[[Shapes], Work | None]] = {
    "split_embedding_codegen_forward_unweighted_cuda": _lookup,
    "split_embedding_backward_codegen_sgd_unweighted_exact_cuda": _update(_TABLE_SGD, "none"),
    "split_embedding_backward_codegen_rowwise_adagrad_unweighted_exact_cuda": _update(
        _TABLE_ADAGRAD, "row"
    ),
    "split_embedding_backward_codegen_adagrad_unweighted_exact_cuda": _update(
        _TABLE_ADAGRAD, "all"
    ),
    "lfu_cache_populate_cuda": _fetch,
    "ssd_cache_populate_cuda": _fetch,
}

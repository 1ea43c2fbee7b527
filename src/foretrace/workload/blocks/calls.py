"""Operators with their shapes, one function each: what they move is written in their signature."""

from __future__ import annotations

from foretrace.base import known_format
from foretrace.operators import Tensor
from foretrace.workload.blocks.signatures import (
    FUSED,
    QUANTISED,
    QUANTISED_ROWS,
    STATE_PRODUCT,
    OperatorCall,
    array,
    call,
    turned,
)

Shape = tuple[int, ...]

_INDEX = "int64"


def product(rows: int, columns: int, inner: int, dtype: str) -> OperatorCall:
    """A matrix of rows x inner times one of inner x columns, a weight that is stored turned."""
    name = "aten::_scaled_mm" if known_format(dtype).is_narrow else "aten::mm"
    return call(name, array((rows, inner), dtype), turned((inner, columns), dtype))


def product_with_bias(rows: int, columns: int, inner: int, dtype: str) -> OperatorCall:
    """As `product`; the bias is added as the result is stored."""
    if known_format(dtype).is_narrow:
        return product(rows, columns, inner, dtype)
    first, second = array((rows, inner), dtype), turned((inner, columns), dtype)
    return call("aten::addmm", array((columns,), dtype), first, second, "1", "1")


def accumulated_product(
    rows: int, columns: int, inner: int, dtypes: tuple[str, str]
) -> OperatorCall:
    """A weight's gradient that is added to what is there, of the second number format."""
    dtype, kept = dtypes
    if known_format(dtype).is_narrow:
        return product(rows, columns, inner, dtype)
    first, second = turned((rows, inner), dtype), array((inner, columns), dtype)
    return call("aten::addmm", array((rows, columns), kept), first, second, "1", "1")


def batched_product(batch: int, sizes: tuple[int, int, int], dtype: str) -> OperatorCall:
    """`batch` products of rows x inner and inner x columns; sizes are rows, columns, inner."""
    rows, columns, inner = sizes
    if batch == 1:
        return product(rows, columns, inner, dtype)
    return call(
        "aten::bmm", array((batch, rows, inner), dtype), array((batch, inner, columns), dtype)
    )


def state_product(batch: int, sizes: tuple[int, int, int], dtype: str) -> OperatorCall:
    """The same of a scan of states."""
    rows, columns, inner = sizes
    return call(
        STATE_PRODUCT, array((batch, rows, inner), dtype), array((batch, inner, columns), dtype)
    )


def fused(shape: Shape, dtype: str, *, reads: int, writes: int = 1) -> OperatorCall:
    """One elementwise kernel that reads and writes so many tensors of one shape."""
    return call(FUSED, *([array(shape, dtype)] * (reads + writes - 1)))


def elementwise(name: str, shape: Shape, dtype: str, *, reads: int = 1) -> OperatorCall:
    """An operator of PyTorch on tensors of one shape."""
    return call(name, *([array(shape, dtype)] * reads))


def scaled_rows(shape: tuple[int, int], dtype: str, *, by_column: bool = False) -> OperatorCall:
    """Rows times a number for each, or columns times one for each."""
    factor = (shape[1],) if by_column else (shape[0], 1)
    return call("aten::mul", array(shape, dtype), array(factor, dtype))


def cast(shape: Shape, source: str, to: str) -> OperatorCall:
    """A copy in another number format."""
    return call("aten::copy_", array(shape, to), array(shape, source), "False")


def quantised(shape: tuple[int, int], source: str, to: str) -> OperatorCall:
    """A matrix in a narrow format, as products along its rows and along its columns read it.

    Source:
        NVIDIA/TransformerEngine, transformer_engine/common/cast: cast_transpose, and both
        directions of the formats whose scales are of blocks.
    """
    copies = [array(shape, to)] * 2
    if not known_format(to).whole_bytes:
        copies = [array(shape, "fp8")]  # two of half a byte each take as much
    return call(QUANTISED, *copies, array(shape, source))


def quantised_rows(shape: tuple[int, int], source: str, to: str) -> OperatorCall:
    """A matrix in a narrow format with a scale for each row, as products along its rows read it."""
    return call(QUANTISED_ROWS, array(shape, to), array(shape, source))


def turned_copy(shape: tuple[int, int], dtype: str) -> OperatorCall:
    """A matrix that lay row by row, column by column."""
    return call("aten::copy_", turned(shape, dtype), array(shape, dtype), "False")


def gathered_copy(shape: tuple[int, int], dtype: str, *, row_stride: int) -> OperatorCall:
    """Rows that lie apart are copied next to each other."""
    source = Tensor(shape, dtype, (row_stride, 1))
    return call("aten::copy_", array(shape, dtype), source, "False")


def row_sum(shape: Shape, dtype: str, dimension: int) -> OperatorCall:
    """A sum over one dimension."""
    return call("aten::sum", array(shape, dtype), f"[{dimension}]", "False")


def total(name: str, num_elements: int, dtype: str) -> OperatorCall:
    """A reduction of everything to one number."""
    return call(name, array((num_elements,), dtype))


def zeros(shape: Shape, dtype: str) -> OperatorCall:
    """A tensor is set to zero."""
    return call("aten::zero_", array(shape, dtype))


def norm(name: str, rows: int, width: int, dtype: str, *, num_parameters: int) -> OperatorCall:
    """A normalisation of rows, with so many vectors of parameters."""
    parameters = [array((width,), dtype)] * num_parameters
    return call(name, array((rows, width), dtype), f"[{width}]", *parameters)


def norm_backward(
    name: str, rows: int, width: int, dtype: str, *, num_parameters: int
) -> OperatorCall:
    """Gradients of a normalisation of rows."""
    data = array((rows, width), dtype)
    statistics = array((rows, 1), "fp32")
    parameters = [array((width,), dtype)] * num_parameters
    return call(name, data, data, f"[{width}]", statistics, *parameters)


def rows_of_table(rows: int, width: int, index: int, dtype: str) -> OperatorCall:
    """`index` rows of a table."""
    return call("aten::index_select", array((rows, width), dtype), "0", array((index,), _INDEX))


def embedding(rows: int, width: int, tokens: Shape, dtype: str) -> OperatorCall:
    """Rows of a table by tokens."""
    return call("aten::embedding", array((rows, width), dtype), array(tokens, _INDEX), "-1")


def softmax(name: str, shape: Shape, dtype: str, *, reads: int = 1) -> OperatorCall:
    """A softmax along the last dimension, or its gradient."""
    return call(name, *([array(shape, dtype)] * reads), "-1")


def loss(name: str, rows: int, columns: int, dtype: str) -> OperatorCall:
    """A loss of rows of numbers against one right answer each."""
    return call(name, array((rows, columns), dtype), array((rows,), _INDEX))


def loss_backward(rows: int, columns: int, dtype: str) -> OperatorCall:
    """Gradient of the loss of logarithms of probabilities."""
    answers = array((rows,), _INDEX)
    return call("aten::nll_loss_backward", array((), dtype), array((rows, columns), dtype), answers)


def top(rows: int, columns: int, chosen: int, dtype: str) -> OperatorCall:
    """The largest of each row, and where they stand."""
    return call("aten::topk", array((rows, columns), dtype), str(chosen), "-1", "True", "True")

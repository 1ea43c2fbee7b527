"""FBGEMM's lookups in many embedding tables at once, and the updates that follow them.

Schemas: pytorch/FBGEMM, fbgemm_gpu/codegen/training: `split_embedding_codegen_forward_*_cuda` and
`split_embedding_backward_codegen_<optimizer>_*_exact_cuda`. A backward pass updates the rows that
were looked up; how many lookups meet in one row the shapes do not tell, so every lookup counts as
a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from foretrace.operators.shapes import Shapes, Tensor
from foretrace.operators.work import Work, moved

_STATE = "fp32"  # what an optimizer keeps
# Operations per number: gradient times rate, minus (SGD); square, add, root, divide besides.
_SGD, _ADAGRAD = 2, 6


def _rows(table: Tensor, index: Tensor, dimensions: Tensor, total: int) -> Tensor:
    """Rows that are looked up; where tables differ in width, of the mean width."""
    num_tables = max(1, dimensions.num_elements - 1)
    return Tensor((index.num_elements * total // num_tables,), table.dtype)


def _lookup(shapes: Shapes) -> Work | None:
    """`(weights, uvm, cache, placements, offsets, D_offsets, total_D, max_D, indices, offsets)`."""
    table, dimensions, index, bags = (shapes.tensor(at) for at in (0, 5, 8, 9))
    total = shapes.numbers(6)
    if table is None or dimensions is None or index is None or bags is None or not total:
        return None
    rows = _rows(table, index, dimensions, total[0])
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
        rows = _rows(table, index, dimensions, gradient.shape[-1] if gradient.shape else 0)
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
    "split_embedding_backward_codegen_sgd_unweighted_exact_cuda": _update(_SGD, "none"),
    "split_embedding_backward_codegen_rowwise_adagrad_unweighted_exact_cuda": _update(
        _ADAGRAD, "row"
    ),
    "split_embedding_backward_codegen_adagrad_unweighted_exact_cuda": _update(_ADAGRAD, "all"),
    "lfu_cache_populate_cuda": _fetch,
    "ssd_cache_populate_cuda": _fetch,
}

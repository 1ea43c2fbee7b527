"""Rows of the vocabulary's table on one rank, and of other tables that are looked up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from foretrace.graph import Part, Phase
from foretrace.operators import OperatorClass, Tensor, operator_class, parsed_shapes
from foretrace.whatif.resize.products import multiplied
from foretrace.whatif.resize.recorded_blocks import RecordedBlocks
from foretrace.whatif.resize.rewriting import base_name

_LAST_PARTS = (Part.HEAD, Part.LOSS, Part.UNKNOWN)
_FIRST_PARTS = (Part.EMBEDDING, Part.UNKNOWN, Part.LAYER)
_MATRIX = 2  # dimensions


def vocabulary_of(blocks: RecordedBlocks, hidden: int | None) -> tuple[int | None, tuple[int, ...]]:
    """Rows of the vocabulary on one rank, and of other tables that are looked up."""
    if hidden is None:
        return None, ()
    projected: Counter[int] = Counter()
    for one in blocks.of(*_LAST_PARTS):
        place = blocks.place_of(blocks.example[one])
        if place[1] is Phase.BACKWARD:
            continue
        for ran in blocks.ran(blocks.example[one]):
            shapes = parsed_shapes(ran.signature)
            product = None if shapes is None else multiplied(base_name(ran.operator), shapes)
            if product is not None and product.inner == hidden and place[0] is not Part.UNKNOWN:
                projected[product.columns] += 1
    rows = sorted(_tables(blocks, hidden), reverse=True)
    words = max(projected, default=None)
    if words is None or words <= hidden:
        words = rows[0] if rows else None
    return words, tuple(sorted(set(rows) - {words}))


def _tables(blocks: RecordedBlocks, hidden: int) -> Iterator[int]:
    for one in blocks.of(*_FIRST_PARTS):
        for ran in blocks.ran(blocks.example[one]):
            if operator_class(ran.operator) is not OperatorClass.EMBEDDING:
                continue
            shapes = parsed_shapes(ran.signature)
            table = None if shapes is None else shapes.tensor(0)
            if table is not None and _is_table(table, hidden):
                yield table.shape[0]


def _is_table(table: Tensor, hidden: int) -> bool:
    return len(table.shape) == _MATRIX and table.shape[1] == hidden and bool(table.dtype)

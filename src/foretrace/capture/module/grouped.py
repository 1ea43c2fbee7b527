"""Products of groups of rows, as of experts: how many rows each has, values decide.

A batched product with as many rows in every group stands for them.
"""

from __future__ import annotations

import json

from foretrace.operators import parsed_shapes

GROUPED = ("aten::_grouped_mm", "aten::_scaled_grouped_mm")
_MATRIX, _BATCHED = 2, 3  # dimensions


def batched_signature(signature: str) -> str | None:
    """The signature of `aten::bmm` with the work of a grouped product; none: shapes do not tell.

    Of two operands either the second is one matrix a group and the rows of the first are shared
    out; or both are matrices, and what they have in common is: gradients of weights.
    """
    shapes = parsed_shapes(signature)
    first, second = (None, None) if shapes is None else (shapes.tensor(0), shapes.tensor(1))
    ends = None if shapes is None else shapes.tensor(2)
    if first is None or second is None:
        return None
    left, right = first.shape, second.shape
    ranks = (len(left), len(right))
    if ranks == (_BATCHED, _BATCHED):
        sizes = (left, right)
    elif ranks == (_MATRIX, _BATCHED):
        groups = right[0]
        sizes = ((groups, -(-left[0] // groups), left[1]), right)
    elif ranks == (_BATCHED, _MATRIX):
        groups = left[0]
        sizes = (left, (groups, right[0], -(-right[1] // groups)))
    elif ends is not None and ends.num_elements:
        groups = ends.num_elements
        own = -(-left[1] // groups)
        sizes = ((groups, left[0], own), (groups, own, right[1]))
    else:
        return None
    said = json.loads(signature)
    found = {
        "dims": [list(each) for each in sizes],
        "types": said["types"][:2],
        "strides": [_contiguous(each) for each in sizes],
        "inputs": ["", ""],
    }
    return json.dumps(found, separators=(",", ":"))


def _contiguous(shape: tuple[int, ...]) -> list[int]:
    strides = [1]
    for size in shape[:0:-1]:
        strides.append(strides[-1] * size)
    return strides[::-1]

"""`work_of`: an operator's name and signature become its `Work`."""

from __future__ import annotations

from foretrace.operators.attention import attention_work
from foretrace.operators.framework import base_of, framework_class
from foretrace.operators.movement import MOVEMENTS, TABLES, UNTOLD, elementwise
from foretrace.operators.products import PRODUCTS
from foretrace.operators.shapes import Shapes, parsed_shapes
from foretrace.operators.work import OperatorClass, Work

_BACKWARD = "Backward"  # autograd nodes carry the gradient's shapes only


def work_of(operator: str, signature: str) -> Work | None:
    """FLOPs and least bytes of one call; none where name and shapes do not tell.

    Args:
        operator: "aten::addmm", "FusedLayerNormAffineFunction", ...
        signature: JSON text of its inputs, as `trace` keeps it.
    """
    shapes = parsed_shapes(signature)
    if shapes is None or _BACKWARD in operator:
        return None
    return attention_work(operator, shapes) or _by_table(operator, shapes)


def _by_table(operator: str, shapes: Shapes) -> Work | None:
    base = base_of(operator)
    counter = PRODUCTS.get(base) or MOVEMENTS.get(base) or TABLES.get(base)
    if counter is not None:
        return counter(shapes)
    if framework_class(operator) != OperatorClass.ELEMENTWISE or base in UNTOLD:
        return None
    return elementwise(base, shapes)

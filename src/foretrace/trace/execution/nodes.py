"""`ExecutionNode`: all that an execution trace says of one operator, values and shapes included.

`ExecutionTrace` holds what an analysis of many nodes asks for; what replays the operators
themselves needs every argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExecutionArgument:
    """One recorded input or output."""

    type: str  # "Tensor(float)", "GenericList[Int,Int]", "Int", ...
    value: object  # of a tensor: its id, its storage, offset, elements, item bytes, device
    shape: object
    strides: object  # in elements; none before schema 1.1.1


@dataclass(frozen=True, slots=True)
class ExecutionNode:
    """One node; in a file they stand in the order in which they ended."""

    id: int
    parent: int
    name: str
    schema: str  # "aten::mm(Tensor self, Tensor mat2) -> Tensor"; "" if it is no operator
    record_function: int
    inputs: tuple[ExecutionArgument, ...]
    outputs: tuple[ExecutionArgument, ...]
    attributes: Mapping[str, object]  # those that schemas since 1.0.2 list

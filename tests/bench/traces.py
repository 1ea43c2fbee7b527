"""Execution traces written by hand: a few operators, as PyTorch would record them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
RELU = "aten::relu(Tensor self) -> Tensor"
LINEAR = "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"
TRANSPOSE = "aten::t(Tensor(a) self) -> Tensor(a)"
ADD_ = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"


@dataclass(frozen=True)
class Seen:
    """A tensor of a node."""

    tensor: int
    storage: int
    shape: tuple[int, ...] = (4, 4)
    strides: tuple[int, ...] = (4, 1)
    dtype: str = "float"
    device: str = "cpu"
    offset: int = 0


@dataclass
class Written:
    """A trace under way; nodes end in the order in which they are added."""

    nodes: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        node: int,
        schema: str,
        reads: Sequence[object] = (),
        *,
        makes: Sequence[Seen] = (),
        parent: int = 2,
        name: str = "",
    ) -> None:
        """One node; plain numbers among `reads` stand as they are."""
        name = name or schema.partition("(")[0].partition(".")[0]
        attributes = {"rf_id": node, "op_schema": schema, "tid": 1}
        self.nodes.append(
            {
                "id": node,
                "name": name,
                "ctrl_deps": parent,
                "inputs": _side(reads),
                "outputs": _side(makes),
                "attrs": [
                    {"name": key, "type": "", "value": value} for key, value in attributes.items()
                ],
            }
        )

    def write(self, folder: Path) -> Path:
        """The trace as a file, with the process and its thread."""
        self.add(2, "", name="[pytorch|profiler|execution_trace|thread]", parent=1)
        self.add(1, "", name="[pytorch|profiler|execution_trace|process]", parent=1)
        path = folder / "et.json"
        said = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "", "nodes": self.nodes}
        path.write_text(json.dumps(said), encoding="utf-8")
        return path


def _side(values: Sequence[object]) -> dict[str, list[object]]:
    return {
        "values": [_value(one) for one in values],
        "shapes": [_sizes(one, is_strides=False) for one in values],
        "types": [_type(one) for one in values],
        "strides": [_sizes(one, is_strides=True) for one in values],
    }


def _type(one: object) -> str:
    if isinstance(one, list):
        return f"GenericList[{','.join(_type(each) for each in one)}]"
    return f"Tensor({one.dtype})" if isinstance(one, Seen) else "Int"


def _sizes(one: object, *, is_strides: bool) -> list[object]:
    if isinstance(one, list):
        return [_sizes(each, is_strides=is_strides) for each in one]
    if not isinstance(one, Seen):
        return []
    return list(one.strides if is_strides else one.shape)


def _value(one: object) -> object:
    if isinstance(one, list):
        return [_value(each) for each in one]
    if not isinstance(one, Seen):
        return one
    size = 1
    for each in one.shape:
        size *= each
    return [one.tensor, one.storage, one.offset, size, 4, one.device]

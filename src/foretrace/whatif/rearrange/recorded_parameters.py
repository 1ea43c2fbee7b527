"""Shares of the parameters that layers, embedding and head hold, as the recording tells them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.graph import NO_NODE, NodeKind, Part
from foretrace.operators import OperatorClass, operator_class, parsed_shapes
from foretrace.whatif.rearrange.recorded_units import PieceInRole, RecordedUnit
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.scenario import Scenario

# Where the weight stands among an operator's inputs.
_WEIGHT = {"mm": 1, "matmul": 1, "addmm": 2, "_addmm_activation": 2, "linear": 1, "embedding": 0}
_OF_CONVOLUTION = 1  # of every forward one, whatever library runs it
_OF_MATRIX = 2
_WORKING = (NodeKind.KERNEL, NodeKind.OPERATOR)


@dataclass(frozen=True)
class Weights:
    """Parameters of one rank's share of each part; in numbers, or in layers where none show."""

    of_layer: dict[int, float]  # by recorded layer
    of_first: float  # what stands before the first layer
    of_last: float  # what stands behind the last one
    source: str  # what they were read from
    are_numbers: bool

    def of_stage(self, layers: Iterable[int], *, is_first: bool, is_last: bool) -> float:
        """Of a stage with these (recorded) layers."""
        return (
            sum(self.of_layer.get(layer, 0.0) for layer in layers)
            + (self.of_first if is_first else 0.0)
            + (self.of_last if is_last else 0.0)
        )


def weights_of(unit_index: UnitIndex, scenario: Scenario) -> Weights:
    """Weights of products, convolutions and lookups in the first recorded forward pass.

    Args:
        unit_index: what was recorded.
        scenario: of the recording; its vocabulary tells the table that no shape does.
    """
    layers: dict[int, float] = {}
    first = last = 0.0
    last_chunk = unit_index.num_chunks - 1
    for unit in _first_forward_units(unit_index):
        for slot in unit.slots:
            layers.setdefault(slot.layer, _numbers(unit_index, slot.entries))
        if unit.chunk == 0:
            first = max(first, _numbers(unit_index, unit.before, Part.EMBEDDING))
        if unit.chunk == last_chunk:
            last = max(last, _numbers(unit_index, unit.after, Part.HEAD, Part.LOSS))
        embeds = any(entry.piece.part is Part.EMBEDDING for entry in unit.before)
        if embeds and not first:
            first = _table(scenario)
    if layers and min(layers.values()) > 0:
        return Weights(layers, first, last, "the shapes of its products", are_numbers=True)
    counted = dict.fromkeys(unit_index.chunk_of_layer, 1.0)
    return Weights(counted, 0.0, 0.0, "its number of layers alone", are_numbers=False)


def _table(scenario: Scenario) -> float:
    """Numbers of a rank's share of the table of words; 0 if nothing tells."""
    rows, hidden = scenario.sizes.vocabulary, scenario.sizes.hidden
    return rows * hidden / scenario.plan.tensor if rows and hidden else 0.0


def _first_forward_units(unit_index: UnitIndex) -> list[RecordedUnit]:
    """Of each chunk the first forward unit of the first rank that has it."""
    found: dict[int, RecordedUnit] = {}
    for _, run in sorted(unit_index.runs.items()):
        for unit in run.steps[0].units if run.steps else ():
            if unit.is_forward:
                found.setdefault(unit.chunk, unit)
    return list(found.values())


def _numbers(unit_index: UnitIndex, entries: Sequence[PieceInRole], *parts: Part) -> float:
    graph = unit_index.program.graph
    total, before = 0, (NO_NODE, NO_NODE)
    for entry in entries:
        if parts and entry.piece.part not in parts:
            continue
        nodes = entry.piece.nodes[graph.is_of(*_WORKING)[entry.piece.nodes]]
        operators = graph.operator[nodes]
        is_named = (graph.kind[nodes] == NodeKind.OPERATOR) & (operators < 0)
        operators = np.where(is_named, graph.name[nodes], operators)
        signatures = graph.operator_signature[nodes]
        for operator, signature in zip(operators.tolist(), signatures.tolist(), strict=True):
            if (operator, signature) != before and min(operator, signature) >= 0:
                total += _weight(graph.names[operator], graph.names[signature])
            before = operator, signature
    return float(total)


def _weight(operator: str, signature: str) -> int:
    base = operator.rsplit("::", 1)[-1].split(".", 1)[0]
    is_convolution = operator_class("", operator) is OperatorClass.CONVOLUTION
    place = _OF_CONVOLUTION if is_convolution else _WEIGHT.get(base)
    shapes = parsed_shapes(signature) if place is not None else None
    tensor = shapes.tensor(place) if shapes is not None and place is not None else None
    if tensor is None or (len(tensor.shape) > _OF_MATRIX) != is_convolution:
        return 0
    return math.prod(tensor.shape) if len(tensor.shape) >= _OF_MATRIX else 0

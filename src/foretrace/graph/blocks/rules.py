"""What a user's rules say of points: by operators, annotations, modules and kernels around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from foretrace.base import Int64s, UInt8s, used_positions
from foretrace.graph.blocks.corrections import Corrections
from foretrace.graph.blocks.facts import by_name
from foretrace.graph.blocks.inheritance import inherited
from foretrace.graph.blocks.marks import MODULE, of_kind, outermost, span_of_points, spans_of
from foretrace.graph.blocks.points import WorkPoints
from foretrace.graph.nodes import NO_LAYER, Part
from foretrace.graph.operations import Operations
from foretrace.graph.operations.scopes import Scopes
from foretrace.trace import Category

_Says: TypeAlias = Callable[[str, str], int]  # subject and name to a part or phase; 0: nothing


@dataclass(frozen=True)
class RuledPoints:
    """Part and phase that rules give to points; UNKNOWN where they say nothing."""

    part: UInt8s  # uint8[points], Part
    phase: UInt8s  # uint8[points], Phase

    def with_parts(self, part: UInt8s, layer: Int64s) -> tuple[UInt8s, Int64s]:
        """Parts and layers of points, the ruled ones in place of what else was found.

        That something is a layer is said by its span, which numbers it, and not here.
        """
        is_ruled = (self.part != Part.UNKNOWN) & (self.part != Part.LAYER)
        ruled_part = np.where(is_ruled, self.part, part).astype(np.uint8)
        keeps_layer = ~is_ruled | (self.part == Part.BUCKET)
        return ruled_part, np.where(keeps_layer, layer, NO_LAYER)


def ruled_points(
    operations: Operations, points: WorkPoints, scopes: Scopes, corrections: Corrections
) -> RuledPoints:
    """What the rules say; of several kinds, kernels come first, then the innermost scope."""
    part, phase = np.zeros((2, len(points)), np.uint8)
    if corrections.rules:
        for target, says in ((part, corrections.part), (phase, corrections.phase)):
            _from_modules(operations, points, says, target)
            _from_scopes(operations, points, scopes, says, target)
            _from_kernels(operations, points, says, target)
    return RuledPoints(part, phase)


def _from_modules(operations: Operations, points: WorkPoints, says: _Says, target: UInt8s) -> None:
    def kind_of(text: str) -> int:
        return (int(says("module", text.removeprefix(MODULE))) or -1) if MODULE in text else -1

    spans = spans_of(operations, Category.PYTHON, kind_of)
    for value in np.unique(spans.kind).tolist():
        chosen = outermost(of_kind(spans, value))
        inside = span_of_points(chosen.rank, chosen.start_ns, chosen.end_ns, points) >= 0
        target[inside] = value


def _from_scopes(
    operations: Operations, points: WorkPoints, scopes: Scopes, says: _Says, target: UInt8s
) -> None:
    operator = by_name(operations.traces, scopes, lambda text: says("operator", text))
    mark = by_name(operations.traces, scopes, lambda text: says("annotation", text))
    own = np.where(scopes.is_operator, operator, mark)
    value = np.append(inherited(scopes.parent, own, 0, is_inner=True), 0)[points.scope]
    target[value != 0] = value[value != 0]


def _from_kernels(operations: Operations, points: WorkPoints, says: _Says, target: UInt8s) -> None:
    value = np.zeros(len(operations.names), np.uint8)
    for index in used_positions(points.name, len(operations.names)).tolist():
        value[index] = says("kernel", operations.names[index])
    own = value[points.name]
    target[own != 0] = own[own != 0]

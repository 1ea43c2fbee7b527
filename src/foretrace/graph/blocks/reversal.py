"""Layers of backward passes by order, where no number joins them to the forward pass.

Read backwards, a backward pass runs through the layers as the forward pass does. If as many
units repeat in it as the forward pass has layers, they are these layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s, UInt8s
from foretrace.graph.blocks.layers import ForwardLayers, first_of_tokens
from foretrace.graph.blocks.passes import NO_PASS, Passes
from foretrace.graph.blocks.points import WorkPoints
from foretrace.graph.blocks.repetition import repeating_units
from foretrace.graph.nodes import NO_LAYER, Part


@dataclass(frozen=True)
class ReversedLayers:
    """Part and layer of backward points."""

    part: UInt8s  # uint8[points]
    layer: Int64s  # int64[points], NO_LAYER where unknown


def layers_by_reversal(
    points: WorkPoints,
    passes: Passes,
    layers: ForwardLayers,
    is_left_out: Bools,
    names: Sequence[str],
) -> ReversedLayers:
    """Layers of all backward passes whose units are as many as their rank's layers."""
    part = np.zeros(len(points), np.uint8)
    layer = np.full(len(points), NO_LAYER, np.int64)
    backward = passes.backward
    for number in range(passes.num_backward):
        rows = np.flatnonzero((backward == number) & (backward != NO_PASS) & ~is_left_out)
        if not len(rows):
            continue
        first = first_of_tokens(points, rows)
        weight = np.add.reduceat(points.work_ns[rows] + 1, first)[::-1]
        tokens = points.token[rows[first]][::-1].astype(np.int32)
        units = repeating_units(tokens, weight, names)
        if len(units) != layers.num_layers[points.rank[rows[0]]]:
            continue
        ends = np.append(first[1:], len(rows))
        last = len(first) - 1
        for index, unit in enumerate(units):
            inside = rows[first[last - unit.last] : ends[last - unit.first]]
            layer[inside], part[inside] = index, Part.LAYER
        every = np.flatnonzero(backward == number)
        layer[every] = _continued(layer[every])
    return ReversedLayers(part, layer)


def _continued(layer: Int64s) -> Int64s:
    """Layers where what is unknown after a layer goes on with it: its gradients' buckets."""
    rows = np.arange(len(layer))
    before = np.maximum.accumulate(np.where(layer != NO_LAYER, rows, -1))
    return np.where(before >= 0, layer[before], NO_LAYER)

"""How many times as many parameters, and numbers of activations, each part has after an edit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from foretrace.base import Float64s, Int32s, UInt8s
from foretrace.graph import NO_LAYER, ExecutionGraph, Part, Phase
from foretrace.whatif.resize.named import HIDDEN, TOKENS, VOCABULARY, Dimensions
from foretrace.whatif.resize.products import WEIGHTS
from foretrace.whatif.resize.recorded_blocks import RecordedBlocks
from foretrace.whatif.resize.signatures import NO_WEIGHT, Signatures
from foretrace.workload import Turn

_Pair = tuple[Fraction, Fraction]  # numbers before and after


@dataclass(frozen=True)
class Amounts:
    """Ratios, new over recorded."""

    activations: float  # numbers between layers: tokens times hidden size
    tokens: float
    layer: float  # parameters of one layer
    table: float  # of the vocabulary's table
    table_size: int  # of that table on one rank as recorded; 0 unknown
    of_rank: dict[int, float]  # parameters of each recorded rank

    def factors(self, part: UInt8s, rank: Int32s) -> Float64s:
        """How many times as much nodes of these parts and ranks work on, float64[nodes]."""
        found = np.ones(len(part))
        found[np.isin(part, _OF_ACTIVATIONS)] = self.activations
        found[part == Part.DATA] = self.tokens
        is_of_parameters = np.isin(part, _OF_PARAMETERS)
        for one, ratio in self.of_rank.items():
            found[is_of_parameters & (rank == one)] = ratio
        return found


# Where every size stays.
UNCHANGED = Amounts(activations=1.0, tokens=1.0, layer=1.0, table=1.0, table_size=0, of_rank={})
_OF_ACTIVATIONS = (Part.UNKNOWN, Part.LAYER, Part.EMBEDDING, Part.HEAD, Part.LOSS, Part.TRANSFER)
_OF_PARAMETERS = (Part.OPTIMIZER, Part.BUCKET)


def amounts_of(blocks: RecordedBlocks, signatures: Signatures, known: Dimensions) -> Amounts:
    """Parameters by the weights that were multiplied; without any, none is known to change."""
    table = _sizes(known, HIDDEN, VOCABULARY)
    layer = _layer(blocks, signatures, known)
    return Amounts(
        activations=_ratio(known, TOKENS, HIDDEN),
        tokens=_ratio(known, TOKENS),
        layer=float(layer[1] / layer[0]) if layer[0] else 1.0,
        table=float(table[1] / table[0]) if table[0] else 1.0,
        table_size=int(table[0]),
        of_rank=_of_ranks(blocks.graph, layer, table),
    )


def _sizes(known: Dimensions, *names: str) -> _Pair:
    before, after = Fraction(1), Fraction(1)
    for name in names:
        one = known.by_name.get(name)
        if one is None:
            return Fraction(0), Fraction(0)
        before, after = before * one.before, after * one.after
    return before, after


def _ratio(known: Dimensions, *names: str) -> float:
    """Of a product of sizes; those that are not known are taken to stay."""
    ratio = Fraction(1)
    for name in names:
        one = known.by_name.get(name)
        if one is not None:
            ratio *= one.after / one.before
    return float(ratio)


def _layer(blocks: RecordedBlocks, signatures: Signatures, known: Dimensions) -> _Pair:
    """Numbers in the weights that one layer's forward pass multiplies by."""
    for one in blocks.of(Part.LAYER):
        example = blocks.example[one]
        if blocks.place_of(example)[1] is Phase.BACKWARD:
            continue
        nodes = blocks.nodes_of(example)
        is_product = (signatures.weight[nodes] != NO_WEIGHT) & (
            signatures.turn[nodes] == Turn.FORWARD
        )
        counts = Counter(signatures.weight[nodes[is_product]].tolist())
        if not counts:
            continue
        before, after = Fraction(0), Fraction(0)
        for weight, count in counts.items():
            old, new = _sizes(known, WEIGHTS[weight].inputs, WEIGHTS[weight].outputs)
            before, after = before + count * old, after + count * new
        return before, after
    return Fraction(0), Fraction(0)


def _of_ranks(graph: ExecutionGraph, layer: _Pair, table: _Pair) -> dict[int, float]:
    of_rank, of_layer = graph.rank.astype(np.int64) + 1, graph.layer.astype(np.int64) + 1
    size = (int(of_rank.max(initial=0)) + 1, int(of_layer.max(initial=0)) + 1)
    has_layer = np.zeros(size, np.bool_)
    has_layer[of_rank, of_layer] = True
    layers = np.count_nonzero(has_layer[:, NO_LAYER + 2 :], axis=1)
    tables = np.zeros(size[0], np.int64)
    for part in (Part.EMBEDDING, Part.HEAD):
        tables[np.unique(of_rank[graph.part == part])] += 1
    found: dict[int, float] = {}
    for rank in graph.ranks:
        own, shared = int(layers[rank + 1]), int(tables[rank + 1])
        before = own * layer[0] + shared * table[0]
        after = own * layer[1] + shared * table[1]
        found[rank] = float(after / before) if before else 1.0
    return found

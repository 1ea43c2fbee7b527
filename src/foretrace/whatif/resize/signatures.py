"""Every recorded operator's signature after an edit, node by node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from foretrace.base import Int8s, Int32s, UInt8s
from foretrace.graph import Part, Phase
from foretrace.operators import OperatorClass, operator_class
from foretrace.whatif.resize.named import Dimensions
from foretrace.whatif.resize.products import WEIGHTS
from foretrace.whatif.resize.recorded_blocks import RecordedBlocks
from foretrace.whatif.resize.rewriting import (
    OF_PARAMETERS,
    Context,
    RecordedOperator,
    Rewritten,
    rewritten_block,
)

NO_WEIGHT = -1


class Shaped(IntEnum):
    """What is known of a node's shapes after the edit."""

    NOTHING = 0  # no operator's work: host time, collectives, marks
    SAME = 1
    CHANGED = 2
    UNSURE = 3  # changed; another reading of its dimensions would have changed them otherwise
    UNKNOWN = 4  # it has no shapes, or dimensions without a name


@dataclass(frozen=True)
class Signatures:
    """Columns over a recording's nodes."""

    shaped: UInt8s  # uint8[nodes], Shaped
    signature: Int32s  # int32[nodes], position in `texts`, after the edit; -1: none
    texts: tuple[str, ...]  # the graph's names, and what is new
    weight: Int8s  # int8[nodes], position in WEIGHTS of products; NO_WEIGHT
    turn: Int8s  # int8[nodes], Turn of products


def signatures_after(
    blocks: RecordedBlocks, known: Dimensions, tables: tuple[int, ...] = ()
) -> Signatures:
    """Signatures of all operators at other sizes; each distinct block is read once.

    Raises:
        ScenarioError: if ranks cannot divide a size evenly.
    """
    graph = blocks.graph
    shaped = np.zeros(graph.num_nodes, np.uint8)
    signature = graph.operator_signature.copy()
    weight = np.full(graph.num_nodes, NO_WEIGHT, np.int8)
    turn = np.zeros(graph.num_nodes, np.int8)
    texts = list(graph.names)
    place = {text: at for at, text in enumerate(texts)}
    number = {one.name: at for at, one in enumerate(WEIGHTS)}
    first = Context(Part.UNKNOWN, Phase.UNKNOWN, known, tables)
    seen: set[tuple[str, str]] = set()
    for one in _parameters_last(blocks):
        part, phase = blocks.place_of(blocks.example[one])
        ran = blocks.ran(blocks.example[one])
        context = replace(first, part=part, phase=phase)
        if part in OF_PARAMETERS and seen:
            context = replace(context, weights=tuple(sorted(seen)))
        found = rewritten_block(ran, context)
        roles = [each.role for each in found if each.role is not None]
        seen |= {(role.weight.outputs, role.weight.inputs) for role in roles}
        nodes = _nodes_of_alike(blocks, one)
        shaped[nodes] = [_state(*pair) for pair in zip(ran, found, strict=True)]
        positions = []
        for each in found:
            if each.signature and each.signature not in place:
                place[each.signature] = len(texts)
                texts.append(each.signature)
            positions.append(place[each.signature] if each.signature else -1)
        is_new = np.isin(shaped[nodes], (Shaped.CHANGED, Shaped.UNSURE))
        signature[nodes] = np.where(is_new, positions, signature[nodes])
        weight[nodes] = [
            NO_WEIGHT if each.role is None else number[each.role.weight.name] for each in found
        ]
        turn[nodes] = [0 if each.role is None else each.role.turn for each in found]
    return Signatures(shaped, signature, tuple(texts), weight, turn)


def _parameters_last(blocks: RecordedBlocks) -> list[int]:
    """Distinct blocks; those of parameters behind those that show which weights there are."""
    size = len(blocks.example)
    return sorted(
        range(size), key=lambda one: blocks.place_of(blocks.example[one])[0] in OF_PARAMETERS
    )


def _nodes_of_alike(blocks: RecordedBlocks, one: int) -> Int32s:
    """Nodes of all blocks like one, int[blocks, operators]."""
    alike = np.flatnonzero(blocks.distinct == one)
    length = blocks.first[alike[0] + 1] - blocks.first[alike[0]]
    rows = blocks.first[alike][:, None] + np.arange(length)[None, :]
    return blocks.nodes[rows].astype(np.int32)


def _state(ran: RecordedOperator, found: Rewritten) -> Shaped:
    if found.is_known and found.signature == ran.signature:
        return Shaped.UNSURE if found.is_ambiguous else Shaped.SAME
    if not found.is_known:
        return Shaped.SAME if _moves_nothing(ran) else Shaped.UNKNOWN
    return Shaped.UNSURE if found.is_ambiguous else Shaped.CHANGED


def _moves_nothing(ran: RecordedOperator) -> bool:
    """Whether an operator on the host only makes another view of a tensor, or reads one number."""
    is_itself = ran.kernel == ran.operator
    return (
        is_itself and operator_class(ran.operator) is OperatorClass.OTHER and "::" in ran.operator
    )

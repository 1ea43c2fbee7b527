"""Layers computed again before their backward pass, or no longer.

What is computed again is the recorded forward pass of the same layer and microbatch, by the
thread that runs the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph import NO_LANE, EdgeKind, NodeKind, Part, Phase
from foretrace.whatif.rearrange.new_units import NewSlot, NewUnit, PlacedPiece
from foretrace.whatif.rearrange.recorded_units import PieceRole, thread_of
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.recorded.program import RecordedPiece

_ACROSS = (EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED, EdgeKind.THREAD)


@dataclass(frozen=True)
class Recomputing:
    """Adds recomputed layers to backward passes, or takes them out."""

    unit_index: UnitIndex
    awaits_transfer: Bools  # bool[nodes], work that waits for what another stage sent

    @staticmethod
    def of(unit_index: UnitIndex) -> Recomputing:
        """Of a recording."""
        graph = unit_index.program.graph
        target = graph.edge_target
        source = graph.predecessor
        is_transfer = (graph.kind[source] == NodeKind.FINISH) & (
            graph.part[source] == Part.TRANSFER
        )
        found = np.zeros(graph.num_nodes, bool)
        found[target[is_transfer & np.isin(graph.edge_kind, _ACROSS)]] = True
        return Recomputing(unit_index, found)

    def without(self, unit: NewUnit) -> NewUnit:
        """A backward pass that keeps what the forward pass made."""

        def kept(slot: NewSlot) -> NewSlot:
            again = [each for each in slot.work if each.placed.phase is Phase.RECOMPUTE]
            rest = [each for each in slot.work if each.placed.phase is not Phase.RECOMPUTE]
            return replace(slot, work=(*self._waits(again), *rest))

        return replace(unit, slots=tuple(kept(slot) for slot in unit.slots))

    def with_forward(self, unit: NewUnit, forward: NewUnit) -> NewUnit:
        """A backward pass that computes each layer again before it.

        Args:
            unit: the backward pass.
            forward: the forward pass of the same chunk and microbatch.
        """
        slot_of = {slot.layer: slot for slot in forward.slots}
        slots = []
        for slot in unit.slots:
            graph = self.unit_index.program.graph
            pieces = (each.placed.piece for each in slot.work)
            lanes = (
                thread_of(graph, one.nodes) for one in pieces if isinstance(one, RecordedPiece)
            )
            lane = next((one for one in lanes if one != NO_LANE), NO_LANE)
            again = [
                replace(each, placed=replace(each.placed, phase=Phase.RECOMPUTE, thread=lane))
                for each in slot_of[slot.layer].work
                if each.role is PieceRole.LAYER
            ]
            slots.append(replace(slot, work=(*self._waits(slot.work), *again, *slot.work)))
        return replace(unit, slots=tuple(slots))

    def _waits(self, works: Sequence[PlacedPiece]) -> list[PlacedPiece]:
        """What of some work waits for another stage, without the work itself."""
        found = []
        for each in works:
            piece = each.placed.piece
            if not isinstance(piece, RecordedPiece):
                continue
            nodes: Int64s = piece.nodes[self.awaits_transfer[piece.nodes]]
            if len(nodes):
                placed = replace(each.placed, piece=replace(piece, nodes=nodes), scale=0.0)
                found.append(PlacedPiece(placed, PieceRole.OTHER))
        return found

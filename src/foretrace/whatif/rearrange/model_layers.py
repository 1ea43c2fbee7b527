"""Layers made from a model, where ranks divide them, or multiply, as no recorded ones do.

Context and expert parallel ranks work on other shapes, and exchange within a layer what was never
recorded; products in another number format are other kernels, with casts beside them. So each
layer's recorded work gives way to the operators and exchanges of the model's block under the new
plan. What the model's costs miss of this job is carried over: made operators take as many times
longer as the recorded layers took than the model's under the recorded plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from foretrace.base import NotShownError
from foretrace.cost import CostModel
from foretrace.graph import DEVICE_KINDS, NodeKind, Phase
from foretrace.whatif.rearrange.new_exchanges import Maker
from foretrace.whatif.rearrange.new_units import NewSlot, NewUnit, PlacedPiece
from foretrace.whatif.rearrange.recorded_units import PieceRole
from foretrace.whatif.rearrange.structure import casts_layers, divides_layers
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.recorded.program import MadeExchange, MadeOperator, MadeWait, RecordedPiece
from foretrace.whatif.resize.models import Models, filled, models_of, requests_of
from foretrace.whatif.resize.of_model import model_with
from foretrace.whatif.scenario import Scenario
from foretrace.workload import (
    Block,
    Exchange,
    Item,
    ModelBlocks,
    Operator,
    Pass,
    Transformer,
    block_of,
    blocks_of_model,
    check_plan,
    peak_flops_per_ns,
)

_HOST_WORK = (NodeKind.HOST_SEGMENT, NodeKind.CALL, NodeKind.LAUNCH)


@dataclass(frozen=True)
class ModelLayers:
    """Puts a model's layers in the place of recorded ones."""

    unit_index: UnitIndex
    maker: Maker
    recorded: ModelBlocks  # under the plan that ran
    edited: ModelBlocks
    models: Models
    are_all: bool  # take the place of all layers, not of halves of backward passes alone
    _factors: dict[bool, tuple[float, int]] = field(default_factory=dict)

    @staticmethod
    def of(
        maker: Maker,
        before: Scenario,
        after: Scenario,
        model: Transformer | None,
        costs: CostModel | None,
    ) -> ModelLayers:
        """Layers of a stated model with the recorded sizes.

        Raises:
            NotShownError: without a model.
            WorkloadError: if the plan is not legal for it.
            MachineError: if the chip cannot multiply in the plan's number formats.
        """
        if model is None:
            raise NotShownError(
                "layers would work on shapes and exchange what was never recorded: state the model "
                "that was trained, whose layers can take their place"
            )
        unit_index = maker.unit_index
        old, new = model_with(model, before.sizes), model_with(model, after.sizes)
        check_plan(after.plan, new)
        machine = after.machine or before.machine
        if machine is not None:
            peak_flops_per_ns(after.plan, machine.chip)  # refuses formats that it has not
        return ModelLayers(
            unit_index,
            maker,
            blocks_of_model(old, before.plan),
            blocks_of_model(new, after.plan),
            models_of(unit_index.program, before, after, costs=costs, has_new_shapes=True),
            are_all=divides_layers(before, after) or casts_layers(before, after),
        )

    def through(self, unit: NewUnit) -> NewUnit:
        """A unit whose layers are the model's."""
        slots = tuple(self._slot(unit, slot) for slot in unit.slots)
        return replace(unit, slots=slots)

    def _slot(self, unit: NewUnit, slot: NewSlot) -> NewSlot:
        layers = self.edited.layers
        block = block_of(layers[min(slot.layer, len(layers) - 1)], unit.kind)
        kept = [each for each in slot.work if each.role is not PieceRole.LAYER]
        like = next((each.placed for each in slot.work if each.role is PieceRole.LAYER), None)
        if like is None:
            return slot
        factor, host_ns = self._calibrated(unit, slot)
        made = [
            PlacedPiece(
                replace(like, piece=piece, phase=phase, scale=factor, scale_bytes=1.0),
                PieceRole.LAYER,
            )
            for piece, phase in self._pieces(block, host_ns)
        ]
        return replace(slot, work=(*made, *kept))

    def _pieces(
        self, block: Block, host_ns: int
    ) -> Iterator[tuple[MadeExchange | MadeOperator | MadeWait, Phase]]:
        """A block's items in order, with waits for exchanges that are needed later on."""
        items = block.items
        awaited = _awaited(items)
        waits: dict[int, list[Exchange]] = {}
        for at, item in enumerate(items):
            for one in waits.pop(at, ()):
                yield MadeWait(group=one.group), item.phase
            if isinstance(item, Operator):
                yield (
                    MadeOperator(operator=item.name, signature=item.signature, host_ns=host_ns),
                    item.phase,
                )
                continue
            by = awaited[at]
            if by > at + 1:
                waits.setdefault(by, []).append(item)
            made = self.maker.made(item, is_awaited=by <= at + 1)
            yield replace(made, host_ns=host_ns), item.phase
        for late in waits.values():
            for one in late:
                yield MadeWait(group=one.group), items[-1].phase

    def _calibrated(self, unit: NewUnit, slot: NewSlot) -> tuple[float, int]:
        """Recorded over modelled work of a layer in this pass, and host time of an item."""
        if unit.is_forward not in self._factors:
            self._factors[unit.is_forward] = self._measured(unit, slot)
        return self._factors[unit.is_forward]

    def _measured(self, unit: NewUnit, slot: NewSlot) -> tuple[float, int]:
        graph = self.unit_index.program.graph
        pieces = [each.placed.piece for each in slot.work if each.role is PieceRole.LAYER]
        nodes = np.concatenate(
            [piece.nodes for piece in pieces if isinstance(piece, RecordedPiece)]
        )
        kind = graph.kind[nodes]
        is_host = np.isin(kind, _HOST_WORK)
        took_ns = graph.measured_ns[nodes]
        works = DEVICE_KINDS if graph.has_device else (*_HOST_WORK, NodeKind.OPERATOR)
        recorded_ns = int(took_ns[np.isin(kind, works)].sum())
        layers = self.recorded.layers
        whole = Pass.FORWARD if unit.is_forward else Pass.BACKWARD
        block = block_of(layers[min(slot.source, len(layers) - 1)], whole)
        modelled_ns = self._modelled_ns([one for one in block.items if isinstance(one, Operator)])
        # A layer of as many operators takes the host as long as the recorded one did.
        host_ns = int(took_ns[is_host].sum()) // max(len(block.items), 1)
        host_ns = host_ns if graph.has_device else self.maker.host_ns
        return (recorded_ns / modelled_ns if modelled_ns and recorded_ns else 1.0), host_ns

    def _modelled_ns(self, operators: Sequence[Operator]) -> float:
        texts = tuple(
            dict.fromkeys(text for one in operators for text in (one.name, one.signature))
        )
        place = {text: at for at, text in enumerate(texts)}
        operator, signature = np.array(
            [[place[one.name], place[one.signature]] for one in operators], np.int32
        ).T.copy()
        requests = requests_of(operator, signature, operator, texts)
        own = self.models.recorded.kernel_costs(requests)
        return float(filled(self.models.before.kernel_costs(requests), own).duration_ns.sum())


def _awaited(items: Sequence[Item]) -> dict[int, int]:
    """By exchange the item that waits for it first; behind the last: what follows does."""
    found: dict[int, int] = {}
    for at, item in enumerate(items):
        for before in item.after:
            if isinstance(items[before], Exchange):
                found.setdefault(before, at)
    return {
        at: found.get(at, len(items)) for at, item in enumerate(items) if isinstance(item, Exchange)
    }

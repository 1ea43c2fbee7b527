"""Exchanges of tensor-parallel ranks in a recording that has none, or has others.

What is exchanged beside which products is `workload.exchanges`' account of a plan; here the
products are found among the recorded operators. Where a part shows no product of the wanted
kind (an embedding, a head of unknown vocabulary), all of it stands for that product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from foretrace.base import NotShownError
from foretrace.graph import NodeKind, Part, Phase
from foretrace.whatif.rearrange.new_exchanges import Maker, of_layers_and_ends
from foretrace.whatif.rearrange.new_units import NewSlot, NewUnit, PlacedPiece, in_place_of
from foretrace.whatif.rearrange.recorded_units import PieceRole, begin_of_call, calls_work
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.recorded.program import MadeExchange, MadeWait, Placed, RecordedPiece
from foretrace.whatif.resize.named import dimensions
from foretrace.whatif.resize.read import read_sizes
from foretrace.whatif.resize.recorded_blocks import is_on_host, operator_nodes
from foretrace.whatif.resize.rewriting import Context, RecordedOperator, Rewritten, rewritten_block
from foretrace.whatif.scenario import Scenario
from foretrace.workload import (
    Anchored,
    Around,
    Group,
    Plan,
    Turn,
    around_columns,
    around_lookup,
    around_rows,
    sums_of_loss,
)

# Weights by how they are divided: attention's and the feed-forward part's.
_OF_LAYER: tuple[tuple[tuple[str, ...], Around], ...] = (
    (("qkv", "query", "key or value", "keys and values"), around_columns),
    (("output",), around_rows),
    (("up", "gate and up"), around_columns),
    (("down",), around_rows),
)
_OF_EMBEDDING: tuple[tuple[tuple[str, ...], Around], ...] = (((), around_lookup),)
_OF_HEAD: tuple[tuple[tuple[str, ...], Around], ...] = ((("head",), around_columns),)
_PLAIN_LOSS = "nll_loss"  # in names of operators and kernels of a loss that is not one kernel


@dataclass(frozen=True)
class _Cut:
    """Something made, and the node it stands behind, or before."""

    node: int
    is_behind: bool
    made: MadeExchange | MadeWait


@dataclass(frozen=True)
class TensorExchanges:
    """Adds exchanges to layers that were recorded without any, or lost theirs."""

    unit_index: UnitIndex
    before: Scenario
    after: Scenario
    maker: Maker
    divides_vocabulary: bool = False  # so that embedding, head and loss exchange too
    _context: dict[tuple[Part, Phase], Context] = field(default_factory=dict)

    def through(self, unit: NewUnit) -> NewUnit:
        """A unit whose layers exchange what tensor-parallel ranks have to.

        Raises:
            NotShownError: if the shapes do not tell which product is which.
        """
        unit = replace(unit, slots=tuple(self._slot(slot) for slot in unit.slots))
        if not self.divides_vocabulary:
            return unit
        before, after = self._ends(unit.before, unit), self._ends(unit.after, unit)
        after = self._with_loss(after) if unit.is_forward else after
        return replace(unit, before=before, after=after)

    def _ends(self, works: tuple[PlacedPiece, ...], unit: NewUnit) -> tuple[PlacedPiece, ...]:
        """Work at an end of the model, with what its divided vocabulary needs."""
        phase = unit.phase
        cuts: list[_Cut] = []
        for part, divided in ((Part.EMBEDDING, _OF_EMBEDDING), (Part.HEAD, _OF_HEAD)):
            own = [each for each in works if each.placed.part is part]
            cuts += self._cuts(own, (part, phase), divided) if own else ()
        return tuple(_with_cuts(works, cuts, self._begin_of))

    def _with_loss(self, after: tuple[PlacedPiece, ...]) -> tuple[PlacedPiece, ...]:
        """What stands behind the layers, with what the loss sums over divided logits."""
        parts = [each.placed.part for each in after]
        if not {Part.LOSS, Part.HEAD} & set(parts) or self.before.plan.tensor > 1:
            return after  # of another stage; or it sums already
        last_head = len(parts) - 1 - parts[::-1].index(Part.HEAD) if Part.HEAD in parts else -1
        place = parts.index(Part.LOSS) if Part.LOSS in parts else last_head + 1
        like = after[place - 1 if place else place].placed
        made = [
            PlacedPiece(in_place_of(like, self.maker.made(one)), PieceRole.OTHER)
            for one in sums_of_loss(self._plan, self.maker.tokens)
        ]
        return (*after[:place], *made, *after[place:])

    @cached_property
    def _plan(self) -> Plan:
        """The new job's, with what of its software the recording shows."""
        plan, graph = self.after.plan, self.unit_index.program.graph
        if is_on_host(graph):  # no stream runs beside another
            plan = replace(plan, overlap=replace(plan.overlap, tensor_backward=False))
        if any(_PLAIN_LOSS in name for name in graph.names):
            plan = replace(plan, implementation=replace(plan.implementation, fuses_loss=False))
        return plan

    def _slot(self, slot: NewSlot) -> NewSlot:
        found: list[PlacedPiece] = []
        for phase, works in _by_phase(slot.work):
            cuts: list[_Cut] = []
            if phase is not None:
                cuts += self._cuts(works, (Part.LAYER, phase), _OF_LAYER)
            found += _with_cuts(works, cuts, self._begin_of)
        return replace(slot, work=tuple(found))

    def _cuts(
        self,
        works: Sequence[PlacedPiece],
        place: tuple[Part, Phase],
        divided: Sequence[tuple[tuple[str, ...], Around]],
    ) -> Iterator[_Cut]:
        nodes = self._operators(works)
        roles = [each.role for each in self._read(nodes, place)]
        is_backward = place[1] is Phase.BACKWARD
        for weights, exchanged in divided:
            around = exchanged(self._plan, " or ".join(weights), self.maker.numbers)
            needed = [one for one in around if (one.turn is not Turn.FORWARD) == is_backward]
            products = [
                (node, role.turn)
                for node, role in zip(nodes, roles, strict=True)
                if role is not None
                and role.weight.name in weights
                and (role.turn is not Turn.FORWARD) == is_backward
            ]
            if not {one.turn for one in needed} <= {turn for _, turn in products}:
                if place[0] is Part.LAYER:
                    self._refuse(works, weights, place[1])
                turn = Turn.INPUT_GRADIENT if is_backward else Turn.FORWARD
                products = [(node, turn) for node in nodes]
            yield from _around(products, needed, self.maker)

    def _operators(self, works: Sequence[PlacedPiece]) -> list[int]:
        """Nodes that work, in order."""
        pieces = [each.placed.piece for each in works]
        nodes = [each.nodes for each in pieces if isinstance(each, RecordedPiece)]
        together = np.concatenate(nodes) if nodes else np.zeros(0, np.int64)
        working = operator_nodes(self.unit_index.program.graph)
        found: list[int] = together[np.isin(together, working)].tolist()
        return found

    def _begin_of(self, piece: RecordedPiece, place: int) -> int:
        """Where, in a piece, the host's way to the work at a place begins."""
        kind = self.unit_index.program.graph.kind[piece.nodes]
        calls = np.flatnonzero(calls_work(kind[: place + 1]))
        return begin_of_call(kind, int(calls[-1])) if len(calls) > 1 else 0

    def _read(self, nodes: Sequence[int], place: tuple[Part, Phase]) -> list[Rewritten]:
        graph = self.unit_index.program.graph
        names = (*graph.names, "")  # -1: none
        block = [
            RecordedOperator(
                names[graph.operator[node]]
                or (names[graph.name[node]] if graph.kind[node] == NodeKind.OPERATOR else ""),
                names[graph.operator_signature[node]],
                names[graph.name[node]],
            )
            for node in nodes
        ]
        return rewritten_block(block, self._context_of(place))

    def _context_of(self, place: tuple[Part, Phase]) -> Context:
        if place not in self._context:
            read = read_sizes(self.unit_index.program, stated=self.before.sizes)
            # Roles alone are asked for: every size stays.
            same = (self.before.sizes, self.before.plan)
            known = dimensions(same, same, read.divided)
            self._context[place] = Context(*place, known)
        return self._context[place]

    def _refuse(self, works: Sequence[PlacedPiece], weights: Sequence[str], phase: Phase) -> None:
        layer = works[0].placed.layer
        raise NotShownError(
            f"tp {self.after.plan.tensor}: the {phase.name.lower()} pass of layer {layer} shows no "
            f"product of weights {' or '.join(weights)}, behind or before which ranks would "
            "exchange: record with shapes, or state the sizes (hidden, heads, feed_forward)"
        )


def _around(
    products: Sequence[tuple[int, Turn]], around: Sequence[Anchored], maker: Maker
) -> Iterator[_Cut]:
    """Exchanges before and behind products, and what waits for them further on.

    Gradients of inputs and of weights may take either order. Places are those between products:
    0 is before the first.
    """
    made: list[_Cut] = []
    for one in around:
        own = [at for at, (_, turn) in enumerate(products) if turn is one.turn]
        place = own[-1] + 1
        if not one.is_behind:
            place = next(at for at, (_, turn) in enumerate(products) if turn >= one.turn)
        awaiting = [at for at, (_, turn) in enumerate(products) if turn >= (one.awaited_by or 0)]
        if one.exchange.is_weight_gradient:
            place = min([place, *awaiting])
        until = next((at for at in awaiting if at >= place), place)
        if one.awaited_by is None and one.turn is not Turn.FORWARD:
            until = len(products)
        exchange = maker.made(one.exchange, is_awaited=until == place)
        made.append(_cut(products, place, exchange))
        if until > place:  # before anything else is issued there
            yield _cut(products, until, MadeWait(group=one.exchange.group))
    yield from made


def _cut(products: Sequence[tuple[int, Turn]], place: int, made: MadeExchange | MadeWait) -> _Cut:
    """Something behind the product before a place between them, or before the first."""
    return _Cut(products[max(place - 1, 0)][0], is_behind=place > 0, made=made)


def divides_vocabulary(unit_index: UnitIndex, before: Scenario, after: Scenario) -> bool:
    """Whether ranks divide the vocabulary: they did in the recording, or there is one to divide."""
    program = unit_index.program
    if before.plan.tensor > 1:
        is_sum = of_layers_and_ends(program, Group.TENSOR)
        graph = program.graph
        own = (graph.kind == NodeKind.ARRIVE) & (graph.part == Part.EMBEDDING)
        return bool(is_sum[graph.collective[own]].any())
    read = read_sizes(program, stated=before.sizes)
    return read.divided.vocabulary and after.sizes.vocabulary is not None


def _by_phase(works: Sequence[PlacedPiece]) -> Iterator[tuple[Phase | None, list[PlacedPiece]]]:
    """A layer's work in runs: recomputed, backward; `None` for what is no layer's."""
    run: list[PlacedPiece] = []
    phase: Phase | None = None
    for each in works:
        own = each.placed.phase if each.role is PieceRole.LAYER else phase
        if run and own is not phase:
            yield phase, run
            run = []
        phase = own
        run.append(each)
    if run:
        yield phase, run


def _with_cuts(
    works: Sequence[PlacedPiece],
    cuts: Sequence[_Cut],
    begin_of: Callable[[RecordedPiece, int], int],
) -> list[PlacedPiece]:
    """Work with what was made between its pieces' nodes."""
    found: list[PlacedPiece] = []
    for each in works:
        piece = each.placed.piece
        if not isinstance(piece, RecordedPiece):
            found.append(each)
            continue
        begin = 0
        places = {int(node): at for at, node in enumerate(piece.nodes.tolist())}
        own = sorted(
            (places[cut.node] + 1 if cut.is_behind else begin_of(piece, places[cut.node]), index)
            for index, cut in enumerate(cuts)
            if cut.node in places
        )
        for place, index in own:
            if place > begin:
                found.append(_sub(each, piece, begin, place))
            begin = place
            found.append(PlacedPiece(in_place_of(each.placed, cuts[index].made), PieceRole.OTHER))
        if begin < len(piece.nodes):
            found.append(_sub(each, piece, begin, len(piece.nodes)))
    return found


def _sub(each: PlacedPiece, piece: RecordedPiece, begin: int, end: int) -> PlacedPiece:
    if (begin, end) == (0, len(piece.nodes)):
        return each
    placed: Placed = replace(each.placed, piece=replace(piece, nodes=piece.nodes[begin:end]))
    return PlacedPiece(placed, each.role)

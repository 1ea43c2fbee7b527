"""Exchanges of tensor-parallel ranks in layers of a recording that has none, or has others.

Products of queries, keys, values and of the first feed-forward part are divided by columns, those
behind them by rows. What a product by rows puts out is summed over the ranks, and so is, in the
backward pass, the gradient of what a product by columns takes in. With sequence parallelism each
sum leaves every rank its part of the tokens, and before products by columns (backwards: by rows)
the parts are gathered.

Source:
    Shoeybi et al., "Megatron-LM", arXiv:1909.08053, figure 3; Korthikanti et al., "Reducing
    Activation Recomputation in Large Transformer Models", arXiv:2205.05198, figure 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from foretrace.base import NotShownError
from foretrace.graph import NodeKind, Part, Phase
from foretrace.whatif.rearrange.composition import NewSlot, NewUnit, Work
from foretrace.whatif.rearrange.dropped import of_layers_and_ends
from foretrace.whatif.rearrange.library import Library
from foretrace.whatif.rearrange.making import Maker
from foretrace.whatif.rearrange.units import Role
from foretrace.whatif.recorded.program import MadeExchange, MadeWait, Piece, Placed
from foretrace.whatif.resize.named import dimensions
from foretrace.whatif.resize.products import Turn
from foretrace.whatif.resize.read import read_sizes
from foretrace.whatif.resize.recorded_blocks import is_on_host, operator_nodes
from foretrace.whatif.resize.rewriting import Context, Ran, Rewritten, rewritten_block
from foretrace.whatif.scenario import Scenario
from foretrace.workload import Group

# Weights by how they are divided, attention's and the feed-forward part's.
_BY_COLUMNS = (("qkv", "query", "key or value", "keys and values"), ("up", "gate and up"))
_BY_ROWS = (("output",), ("down",))
_SUMS_OF_LOSS = 3  # largest logits, own logits, sums of exponentials


@dataclass(frozen=True)
class _Cut:
    """Something made, and the node it stands behind, or before."""

    node: int
    is_behind: bool
    made: MadeExchange | MadeWait


@dataclass(frozen=True)
class TensorExchanges:
    """Adds exchanges to layers that were recorded without any, or lost theirs."""

    library: Library
    before: Scenario
    after: Scenario
    maker: Maker
    divides_vocabulary: bool = False  # so that embedding, head and loss exchange too
    _context: dict[Phase, Context] = field(default_factory=dict)

    def through(self, unit: NewUnit) -> NewUnit:
        """A unit whose layers exchange what tensor-parallel ranks have to.

        Raises:
            NotShownError: if the shapes do not tell which product is which.
        """
        unit = replace(unit, slots=tuple(self._slot(slot) for slot in unit.slots))
        return self._with_ends(unit) if self.divides_vocabulary else unit

    def _with_ends(self, unit: NewUnit) -> NewUnit:
        """A unit whose embedding, head and loss exchange what their divided vocabulary needs.

        Rows that other ranks hold are summed behind the embedding, gradients of the head's input
        behind its backward products, and of each token the loss's largest logit, its sum and its
        own logit (megatron/core/tensor_parallel/cross_entropy.py).
        """
        plan = self.after.plan
        if not unit.is_forward:
            after = unit.after
            if plan.sequence_parallel:
                after = self._ahead(after, Part.EMBEDDING)
            return replace(unit, before=self._behind(unit.before, Part.HEAD), after=after)
        before = self._behind(unit.before, Part.EMBEDDING)
        if plan.sequence_parallel:
            unit = replace(unit, after=self._ahead(unit.after, Part.HEAD))
        tokens = plan.micro_batch * plan.sequence // plan.context
        ends = [at for at, each in enumerate(unit.after) if each.placed.part is Part.LOSS]
        heads = [at for at, each in enumerate(unit.after) if each.placed.part is Part.HEAD]
        if (not ends and not heads) or self.before.plan.tensor > 1:  # the loss sums already
            return replace(unit, before=before)
        place = ends[0] if ends else heads[-1] + 1
        like = unit.after[place - 1 if place else place]
        total = MadeExchange(
            collective="all_reduce",
            group=Group.TENSOR,
            num_bytes=4 * tokens,  # logits' sums are of 32 bits there
            dtype="fp32",
            host_ns=self.maker.host_ns,
        )
        sums = [self._like(like, total)] * _SUMS_OF_LOSS
        after = (*unit.after[:place], *sums, *unit.after[place:])
        return replace(unit, before=before, after=after)

    def _behind(self, works: tuple[Work, ...], part: Part) -> tuple[Work, ...]:
        """Work with a sum of activations behind the last of a part, if there is any."""
        own = [at for at, each in enumerate(works) if each.placed.part is part]
        if not own:
            return works
        made = self._like(works[own[-1]], self._sum(is_awaited=True))
        return (*works[: own[-1] + 1], made, *works[own[-1] + 1 :])

    def _ahead(self, works: tuple[Work, ...], part: Part) -> tuple[Work, ...]:
        """Work with all tokens gathered before the first of a part, if there is any."""
        own = [at for at, each in enumerate(works) if each.placed.part is part]
        if not own:
            return works
        made = self._like(works[own[0]], self._gather())
        return (*works[: own[0]], made, *works[own[0] :])

    def _like(self, each: Work, made: MadeExchange) -> Work:
        placed = replace(each.placed, piece=made, scale=1.0, scale_bytes=1.0)
        return Work(placed, Role.OTHER)

    def _slot(self, slot: NewSlot) -> NewSlot:
        found: list[Work] = []
        for phase, works in _by_phase(slot.work):
            cuts = list(self._cuts(works, phase)) if phase is not None else []
            found += _with_cuts(works, cuts, self._begin_of)
        return replace(slot, work=tuple(found))

    def _cuts(self, works: Sequence[Work], phase: Phase) -> Iterator[_Cut]:
        nodes = self._operators(works)
        read = self._read(nodes, phase)
        turns = [None if each.role is None else each.role.turn for each in read]
        names = ["" if each.role is None else each.role.weight.name for each in read]

        def places(weights: Sequence[str], *wanted: Turn) -> list[int]:
            return [
                at
                for at, (name, turn) in enumerate(zip(names, turns, strict=True))
                if name in weights and turn in wanted
            ]

        is_forward = phase is not Phase.BACKWARD
        summed = _BY_ROWS if is_forward else _BY_COLUMNS
        gathered = _BY_COLUMNS if is_forward else _BY_ROWS
        turn = Turn.FORWARD if is_forward else Turn.INPUT_GRADIENT
        for weights in summed:
            found = places(weights, turn)
            if not found:
                self._refuse(works, weights, phase)
            later = found if is_forward else places(weights, turn, Turn.WEIGHT_GRADIENT)
            is_beside = not is_forward and self._is_beside
            behind = nodes[(found if is_beside else later)[-1]]
            yield _Cut(behind, is_behind=True, made=self._sum(is_awaited=not is_beside))
            if is_beside:
                yield _Cut(nodes[later[-1]], is_behind=True, made=MadeWait(group=Group.TENSOR))
        if self.after.plan.sequence_parallel:
            for weights in gathered:
                found = places(weights, turn)
                if not found:
                    self._refuse(works, weights, phase)
                yield _Cut(nodes[found[0]], is_behind=False, made=self._gather())

    @property
    def _is_beside(self) -> bool:
        """Whether sums of gradients run beside the products for weights: on a device."""
        has_device = not is_on_host(self.library.program.graph)
        return self.after.plan.overlap.tensor_backward and has_device

    def _operators(self, works: Sequence[Work]) -> list[int]:
        """Nodes that work, in order."""
        pieces = [each.placed.piece for each in works]
        nodes = [each.nodes for each in pieces if isinstance(each, Piece)]
        together = np.concatenate(nodes) if nodes else np.zeros(0, np.int64)
        working = operator_nodes(self.library.program.graph)
        found: list[int] = together[np.isin(together, working)].tolist()
        return found

    def _begin_of(self, piece: Piece, place: int) -> int:
        """Where, in a piece, the host's way to the work at a place begins."""
        kind = self.library.program.graph.kind[piece.nodes]
        calls = np.flatnonzero(np.isin(kind[: place + 1], (NodeKind.LAUNCH, NodeKind.OPERATOR)))
        if len(calls) < 2:  # noqa: PLR2004 - its own, and one before
            return 0
        begin = int(calls[-2]) + 1
        while begin < place and kind[begin] >= NodeKind.KERNEL:
            begin += 1
        return begin

    def _read(self, nodes: Sequence[int], phase: Phase) -> list[Rewritten]:
        graph = self.library.program.graph
        names = (*graph.names, "")  # -1: none
        block = [
            Ran(
                names[graph.operator[node]]
                or (names[graph.name[node]] if graph.kind[node] == NodeKind.OPERATOR else ""),
                names[graph.operator_signature[node]],
                names[graph.name[node]],
            )
            for node in nodes
        ]
        return rewritten_block(block, self._context_of(phase))

    def _context_of(self, phase: Phase) -> Context:
        if phase not in self._context:
            read = read_sizes(self.library.program, stated=self.before.sizes)
            # Roles alone are asked for: every size stays.
            same = (self.before.sizes, self.before.plan)
            known = dimensions(same, same, read.divided)
            self._context[phase] = Context(Part.LAYER, phase, known)
        return self._context[phase]

    def _refuse(self, works: Sequence[Work], weights: Sequence[str], phase: Phase) -> None:
        layer = works[0].placed.layer
        raise NotShownError(
            f"tp {self.after.plan.tensor}: the {phase.name.lower()} pass of layer {layer} shows no "
            f"product of weights {' or '.join(weights)}, behind or before which ranks would "
            "exchange: record with shapes, or state the sizes (hidden, heads, feed_forward)"
        )

    def _sum(self, *, is_awaited: bool) -> MadeExchange:
        name = "reduce_scatter" if self.after.plan.sequence_parallel else "all_reduce"
        return self._made(name, is_awaited=is_awaited)

    def _gather(self) -> MadeExchange:
        return self._made("all_gather", is_awaited=True)

    def _made(self, name: str, *, is_awaited: bool) -> MadeExchange:
        return MadeExchange(
            collective=name,
            group=Group.TENSOR,
            num_bytes=self.maker.whole_activation_bytes,
            dtype=self.after.plan.precision.activations,
            host_ns=self.maker.host_ns,
            is_awaited=is_awaited,
        )


def divides_vocabulary(library: Library, before: Scenario, after: Scenario) -> bool:
    """Whether ranks divide the vocabulary: they did in the recording, or there is one to divide."""
    program = library.program
    if before.plan.tensor > 1:
        is_sum = of_layers_and_ends(program, Group.TENSOR)
        graph = program.graph
        own = (graph.kind == NodeKind.ARRIVE) & (graph.part == Part.EMBEDDING)
        return bool(is_sum[graph.collective[own]].any())
    read = read_sizes(program, stated=before.sizes)
    return read.divided.vocabulary and after.sizes.vocabulary is not None


def _by_phase(works: Sequence[Work]) -> Iterator[tuple[Phase | None, list[Work]]]:
    """A layer's work in runs: recomputed, backward; `None` for what is no layer's."""
    run: list[Work] = []
    phase: Phase | None = None
    for each in works:
        own = each.placed.phase if each.role is Role.LAYER else phase
        if run and own is not phase:
            yield phase, run
            run = []
        phase = own
        run.append(each)
    if run:
        yield phase, run


def _with_cuts(
    works: Sequence[Work], cuts: Sequence[_Cut], begin_of: Callable[[Piece, int], int]
) -> list[Work]:
    """Work with what was made between its pieces' nodes."""
    found: list[Work] = []
    for each in works:
        piece = each.placed.piece
        if not isinstance(piece, Piece):
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
            made = replace(each.placed, piece=cuts[index].made, scale=1.0, scale_bytes=1.0)
            found.append(Work(made, Role.OTHER))
        if begin < len(piece.nodes):
            found.append(_sub(each, piece, begin, len(piece.nodes)))
    return found


def _sub(each: Work, piece: Piece, begin: int, end: int) -> Work:
    if (begin, end) == (0, len(piece.nodes)):
        return each
    placed: Placed = replace(each.placed, piece=replace(piece, nodes=piece.nodes[begin:end]))
    return Work(placed, each.role)

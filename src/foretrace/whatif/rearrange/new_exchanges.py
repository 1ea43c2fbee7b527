"""Communication of a new job that no rank recorded, and recorded communication that it has not.

On a device only the host's calls go: streams that waited for each other through a communication
still do, so that stays, for the arrangement to close the gap (`arrange.arranged`).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Bools, CollectiveKind, Int64s, NotShownError
from foretrace.graph import NO_COLLECTIVE, EdgeKind, ExecutionGraph, NodeKind, Part
from foretrace.whatif.rearrange.buckets import TOLERANCE, issued, with_wait
from foretrace.whatif.rearrange.new_units import NewUnit, PlacedPiece, made_in
from foretrace.whatif.rearrange.recorded_parameters import Weights
from foretrace.whatif.rearrange.recorded_units import PieceRole
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.recorded.program import GROUPS, MadeExchange, Program, RecordedPiece
from foretrace.whatif.scenario import Scenario
from foretrace.workload import (
    Exchange,
    Group,
    bucket_numbers,
    filled,
    handed_over,
    pools_of,
    reduced,
)

# Operators under which frameworks prepare and launch communication.
_OPERATORS = ("c10d::", "record_param_comms", "nccl:", "gloo:", "c10d_functional::")


class Dropped:
    """Nodes of some collectives, with the host's calls that issue them."""

    def __init__(self, program: Program, is_gone: Bools) -> None:
        """Of these collectives; bool[collectives]."""
        self.nodes: Bools = np.zeros(program.graph.num_nodes, bool)
        if is_gone.any():
            self.nodes = _dropped(program.graph, is_gone)

    def without(self, piece: RecordedPiece) -> RecordedPiece | None:
        """A piece without them; `None` if nothing is left."""
        is_dropped = self.nodes[piece.nodes]
        if not is_dropped.any():
            return piece
        rest = piece.nodes[~is_dropped]
        return replace(piece, nodes=rest) if len(rest) else None


def of_groups(program: Program, groups: Collection[Group]) -> Bools:
    """Which collectives are of some groups; bool[collectives]."""
    places = [place for place, group in enumerate(GROUPS) if group in groups]
    return np.isin(program.group_of_collective, places)


def of_layers_and_ends(program: Program, group: Group) -> Bools:
    """Which collectives of a group layers, embedding and head take part in; bool[collectives]."""
    graph = program.graph
    parts = (Part.LAYER, Part.EMBEDDING, Part.HEAD)
    own = (graph.kind == NodeKind.ARRIVE) & np.isin(graph.part, parts)
    found = np.zeros(len(graph.collectives), bool)
    found[graph.collective[own]] = True
    return found & of_groups(program, (group,))


def _dropped(graph: ExecutionGraph, is_gone: Bools) -> Bools:
    has = graph.collective != NO_COLLECTIVE
    found = np.zeros(graph.num_nodes, bool)
    found[has] = is_gone[graph.collective[has]]
    target = graph.edge_target
    handed = np.isin(graph.edge_kind, (EdgeKind.LAUNCH, EdgeKind.ISSUE)) & found[target]
    launches = np.unique(graph.predecessor[handed])
    launches = launches[graph.kind[launches] == NodeKind.LAUNCH]
    found[launches] = True
    found[_around(graph, launches)] = True
    found[_workers_before(graph, found, target)] = True
    if graph.has_device:
        found &= ~graph.is_of(NodeKind.ARRIVE, NodeKind.FINISH)
    return found


def _workers_before(graph: ExecutionGraph, found: Bools, target: Int64s) -> Int64s:
    """A worker thread's own time before it takes part in a collective."""
    chained = (
        (graph.edge_kind == EdgeKind.HOST_ORDER)
        & (graph.kind[target] == NodeKind.ARRIVE)
        & found[target]
        & (graph.kind[graph.predecessor] == NodeKind.HOST_SEGMENT)
    )
    return np.asarray(graph.predecessor[chained], np.int64)


def _around(graph: ExecutionGraph, launches: Int64s) -> Int64s:
    """Host nodes of the communication operators around these launches."""
    is_named = np.array([name.startswith(_OPERATORS) for name in graph.names] or [False], bool)
    is_host = graph.kind < NodeKind.KERNEL
    is_inside = is_host & (graph.operator >= 0)
    is_inside[is_inside] = is_named[graph.operator[is_inside]]
    hosts = np.flatnonzero(is_host)
    hosts = graph.in_lanes(hosts)
    inside = is_inside[hosts]
    # Runs of nodes of one lane inside such operators; one run ends behind each launch's own.
    new_run = np.ones(len(hosts), bool)
    new_run[1:] = (graph.lane[hosts[1:]] != graph.lane[hosts[:-1]]) | (inside[1:] != inside[:-1])
    new_run[1:] |= inside[1:] & (graph.operator[hosts[1:]] != graph.operator[hosts[:-1]])
    run = np.cumsum(new_run) - 1
    is_chosen = np.zeros(int(run[-1]) + 1 if len(run) else 0, bool)
    is_chosen[run[np.isin(hosts, launches)]] = True
    return np.asarray(hosts[inside & is_chosen[run]], np.int64)


@dataclass(frozen=True)
class Maker:
    """Makes communication of a new job's sizes."""

    unit_index: UnitIndex
    after: Scenario
    weights: Weights
    host_ns: int  # what a call takes that launches one

    @staticmethod
    def of(unit_index: UnitIndex, after: Scenario, weights: Weights) -> Maker:
        """With what launching takes in the recording."""
        return Maker(unit_index, after, weights, _launch_ns(unit_index))

    def with_transfers(self, unit: NewUnit) -> NewUnit:
        """A unit that receives and sends where no recorded stage did."""
        if unit.lacks_receive:
            receive = self._transfer(unit, CollectiveKind.RECV, PieceRole.RECEIVE)
            unit = replace(unit, before=(receive, *unit.before))
        if unit.lacks_send:
            unit = replace(
                unit, after=(*unit.after, self._transfer(unit, CollectiveKind.SEND, PieceRole.SEND))
            )
        return unit

    def _transfer(self, unit: NewUnit, kind: CollectiveKind, role: PieceRole) -> PlacedPiece:
        transfer = replace(handed_over(self.after.plan, self.numbers), collective=kind)
        made = self.made(transfer, is_awaited=kind is CollectiveKind.RECV)
        return PlacedPiece(made_in(unit, made, Part.TRANSFER), role)

    def made(self, exchange: Exchange, *, is_awaited: bool = True) -> MadeExchange:
        """An exchange of the new job's plan, launched as recorded ones are."""
        return MadeExchange(
            collective=exchange.collective,
            group=exchange.group,
            num_bytes=exchange.num_bytes,
            dtype=exchange.dtype,
            host_ns=self.host_ns,
            is_awaited=is_awaited,
        )

    @property
    def tokens(self) -> int:
        """Of one microbatch on a rank, as products see them."""
        plan = self.after.plan
        return plan.micro_batch * plan.sequence // plan.context

    @property
    def numbers(self) -> int:
        """What passes from layer to layer for one microbatch, of all tensor-parallel ranks.

        Raises:
            NotShownError: if the model's hidden size is unknown.
        """
        hidden = self.after.sizes.hidden
        if hidden is None:
            raise NotShownError(
                "ranks would exchange activations of microbatch x sequence x hidden numbers, and "
                "the recording shows no hidden size: state it (sizes: hidden), or record with "
                "shapes"
            )
        return self.tokens * hidden

    def with_buckets(self, unit: NewUnit, *, is_first: bool) -> NewUnit:
        """A backward pass that reduces its gradients bucket by bucket, as they become whole.

        Args:
            unit: of the last microbatch.
            is_first: whether the rank holds what stands before the first layer.

        Raises:
            NotShownError: if nothing tells how many parameters there are.
        """
        plan, weights = self.after.plan, self.weights
        self.check_weights()
        is_last = unit.chunk == plan.last_chunk
        amounts = [
            weights.of_last if is_last else 0.0,
            *(weights.of_layer.get(slot.source, 0.0) for slot in unit.slots),
            weights.of_first if is_first else 0.0,
        ]
        size: float = bucket_numbers(plan)
        fills = list(filled(amounts, size, tolerance=TOLERANCE))
        if not plan.overlap.gradients:
            size = math.inf  # none is issued before the end
        pool, _ = pools_of(plan)
        made = [
            (full, self._bucket(unit, item))
            for full in fills
            for item in reduced(round(full.amount), pool, plan)
        ]
        unit = issued(unit, made, size, is_inside=False)
        return with_wait(unit, pool.replica or pool.shard)

    def check_weights(self) -> None:
        """Refuse to make exchanges of parameters that nobody can count.

        Raises:
            NotShownError: if nothing tells how many there are.
        """
        if not self.weights.are_numbers:
            has_layers = bool(self.unit_index.num_layers)
            lack = "it does not show" if has_layers else "no layers were found in it that show"
            remedy = (
                "record with shapes"
                if has_layers
                else "name them in a blocks file (see `inspect --blocks`)"
            )
            raise NotShownError(
                "parameters or gradients would be exchanged that the recording does not, and "
                f"{lack} how many there are: {remedy}, or start from a data-parallel job"
            )

    def _bucket(self, unit: NewUnit, exchange: Exchange) -> PlacedPiece:
        made = self.made(exchange, is_awaited=False)
        return PlacedPiece(made_in(unit, made, Part.BUCKET), PieceRole.BUCKET)


def _launch_ns(unit_index: UnitIndex) -> int:
    """The median of what a launch of communication takes, or of any, if none was recorded."""
    graph = unit_index.program.graph
    target = graph.edge_target
    is_launch = graph.kind[graph.predecessor] == NodeKind.LAUNCH
    for wanted in (
        graph.collective[target] != NO_COLLECTIVE,
        graph.is_device[target],
    ):
        launches = np.unique(graph.predecessor[is_launch & wanted])
        if len(launches):
            return int(np.median(graph.measured_ns[launches]))
    return 0

"""What software did beside the model: sharding, buckets, overlap, recompute, number formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from foretrace.base import SIXTEEN_BITS, number_format
from foretrace.graph import DEVICE_KINDS, ExecutionGraph, NodeKind, Part, Phase
from foretrace.whatif.recorded.program import RecordedPiece
from foretrace.whatif.recorded.stages import GATHER, REDUCE, SCATTER, RecordedExchange
from foretrace.workload import DDP_BUCKET_BYTES, Group, Plan, Recompute, Sharding, groups_of

_REDUCED = (*SIXTEEN_BITS, "fp32")  # formats that gradients are added in
_OF_PARAMETERS = (Part.BUCKET, Part.OPTIMIZER)
_INSIDE = (Part.EMBEDDING, Part.LAYER, Part.HEAD, Part.UNKNOWN)
_COMPUTING = (*DEVICE_KINDS, NodeKind.OPERATOR)
# Of a layer's forward work, at least this share is done again where all of it is recomputed: the
# last product may be left out (`Implementation.stops_recompute_early`), and what selective
# recompute repeats is far less.
_WHOLE = 0.5

Field = bool | int | str | tuple[int, ...] | None  # what a field of a plan holds


def habits_of(
    graph: ExecutionGraph,
    pieces_by_rank: Mapping[int, tuple[RecordedPiece, ...]],
    exchanges: Sequence[RecordedExchange],
    plan: Plan,
) -> tuple[dict[str, Field], list[str]]:
    """Fields of a plan as recorded, and notes on what is unsure.

    Args:
        graph: of the recording.
        pieces_by_rank: its pieces.
        exchanges: its collectives.
        plan: degrees.
    """
    notes: list[str] = []
    inner = _inner_ranks(plan)
    found: dict[str, Field] = dict(_sharding(exchanges, inner, notes))
    found["recompute"] = _recompute(graph)
    found["sequence_parallel"] = _is_sequence_parallel(exchanges, plan)
    reduced = [
        each
        for each in exchanges
        if each.part == Part.BUCKET
        and each.phase == Phase.BACKWARD
        and each.ranks not in inner  # gradients of what tensor ranks share
    ]
    if not exchanges:  # plain PyTorch: no framework's own rule can be told
        found["bucket_bytes"] = DDP_BUCKET_BYTES
    if reduced:
        largest = max(reduced, key=lambda each: each.largest_bytes)
        if largest.largest_bytes > 0:
            found["bucket_bytes"] = largest.largest_bytes
        else:
            notes.append("sizes of gradient buckets are not recorded")
        reduced_in = number_format(largest.dtype)
        if reduced_in is not None and reduced_in.name in _REDUCED:
            found["precision.reduced"] = reduced_in.name
        found["overlap.gradients"] = _is_overlapped(graph, pieces_by_rank)
    return found, notes


def _inner_ranks(plan: Plan) -> set[tuple[int, ...]]:
    """Ranks that divide tensors or sequences among them."""
    return {
        tuple(ranks)
        for group, size in ((Group.TENSOR, plan.tensor), (Group.CONTEXT, plan.context))
        if size > 1
        for ranks in groups_of(plan, group).tolist()
    }


def _sharding(
    exchanges: Sequence[RecordedExchange], inner: set[tuple[int, ...]], notes: list[str]
) -> dict[str, Field]:
    """Level and resharding, from which kinds of collectives move gradients and parameters when."""
    own = [
        each
        for each in exchanges
        if len(each.ranks) > 1
        and not each.is_pair
        and (each.part in _OF_PARAMETERS or (each.part in _INSIDE and each.ranks not in inner))
    ]
    kinds = {(each.name, each.phase) for each in own}
    gathers = {phase for name, phase in kinds if name == GATHER}
    scatters = {phase for name, phase in kinds if name == SCATTER}
    if Phase.BACKWARD in gathers and scatters:
        return {"sharding": Sharding.ZERO3, "reshard_after_forward": True}
    if any(each.name == SCATTER and each.num_microbatches > 1 for each in own):
        return {"sharding": Sharding.ZERO2}
    if not scatters and (not gathers or (REDUCE, Phase.BACKWARD) not in kinds):
        return {}
    notes.append(
        "gradients are scattered or parameters gathered over dp once a step: zero1 is taken; with "
        "parameters gathered once (zero3 that does not reshard) or zero2, state sharding.level"
    )
    return {"sharding": Sharding.ZERO1}


def _recompute(graph: ExecutionGraph) -> Recompute | None:
    """From how much of the layers' forward work is done again; `None` without a backward pass."""
    if not (graph.phase == Phase.BACKWARD).any():
        return None
    is_work = (graph.part == Part.LAYER) & graph.is_of(*_COMPUTING)
    again = int((is_work & (graph.phase == Phase.RECOMPUTE)).sum())
    once = int((is_work & (graph.phase == Phase.FORWARD)).sum())
    if not again:
        return Recompute.NONE
    return Recompute.FULL if again >= _WHOLE * once else Recompute.SELECTIVE


def _is_sequence_parallel(exchanges: Sequence[RecordedExchange], plan: Plan) -> bool:
    """Tensor ranks scatter their sums in the forward pass."""
    return plan.tensor > 1 and any(
        each.name == SCATTER
        and each.phase in {Phase.FORWARD, Phase.RECOMPUTE}
        and each.part in {Part.EMBEDDING, Part.LAYER}
        and len(each.ranks) == plan.tensor
        for each in exchanges
    )


def _is_overlapped(
    graph: ExecutionGraph, pieces_by_rank: Mapping[int, tuple[RecordedPiece, ...]]
) -> bool:
    """Whether any bucket is launched with backward work of its step still to come."""
    for pieces in pieces_by_rank.values():
        reduced: set[int] = set()  # steps in which something was reduced already
        for piece in pieces:
            if piece.phase != Phase.BACKWARD or piece.part == Part.TRANSFER:
                continue
            kinds = graph.kind[piece.nodes]
            if piece.part == Part.BUCKET:
                if (kinds == NodeKind.ARRIVE).any():
                    reduced.add(piece.step)
            elif piece.step in reduced and np.isin(kinds, _COMPUTING).any():
                return True
    return False

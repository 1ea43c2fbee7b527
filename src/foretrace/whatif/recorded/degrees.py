"""How many ranks divide what: read off the ranks that take part in each kind of collective.

Ranks that reduce activations inside layers divide the model's tensors; ranks that reduce
gradients hold the same parameters. Where one set of ranks does both (gradients of normalisations
are reduced over tensor ranks too, statistics of a batch over data-parallel ones), what it moves
most of decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foretrace.graph import ExecutionGraph, Part, Phase
from foretrace.whatif.recorded.exchanges import BARRIER, GATHER, REDUCE, SCATTER, RecordedExchange
from foretrace.whatif.recorded.stages import Stages

# The last one: what stands outside the parts of a model, where its layers were not found.
_INSIDE = (Part.EMBEDDING, Part.LAYER, Part.HEAD, Part.LOSS, Part.UNKNOWN)
_OF_LAYERS = (Part.EMBEDDING, Part.LAYER, Part.UNKNOWN)
_GRADIENTS = (Part.BUCKET, Part.OPTIMIZER)
# Less than this share of what the largest groups of gradients move is not gradients: norms.
_SMALL = 1e-3

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Degrees:
    """Sizes of groups as recorded; 1 where nothing shows more."""

    num_ranks: int  # of the job, as far as its collectives name them
    tensor: int
    data: int  # ranks that hold the same parameters: data times context
    pipeline: int
    expert: int
    shard: int | None  # of `data`, ranks that divide parameters or states; `None`: all
    tensor_sets: tuple[Ranks, ...]
    data_sets: tuple[Ranks, ...]


def degrees_of(
    graph: ExecutionGraph,
    exchanges: Sequence[RecordedExchange],
    stages: Stages,
    *,
    context: int = 1,
) -> Degrees:
    """The degrees of a recording.

    Args:
        graph: of the recording.
        exchanges: its collectives.
        stages: its pipeline.
        context: ranks over which sequences are divided, which nobody can see.
    """
    has_layers = any(stages.layers)
    shared = [
        each
        for each in exchanges
        if len(each.ranks) > 1
        and not each.is_pair
        and each.name != BARRIER  # moves nothing
        # What stands outside the parts of a known model says nothing about it.
        and (each.part != Part.UNKNOWN or not has_layers)
    ]
    inside, gradients = _weights(shared, stages, context)
    tensor_sets = [ranks for ranks in inside if inside[ranks] > gradients.get(ranks, 0)]
    tensor, tensor_sets = _most(tensor_sets, inside)
    data_sets = [
        ranks
        for ranks in gradients
        if gradients[ranks] >= inside.get(ranks, 0)
        and all(len(set(ranks) & set(other)) <= 1 for other in tensor_sets)
    ]
    data, data_sets, shard = _data(data_sets, gradients, shared)
    members = {rank for each in exchanges for rank in each.ranks} | set(graph.ranks)
    return Degrees(
        num_ranks=max(members, default=0) + 1,
        tensor=tensor,
        data=data,
        pipeline=stages.count,
        expert=_expert(exchanges),
        shard=shard,
        tensor_sets=tuple(tensor_sets),
        data_sets=tuple(data_sets),
    )


def _weights(
    shared: Sequence[RecordedExchange], stages: Stages, context: int
) -> tuple[dict[Ranks, int], dict[Ranks, int]]:
    """What each set of ranks moves inside the model, and of gradients and parameters."""
    has_bytes = all(each.num_bytes > 0 for each in shared)
    sharded = _sharded_sets(shared) if context == 1 else set()
    inside: dict[Ranks, int] = {}
    gradients: dict[Ranks, int] = {}
    for each in shared:
        if each.is_shuffle or _spans_stages(each.ranks, stages):
            continue
        is_divided = context > 1 and len(each.ranks) == context and each.name != REDUCE
        is_model = each.part in _INSIDE and each.ranks not in sharded
        if is_model and is_divided:
            continue
        weight = each.num_bytes if has_bytes else each.transfer_ns
        if is_model:
            inside[each.ranks] = inside.get(each.ranks, 0) + weight
        elif each.part in _GRADIENTS or each.ranks in sharded:
            gradients[each.ranks] = gradients.get(each.ranks, 0) + weight
    return inside, gradients


def _sharded_sets(shared: Iterable[RecordedExchange]) -> set[Ranks]:
    """Ranks that gather in the forward pass and scatter only in the backward pass: parameters.

    Sequence-parallel tensor ranks scatter in both.
    """
    gathers, scatters, others = set(), set(), set()
    for each in shared:
        if each.part not in (*_INSIDE, Part.BUCKET):
            continue
        if each.name == GATHER:
            gathers.add(each.ranks)
        elif each.name == SCATTER and each.phase in {Phase.BACKWARD, Phase.OPTIMIZER}:
            scatters.add(each.ranks)
        elif each.part in _OF_LAYERS and each.name in {SCATTER, REDUCE}:
            others.add(each.ranks)
    return (gathers & scatters) - others


def _spans_stages(ranks: Ranks, stages: Stages) -> bool:
    return len({stages.stage_by_rank[rank] for rank in ranks if rank in stages.stage_by_rank}) > 1


def _most(sets: list[Ranks], weight: dict[Ranks, int]) -> tuple[int, list[Ranks]]:
    """The size of set that moves most, and the sets of that size."""
    by_size: dict[int, int] = {}
    for ranks in sets:
        by_size[len(ranks)] = by_size.get(len(ranks), 0) + weight[ranks]
    size = max(by_size, key=lambda each: (by_size[each], each), default=1)
    return size, [ranks for ranks in sets if len(ranks) == size]


def _data(
    sets: list[Ranks], weight: dict[Ranks, int], shared: Sequence[RecordedExchange]
) -> tuple[int, list[Ranks], int | None]:
    """Ranks that hold the same parameters, their sets, and how many of them divide states."""
    if not sets:
        return 1, [], None
    largest = max(weight[ranks] for ranks in sets)
    sets = [ranks for ranks in sets if weight[ranks] >= _SMALL * largest]
    size = max(map(len, sets))
    of_size = [ranks for ranks in sets if len(ranks) == size]
    scatters = {each.ranks for each in shared if each.name == SCATTER} & set(sets)
    reduces = {each.ranks for each in shared if each.name == REDUCE} & set(sets)
    crossing = [
        (one, other) for one in scatters for other in reduces if len(set(one) & set(other)) == 1
    ]
    if crossing and not any(
        set(one) | set(other) <= set(each) for one, other in crossing for each in of_size
    ):
        one, other = crossing[0]
        return len(one) * len(other), [*scatters, *reduces], len(one)
    inner = {len(ranks) for ranks in scatters}
    return size, of_size, min(inner) if inner and min(inner) < size else None


def _expert(exchanges: Sequence[RecordedExchange]) -> int:
    """Ranks that send tokens to each other in layers, forward and back."""
    sizes = [
        {
            len(each.ranks)
            for each in exchanges
            if each.is_shuffle and each.part == Part.LAYER and each.phase == phase
        }
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    ]
    has_backward = any(each.phase == Phase.BACKWARD for each in exchanges)
    both = sizes[0] & sizes[1] if has_backward else sizes[0]
    return max(both, default=1)

"""Where recorded work stands: each collective in model and step, each rank's pipeline stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import CollectiveKind, Int64s
from foretrace.graph import NO_LAYER, ExecutionGraph, NodeKind, Part, Phase

REDUCE = CollectiveKind.ALL_REDUCE
GATHER = CollectiveKind.ALL_GATHER
SCATTER = CollectiveKind.REDUCE_SCATTER
BARRIER = "barrier"
_PAIR = 2

_UNNAMED = (
    "sends and receives do not name the two ranks that take part, so the pipeline's stages were "
    "not told apart: record without a pipeline, or with NCCL, to change layers or degrees"
)


@dataclass(frozen=True)
class RecordedExchange:
    """Collectives of the same ranks that do the same, at the same kind of place."""

    ranks: tuple[int, ...]
    name: CollectiveKind
    part: Part
    phase: Phase
    dtype: str
    num_bytes: int  # payload per rank, of all together; 0 where none says
    largest_bytes: int  # of one; -1 unknown
    transfer_ns: int  # of all members, of all together
    num_microbatches: int  # in which they are, of a step
    collectives: Int64s  # int64[those], position in the graph's collectives

    @property
    def is_pair(self) -> bool:
        """Whether it sends from one rank to one other."""
        return self.name.is_transfer and len(self.ranks) <= _PAIR

    @property
    def is_shuffle(self) -> bool:
        """Whether every rank sends something of its own to every other."""
        return self.name is CollectiveKind.ALL_TO_ALL or (
            self.name.is_transfer and len(self.ranks) > _PAIR
        )


def exchanges_of(graph: ExecutionGraph) -> tuple[RecordedExchange, ...]:
    """All collectives of a recording, those that are alike together."""
    size = len(graph.collectives)
    finishes = graph.nodes_of(NodeKind.FINISH)
    owner = np.full(size, -1, np.int64)
    owner[graph.collective[finishes][::-1]] = finishes[::-1]
    transfer_ns = np.zeros(size, np.int64)
    np.add.at(transfer_ns, graph.collective[finishes], graph.measured_ns[finishes])
    alike: dict[tuple[tuple[int, ...], CollectiveKind, int, int, str], list[int]] = {}
    for position in np.flatnonzero(owner >= 0).tolist():
        each, node = graph.collectives[position], owner[position]
        key = (
            each.ranks,
            each.kind,
            int(graph.part[node]),
            int(graph.phase[node]),
            each.dtype.lower(),
        )
        alike.setdefault(key, []).append(position)
    found = []
    for (ranks, name, part, phase, dtype), positions in alike.items():
        num_bytes = [graph.collectives[each].num_bytes for each in positions]
        exchange = RecordedExchange(
            ranks=ranks,
            name=name,
            part=Part(part),
            phase=Phase(phase),
            dtype=dtype,
            num_bytes=sum(max(each, 0) for each in num_bytes),
            largest_bytes=max(num_bytes),
            transfer_ns=int(transfer_ns[positions].sum()),
            num_microbatches=len(np.unique(graph.microbatch[owner[positions]])),
            collectives=np.array(positions, np.int64),
        )
        found.append(exchange)
    return tuple(found)


@dataclass(frozen=True)
class Stages:
    """The pipeline of a recording."""

    count: int  # 1: none was seen
    stage_by_rank: Mapping[int, int]  # of recorded ranks
    layers: tuple[tuple[int, ...], ...]  # of each stage, rising
    doubts: tuple[str, ...]


def stages_of(graph: ExecutionGraph, exchanges: Sequence[RecordedExchange]) -> Stages:
    """Stages, from which ranks transfers join, and from the layers that each rank runs."""
    layers = _layers_by_rank(graph)
    transfers = [each.ranks for each in exchanges if each.part == Part.TRANSFER]
    pairs = [ranks for ranks in transfers if len(ranks) > 1]
    if not pairs:
        everything = sorted({each for own in layers.values() for each in own})
        doubts = (_UNNAMED,) if transfers else ()
        return Stages(1, dict.fromkeys(graph.ranks, 0), (tuple(everything),), doubts)
    stage_by_rank: dict[int, int] = {}
    pipelines = _joined(pairs)
    for ranks in pipelines:
        known = sorted((rank for rank in ranks if layers.get(rank)), key=lambda rank: layers[rank])
        order = known if len(known) == len(ranks) else sorted(ranks)
        stage_by_rank |= {rank: stage for stage, rank in enumerate(order) if rank in layers}
    return _stages(max(map(len, pipelines)), stage_by_rank, layers)


def _stages(
    count: int, stage_by_rank: dict[int, int], layers: Mapping[int, tuple[int, ...]]
) -> Stages:
    own: list[set[int]] = [set() for _ in range(count)]
    doubts = []
    for rank, stage in stage_by_rank.items():
        own[stage] |= set(layers[rank])
    empty = [stage for stage, each in enumerate(own) if not each]
    if empty:
        doubts.append(
            f"no layer was found on {_numbered('stage', empty)} of {count}: a file of blocks says "
            "which operators are layers"
        )
    if sum(map(len, own)) != len(set().union(*own)):
        doubts.append(
            f"the {count} pipeline stages share layers: their layers were not told apart, so "
            "state layers_per_stage in a file of blocks"
        )
    missing = sorted(set(layers) - set(stage_by_rank))
    if missing:
        doubts.append(f"no transfer joins {_numbered('rank', missing)} to a pipeline")
        stage_by_rank |= dict.fromkeys(missing, 0)
    return Stages(count, stage_by_rank, tuple(tuple(sorted(each)) for each in own), tuple(doubts))


def _numbered(noun: str, numbers: Sequence[int]) -> str:
    """`stage 1` or `stages 1, 2`."""
    return f"{noun}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _layers_by_rank(graph: ExecutionGraph) -> dict[int, tuple[int, ...]]:
    chosen = (graph.part == Part.LAYER) & (graph.layer != NO_LAYER) & (graph.rank >= 0)
    seen = np.unique(np.stack([graph.rank[chosen], graph.layer[chosen]]).astype(np.int64), axis=1)
    found: dict[int, list[int]] = {rank: [] for rank in graph.ranks}
    for rank, layer in seen.T.tolist():
        found[rank].append(layer)
    return {rank: tuple(own) for rank, own in found.items()}


def _joined(pairs: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Ranks that transfers join, directly or over others."""
    parts: list[set[int]] = []
    for pair in pairs:
        touched = [each for each in parts if each & set(pair)]
        parts = [each for each in parts if not each & set(pair)]
        parts.append(set(pair).union(*touched))
    return [tuple(sorted(each)) for each in parts]

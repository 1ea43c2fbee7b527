"""What ranks with the same parameters say to each other, part by part or bucket by bucket.

Gradients are reduced in buckets that fill in the order of the backward pass, chunk by chunk of
the pipeline; ZeRO-3 gathers and scatters part by part (a layer, the embedding, the head).
Parameters of experts have groups, and so buckets, of their own. Sizes are counted as nccl-tests
does: what all-gather puts out, what reduce-scatter takes in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import CollectiveKind
from foretrace.graph import Part, Phase
from foretrace.workload.blocks.block import Block, ParameterCount, Passes
from foretrace.workload.blocks.signatures import num_bytes
from foretrace.workload.exchanges.exchange import Exchange
from foretrace.workload.plan.groups import group_size
from foretrace.workload.plan.plan import Group, Plan, Sharding

# Megatron-LM, megatron/core/distributed/distributed_data_parallel.py: a bucket holds 40 million
# numbers, or a million for each data-parallel rank if that is more.
_LEAST_NUMBERS, _NUMBERS_PER_RANK = 40_000_000, 1_000_000


@dataclass(frozen=True)
class ParameterPool:
    """Parameters with the same groups: the dense ones, or those of experts."""

    is_expert: bool
    shard: Group  # divides gradients, states or parameters, as `Plan.sharding` says
    num_shards: int  # ranks of it; 1: nothing is divided
    replica: Group | None  # reduces what `shard` does not; `None`: nothing is left
    is_reduced: bool  # some other rank holds the same parameters

    def count(self, parameters: ParameterCount) -> int:
        """Of a part's parameters, those of this pool."""
        return parameters.expert if self.is_expert else parameters.dense


def pools_of(plan: Plan) -> tuple[ParameterPool, ParameterPool]:
    """Dense parameters and those of experts."""
    is_divided = plan.sharding is not Sharding.NONE
    num_data, num_shards = group_size(plan, Group.DATA), group_size(plan, Group.SHARD)
    num_copies = group_size(plan, Group.EXPERT_DATA)
    dense = ParameterPool(
        is_expert=False,
        shard=Group.SHARD,
        num_shards=num_shards if is_divided else 1,
        replica=_replica(plan, num_data, num_shards) if is_divided else Group.DATA,
        is_reduced=num_data > 1,
    )
    expert = ParameterPool(
        is_expert=True,
        shard=Group.EXPERT_DATA,
        num_shards=num_copies if is_divided else 1,
        replica=None if is_divided else Group.EXPERT_DATA,
        is_reduced=num_copies > 1,
    )
    return dense, expert


def _replica(plan: Plan, num_data: int, num_shards: int) -> Group | None:
    return Group.REPLICA if group_size(plan, Group.REPLICA) > 1 and num_data > num_shards else None


def shard_count(parameters: ParameterCount, pools: Sequence[ParameterPool]) -> int:
    """Parameters that one rank updates; uneven shards are rounded up."""
    return sum(-(-pool.count(parameters) // pool.num_shards) for pool in pools)


def total_parameters(parts: Sequence[Passes]) -> ParameterCount:
    """Parameters of several parts together."""
    return ParameterCount(
        sum(part.parameters.dense for part in parts),
        sum(part.parameters.expert for part in parts),
    )


def reduced(num_parameters: int, pool: ParameterPool, plan: Plan) -> tuple[Exchange, ...]:
    """Gradients of so many parameters are reduced, and scattered where they are divided."""
    dtype = plan.precision.reduced
    size = num_bytes(num_parameters, dtype)
    items: tuple[Exchange, ...] = ()
    if pool.num_shards > 1:
        scattered = _sum("reduce-scatter of gradients", pool.shard, size, dtype)
        channels = plan.channels.data
        items = (replace(scattered, collective=CollectiveKind.REDUCE_SCATTER, channels=channels),)
        size = -(-size // pool.num_shards)
    if pool.replica is not None:
        size = -(-size // (plan.local_steps or 1))
        total = _sum("all-reduce of gradients", pool.replica, size, dtype)
        after = tuple(range(len(items)))
        items = (*items, replace(total, after=after, channels=plan.channels.data))
    return items


def reduction(num_parameters: int, pool: ParameterPool, plan: Plan) -> Block:
    """A block of what reduces so many gradients."""
    return Block(Part.BUCKET, reduced(num_parameters, pool, plan))


def gathered(num_parameters: int, pool: ParameterPool, plan: Plan, *, phase: Phase) -> Exchange:
    """So many divided parameters are made whole on every rank."""
    dtype = plan.precision.parameters
    return Exchange(
        label="all-gather of parameters",
        collective=CollectiveKind.ALL_GATHER,
        group=pool.shard,
        num_bytes=num_bytes(num_parameters, dtype),
        dtype=dtype,
        phase=phase,
        channels=plan.channels.data,
    )


def gathering(num_parameters: int, pool: ParameterPool, plan: Plan, phase: Phase) -> Block:
    """A block of what gathers so many parameters."""
    return Block(Part.BUCKET, (gathered(num_parameters, pool, plan, phase=phase),))


def agreement(num_numbers: int, group: Group, dtype: str, label: str) -> Block:
    """All ranks of a group add up what each has, behind the backward pass."""
    return Block(Part.BUCKET, (_sum(label, group, num_bytes(num_numbers, dtype), dtype),))


def _sum(label: str, group: Group, size: int, dtype: str) -> Exchange:
    return Exchange(
        label=label,
        collective=CollectiveKind.ALL_REDUCE,
        group=group,
        num_bytes=size,
        dtype=dtype,
        phase=Phase.BACKWARD,
    )


@dataclass(frozen=True)
class Bucket:
    """Parameters of one pool whose gradients are reduced together."""

    pool: ParameterPool
    num_parameters: int
    complete_at: int  # place, in the order of the backward pass, of the part that fills it


def buckets_of(
    parts: Sequence[Passes], pools: Sequence[ParameterPool], plan: Plan
) -> tuple[Bucket, ...]:
    """Buckets of a chunk's parts, which stand in the order of the backward pass."""
    found = [
        Bucket(pool, int(full.amount), full.place)
        for pool in pools
        if pool.is_reduced
        for full in filled([pool.count(part.parameters) for part in parts], bucket_numbers(plan))
    ]
    return tuple(sorted(found, key=lambda bucket: bucket.complete_at))


def bucket_numbers(plan: Plan) -> int:
    """Gradients of one bucket."""
    if plan.bucket_bytes is None:
        return max(_LEAST_NUMBERS, _NUMBERS_PER_RANK * plan.data * plan.context)
    return max(plan.bucket_bytes // num_bytes(1, plan.precision.reduced), 1)


@dataclass(frozen=True)
class Filled:
    """A bucket, and when in the backward pass it is full."""

    amount: float  # in it
    place: int  # of the part that fills it
    share: float  # of that part that is done by then


def filled(amounts: Sequence[float], size: float, *, tolerance: float = 0.0) -> Iterator[Filled]:
    """Buckets of a size that parts fill one after the other; the last is as full as it gets.

    Args:
        amounts: of each part, in the order of the backward pass.
        size: of a full bucket.
        tolerance: share of a bucket that is none: of amounts that are averages.
    """
    waiting: float = 0
    last = 0
    for place, amount in enumerate(amounts):
        gone = -waiting
        while amount and amount - gone >= size * (1 - tolerance):
            gone += size
            waiting = 0
            yield Filled(size, place, gone / amount)
        waiting = amount - gone
        last = place if amount else last
    if waiting > size * tolerance:
        yield Filled(waiting, last, 1.0)


def last_bucket_of_parts(
    parts: Sequence[Passes], buckets: Sequence[Bucket], pool: ParameterPool
) -> list[int]:
    """For each part the bucket with its parameters that is gathered last; -1: it has none.

    Parameters are gathered from the last bucket to the first, which is the order of the forward
    pass; so of a part's buckets the one that filled first comes last.
    """
    own = [place for place, bucket in enumerate(buckets) if bucket.pool == pool]
    ends = np.cumsum([buckets[place].num_parameters for place in own])
    found, begin = [], 0
    for part in parts:
        count = pool.count(part.parameters)
        at = int(np.searchsorted(ends, begin, side="right")) if count and own else -1
        found.append(own[at] if at >= 0 else -1)
        begin += count
    return found

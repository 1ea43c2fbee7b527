"""What a shard of a table costs in one forward pass, by the closed forms of TorchRec's planner.

Bytes over a rate, three times: ids to where the rows are, rows from memory, pooled vectors back.
No latency and no overlap: good for ranking shards, which is what the planner does with them.

Source:
    pytorch/torchrec, torchrec/distributed/planner/shard_estimators.py and constants.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.machine import Machine
from foretrace.workload.sharding.tables import TableScheme

_GIB_PER_S = 2**30 / 1e9  # bytes per ns


@dataclass(frozen=True, kw_only=True)
class PlannerRates:
    """Rates of one rank, in bytes per ns; the defaults are TorchRec's."""

    memory_bytes_per_ns: float = 897 * _GIB_PER_S
    inside_bytes_per_ns: float = 600 * _GIB_PER_S  # between ranks of a host
    across_bytes_per_ns: float = 12.5 * _GIB_PER_S  # between hosts

    @classmethod
    def of(cls, machine: Machine) -> PlannerRates:
        """Rates of a machine's data sheets; a machine of one host has one rate for both."""
        return cls(
            memory_bytes_per_ns=machine.chip.memory_bytes_per_ns,
            inside_bytes_per_ns=machine.tiers[0].shared_bytes_per_ns,
            across_bytes_per_ns=min(tier.shared_bytes_per_ns for tier in machine.tiers),
        )


@dataclass(frozen=True, kw_only=True)
class LookupWork:
    """What one table is asked for, and by how many."""

    batch: int  # samples of one rank
    num_ranks: int
    ranks_per_host: int
    pooling: float  # lookups of a sample
    number_bytes: float
    id_bytes: float = 8.0


@dataclass(frozen=True)
class ShardCost:
    """Times of one shard's forward pass, in ns."""

    input_ns: float  # ids arrive
    lookup_ns: float  # rows are read
    output_ns: float  # pooled vectors, or gradients of a table that every rank holds, leave

    @property
    def total_ns(self) -> float:
        """All of them."""
        return self.input_ns + self.lookup_ns + self.output_ns


def shard_cost(
    scheme: TableScheme,
    work: LookupWork,
    *,
    num_rows: int,
    num_columns: int,
    rates: PlannerRates | None = None,
) -> ShardCost:
    """Cost of one shard.

    Args:
        scheme: how its table is divided.
        work: what the table is asked for.
        num_rows: of the table; counts only where every rank holds it.
        num_columns: of the shard.
        rates: TorchRec's if left out.
    """
    rate = rates or PlannerRates()
    across = rate.across_bytes_per_ns
    if scheme is TableScheme.DATA:
        read = work.batch * work.pooling * num_columns * work.number_bytes
        gradient = num_rows * num_columns * work.number_bytes
        return ShardCost(0.0, read / rate.memory_bytes_per_ns, gradient / across)
    samples = work.batch * work.num_ranks
    share = {TableScheme.ROW: work.num_ranks, TableScheme.TABLE_ROW: work.ranks_per_host}
    lookups = samples * work.pooling / share.get(scheme, 1)
    pooled = samples * num_columns * work.number_bytes
    output_ns = pooled / across
    if scheme is TableScheme.TABLE_ROW:
        share_across = work.ranks_per_host / work.num_ranks
        output_ns = pooled / rate.inside_bytes_per_ns + pooled * share_across / across
    return ShardCost(
        input_ns=lookups * work.id_bytes / across,
        lookup_ns=lookups * num_columns * work.number_bytes / rate.memory_bytes_per_ns,
        output_ns=output_ns,
    )

"""What ranks exchange for their tables in one step, in numbers, not bytes.

Every scheme has its own exchanges, as TorchRec has: ids and how many of them go to where rows
are, pooled vectors come back, and their gradients take the way of the vectors again.

Source:
    pytorch/torchrec, torchrec/distributed/dist_data.py: `KJTAllToAll`, `PooledEmbeddings...`;
    torchrec/distributed/sharding/{tw,cw,rw,twrw,dp}_sharding.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrace.workload.sharding.placed import PlacedTables, Shard
from foretrace.workload.sharding.tables import TableScheme

# Of each rank to each: how many lengths, how many ids, and the batch of the sender.
_SPLITS = 3


@dataclass(frozen=True)
class Numbers:
    """How many numbers each rank sends to all ranks, itself among them, and gets from all."""

    sent: tuple[int, ...]  # by rank
    received: tuple[int, ...]

    @property
    def largest(self) -> int:
        """The most that any rank sends or gets: what an exchange cannot end before."""
        return max(*self.sent, *self.received)

    def of(self, rank: int | None) -> int:
        """What a rank sends; of no rank in particular, the most that any sends or gets."""
        return self.largest if rank is None else self.sent[rank]

    def back(self) -> Numbers:
        """The same the other way."""
        return Numbers(self.received, self.sent)


@dataclass(frozen=True)
class SchemeTraffic:
    """Exchanges of all tables of one scheme."""

    scheme: TableScheme
    splits: Numbers  # 64-bit
    lengths: Numbers  # 32-bit: how many ids each sample has in each table
    ids: Numbers
    # Pooled vectors of the forward pass. Where rows are divided, `reduced` numbers are added up
    # between ranks first: among all by rows, among those of a host by rows of a host.
    pooled: Numbers | None
    reduced: Numbers | None


def traffic(placed: PlacedTables, batch: int) -> tuple[SchemeTraffic, ...]:
    """Exchanges of each scheme that some table has, in order of the schemes.

    Ids go to ranks as the placement's access laws say.

    Args:
        placed: the shards.
        batch: samples of one rank.
    """
    found = []
    for scheme in TableScheme:
        by_rank = [placed.of_rank(rank, scheme) for rank in range(placed.num_ranks)]
        if scheme is not TableScheme.DATA and any(by_rank):
            found.append(_Scheme(placed, batch, scheme, by_rank).traffic())
    return tuple(found)


def data_parallel_gradients(placed: PlacedTables) -> int:
    """Numbers of tables that every rank holds: what is all-reduced of them."""
    return sum(one.num_rows * one.num_columns for one in placed.of_rank(0, TableScheme.DATA))


@dataclass(frozen=True)
class _Scheme:
    placed: PlacedTables
    batch: int
    scheme: TableScheme
    by_rank: Sequence[Sequence[Shard]]

    def traffic(self) -> SchemeTraffic:
        num_ranks = self.placed.num_ranks
        # Every rank sends the same to rank r; so r gets as much from each of them.
        to = [self._lengths(shards) for shards in self.by_rank]
        ids = [round(self.batch * self._pooling(shards)) for shards in self.by_rank]
        return SchemeTraffic(
            scheme=self.scheme,
            splits=_same(_SPLITS * num_ranks, num_ranks),
            lengths=_gathered(to),
            ids=_gathered(ids),
            pooled=self._pooled(),
            reduced=self._reduced(),
        )

    def _lengths(self, shards: Sequence[Shard]) -> int:
        return self.batch * len(shards)

    def _pooling(self, shards: Sequence[Shard]) -> float:
        """Ids of one sample that go to a rank."""
        pooling = self.placed.model.pooling
        return sum(pooling[one.table] * one.share for one in shards)

    def _columns(self) -> list[int]:
        return [sum(one.num_columns for one in shards) for shards in self.by_rank]

    def _pooled(self) -> Numbers | None:
        """What every rank sends to those whose samples it has vectors of."""
        num_ranks, columns = self.placed.num_ranks, self._columns()
        if self.scheme is TableScheme.ROW:
            return None
        if self.scheme is not TableScheme.TABLE_ROW:
            sent = [num_ranks * self.batch * each for each in columns]
            return Numbers(tuple(sent), (self.batch * sum(columns),) * num_ranks)
        # Between hosts: of the samples of one rank in each host, added up already.
        inside = self.placed.ranks_per_host
        num_hosts = num_ranks // inside
        if num_hosts == 1:
            return None
        sent = [num_hosts * self.batch * each for each in columns]
        received = self.batch * sum(columns[::inside])
        return Numbers(tuple(sent), (received,) * num_ranks)

    def _reduced(self) -> Numbers | None:
        if self.scheme not in {TableScheme.ROW, TableScheme.TABLE_ROW}:
            return None
        numbers = tuple(self.placed.num_ranks * self.batch * each for each in self._columns())
        return Numbers(numbers, numbers)


def _same(count: int, num_ranks: int) -> Numbers:
    return Numbers((count,) * num_ranks, (count,) * num_ranks)


def _gathered(to_rank: Sequence[int]) -> Numbers:
    """Each of the ranks sends so much to rank r."""
    num_ranks = len(to_rank)
    return Numbers((sum(to_rank),) * num_ranks, tuple(num_ranks * each for each in to_rank))

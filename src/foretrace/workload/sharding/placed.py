"""`PlacedTables`: shards of a model's tables, their bytes by tier, and what is read from each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from foretrace.answer import Answer, Column, Plain, Table, Told, Unit, bytes_text, count_text
from foretrace.base import known_format
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.sharding.access import AccessLaw
from foretrace.workload.sharding.tables import (
    MemoryTier,
    TableOptimizer,
    TablePlace,
    TableScheme,
    TableSharding,
)

STATE_BYTES = 4  # of one number of an optimizer: kept in 32 bit
_BLOCK_BYTES = 4096  # a disk reads no less


def states_of_row(optimizer: TableOptimizer, num_columns: int) -> int:
    """Numbers that an optimizer keeps beside one row."""
    return {
        TableOptimizer.SGD: 0,
        TableOptimizer.ROW_WISE_ADAGRAD: 1,
        TableOptimizer.ADAGRAD: num_columns,
    }[optimizer]


@dataclass(frozen=True)
class Shard(Plain):
    """What one rank holds of one table."""

    json_names: ClassVar = {"num_rows": "rows", "num_columns": "columns", "num_bytes": "bytes"}

    table: int
    rank: int
    scheme: TableScheme
    num_rows: int
    num_columns: int
    num_bytes: int  # with what the optimizer keeps, wherever it is
    tier: MemoryTier = MemoryTier.HBM
    cached: float = 1.0  # share of its rows, the most used, that HBM has
    share: float = 1.0  # of the table's lookups

    @property
    def device_bytes(self) -> int:
        """Bytes of it in HBM."""
        return (
            self.num_bytes if self.tier is MemoryTier.HBM else round(self.cached * self.num_bytes)
        )


@dataclass(frozen=True, repr=False)
class PlacedTables(Answer):
    """All shards of a model's tables."""

    json_only: ClassVar = ("model.name", "num_ranks", "ranks_per_host", "bytes_by_rank", "shards")
    json_names: ClassVar = {"model.name": "model"}

    model: Recommender
    sharding: TableSharding
    num_ranks: int
    ranks_per_host: int
    shards: tuple[Shard, ...]  # by table, then by rank, or by column as stated
    laws: tuple[AccessLaw, ...]  # how often rows are looked up, by table

    @property
    def bytes_by_rank(self) -> tuple[int, ...]:
        """Bytes of tables and of their optimizer in each rank's HBM."""
        totals = [0] * self.num_ranks
        for shard in self.shards:
            totals[shard.rank] += shard.device_bytes
        return tuple(totals)

    def bytes_outside(self, tier: MemoryTier) -> tuple[int, ...]:
        """Bytes that each rank's shards take of a tier besides HBM: whole, cached or not."""
        totals = [0] * self.num_ranks
        for shard in self.shards:
            totals[shard.rank] += shard.num_bytes * (shard.tier is tier)
        return tuple(totals)

    @cached_property
    def _by_place(self) -> Mapping[tuple[int, TableScheme], tuple[Shard, ...]]:
        """Shards by rank and scheme, by table."""
        found: dict[tuple[int, TableScheme], list[Shard]] = {}
        for one in self.shards:
            found.setdefault((one.rank, one.scheme), []).append(one)
        return {place: tuple(shards) for place, shards in found.items()}

    def of_rank(self, rank: int, scheme: TableScheme) -> tuple[Shard, ...]:
        """Shards of one rank by one scheme, by table."""
        return self._by_place.get((rank, scheme), ())

    def scheme_of(self, table: int) -> TableScheme:
        """How a table is divided."""
        return next(one.scheme for one in self.shards if one.table == table)

    def places(self) -> tuple[TablePlace, ...]:
        """Where every table is, as a sharding states it."""
        if self.sharding.places:
            return self.sharding.places
        found: dict[int, list[Shard]] = {}
        for one in self.shards:
            found.setdefault(one.table, []).append(one)
        return tuple(_place(table, own) for table, own in sorted(found.items()))

    def lookups_by_rank(self, batch: int) -> tuple[float, ...]:
        """Rows that each rank reads in one forward pass with so many samples a rank."""
        totals = [0.0] * self.num_ranks
        for shard in self.shards:
            totals[shard.rank] += self.lookups(shard, batch)
        return tuple(totals)

    def lookups(self, shard: Shard, batch: int) -> float:
        """Rows that are read from one shard in one forward pass."""
        samples = batch if shard.scheme is TableScheme.DATA else batch * self.num_ranks
        return samples * self.model.pooling[shard.table] * shard.share

    def missed(self, shard: Shard, batch: int) -> float:
        """Lookups of one forward pass whose rows HBM does not have."""
        if shard.tier is MemoryTier.HBM:
            return 0.0
        cached = shard.cached * self.model.rows[shard.table]
        hit = self.laws[shard.table].top_share(cached)
        return self.lookups(shard, batch) * (1 - hit)

    def fetched(self, shard: Shard, batch: int) -> float:
        """Rows that come from outside HBM in one forward pass.

        Into a cache every row comes once, and goes back, beside others that come, when it has to
        make room; without one it comes for each lookup.
        """
        if shard.tier is MemoryTier.HBM or not shard.cached:
            return self.missed(shard, batch)
        return self._distinct(shard, batch, shard.cached * self.model.rows[shard.table])

    def outside_bytes(self, tier: MemoryTier, shards: tuple[Shard, ...], batch: int) -> float:
        """Bytes that come from a tier besides HBM in one forward pass."""
        own = [one for one in shards if one.tier is tier]
        return sum(self.fetched(one, batch) * self._row_bytes(one) for one in own)

    def updated_bytes(self, tier: MemoryTier, shards: tuple[Shard, ...], batch: int) -> float:
        """Bytes that updates read from a tier besides HBM, and write to it: where no cache is."""
        own = [one for one in shards if one.tier is tier and not one.cached]
        return sum(self._distinct(one, batch, 0.0) * self._row_bytes(one) for one in own)

    def _distinct(self, shard: Shard, batch: int, beyond: float) -> float:
        num_lookups = self.lookups(shard, batch) / shard.share if shard.share else 0.0
        return shard.share * self.laws[shard.table].distinct(num_lookups, beyond=beyond)

    def _row_bytes(self, shard: Shard) -> float:
        """Bytes of one row on its way, with what the optimizer keeps of it."""
        number_bytes = known_format(self.sharding.number_format).num_bytes
        states = states_of_row(self.sharding.optimizer, shard.num_columns)
        num_bytes = shard.num_columns * number_bytes + STATE_BYTES * states
        return max(num_bytes, _BLOCK_BYTES) if shard.tier is MemoryTier.SSD else num_bytes

    @property
    def headline(self) -> str:
        """What the fullest rank holds."""
        tables = count_text(len({one.table for one in self.shards}), "table")
        fullest = bytes_text(max(self.bytes_by_rank))
        ranks = count_text(self.num_ranks, "rank")
        return f"{tables} of {self.model.name} on {ranks}: {fullest} at most"

    def parts(self) -> tuple[Told, ...]:
        """Every shard."""
        return (
            Table.of(
                "shards",
                self.shards,
                Column("table", unit=Unit.IDENTIFIER),
                Column("rank"),
                Column("scheme", unit=Unit.WORD, value="scheme.value"),
                Column("rows", unit=Unit.COUNT, value="num_rows"),
                Column("columns", unit=Unit.COUNT, value="num_columns"),
                Column("bytes", value="num_bytes"),
                Column("tier", unit=Unit.WORD, value="tier.value"),
                Column("cached", unit=Unit.SHARE),
                Column("share", unit=Unit.SHARE),
            ),
        )


def _place(table: int, shards: list[Shard]) -> TablePlace:
    first = shards[0]
    ranks = tuple(one.rank for one in shards)
    if first.scheme in {TableScheme.ROW, TableScheme.DATA}:
        ranks = ()
    elif first.scheme is TableScheme.TABLE_ROW:
        ranks = ranks[:1]
    return TablePlace(table, first.scheme, ranks, first.tier, first.cached)

"""`place_tables`: every table of a model becomes shards, and every shard gets a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrace.base import WorkloadError
from foretrace.workload.models.memory import bytes_of_number
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.sharding.balance import differencing, greedy
from foretrace.workload.sharding.planner import LookupWork, PlannerRates, shard_cost
from foretrace.workload.sharding.tables import (
    Balance,
    TableOptimizer,
    TableScheme,
    TableSharding,
)

if TYPE_CHECKING:
    import polars as pl

_STATE_BYTES = 4  # of one number of an optimizer: kept in 32 bit
_WHOLE = frozenset((TableScheme.TABLE, TableScheme.COLUMN))  # dealt piece by piece
_SHOWN = 5  # tables that an error names at most


@dataclass(frozen=True)
class Shard:
    """What one rank holds of one table."""

    table: int
    rank: int
    scheme: TableScheme
    num_rows: int
    num_columns: int
    num_bytes: int  # with what the optimizer keeps


@dataclass(frozen=True)
class PlacedTables:
    """All shards of a model's tables."""

    model: Recommender
    sharding: TableSharding
    num_ranks: int
    ranks_per_host: int
    shards: tuple[Shard, ...]  # by table, then by rank

    @property
    def bytes_by_rank(self) -> tuple[int, ...]:
        """Bytes of tables and of their optimizer on each rank."""
        totals = [0] * self.num_ranks
        for shard in self.shards:
            totals[shard.rank] += shard.num_bytes
        return tuple(totals)

    def of_rank(self, rank: int, *schemes: TableScheme) -> tuple[Shard, ...]:
        """Shards of one rank by these schemes, by table."""
        return tuple(one for one in self.shards if one.rank == rank and one.scheme in schemes)

    def scheme_of(self, table: int) -> TableScheme:
        """How a table is divided."""
        return next(one.scheme for one in self.shards if one.table == table)

    def lookups_by_rank(self, batch: int) -> tuple[float, ...]:
        """Rows that each rank reads in one forward pass with so many samples a rank.

        Ids are taken to be spread evenly over a table's rows where these are divided.
        """
        totals = [0.0] * self.num_ranks
        for shard in self.shards:
            totals[shard.rank] += self.lookups(shard, batch)
        return tuple(totals)

    def lookups(self, shard: Shard, batch: int) -> float:
        """Rows that are read from one shard in one forward pass."""
        samples = batch if shard.scheme is TableScheme.DATA else batch * self.num_ranks
        share = {
            TableScheme.ROW: self.num_ranks,
            TableScheme.TABLE_ROW: self.ranks_per_host,
        }.get(shard.scheme, 1)
        return samples * self.model.pooling[shard.table] / share

    def to_frame(self) -> pl.DataFrame:
        """One row a shard: `table`, `rank`, `scheme`, `rows`, `columns`, `bytes`."""
        import polars as pl  # slow to import, wanted in tables only

        return pl.DataFrame(
            [
                (
                    one.table,
                    one.rank,
                    one.scheme.value,
                    one.num_rows,
                    one.num_columns,
                    one.num_bytes,
                )
                for one in self.shards
            ],
            schema={
                "table": pl.Int64,
                "rank": pl.Int64,
                "scheme": pl.String,
                "rows": pl.Int64,
                "columns": pl.Int64,
                "bytes": pl.Int64,
            },
            orient="row",
        )

    def as_json(self) -> dict[str, object]:
        """Bytes of every rank, and all shards."""
        return {
            "model": self.model.name,
            "num_ranks": self.num_ranks,
            "ranks_per_host": self.ranks_per_host,
            "bytes_by_rank": list(self.bytes_by_rank),
            "shards": self.to_frame().to_dicts(),
        }


def place_tables(
    model: Recommender,
    sharding: TableSharding,
    *,
    num_ranks: int,
    batch: int,
    ranks_per_host: int | None = None,
    rates: PlannerRates | None = None,
) -> PlacedTables:
    """Where every table of a model stands.

    Tables that every rank holds a part of come first; the others are dealt to what load these
    leave equal, by cost. With the differencing method room is checked afterwards.

    Args:
        model: its tables.
        sharding: how they are divided.
        num_ranks: of the job.
        batch: samples of one rank.
        ranks_per_host: ranks that share a host; all of them if left out.
        rates: what costs are reckoned with; TorchRec's if left out.

    Raises:
        WorkloadError: if the sharding does not fit the model, or the tables not the ranks.
    """
    inside = num_ranks if ranks_per_host is None else ranks_per_host
    if num_ranks < 1 or inside < 1 or num_ranks % inside:
        raise WorkloadError(
            f"{num_ranks} ranks cannot be divided into hosts of {inside}: the second number must "
            "divide the first"
        )
    schemes = _schemes(model, sharding)
    placing = _Placing(model, sharding, num_ranks, inside)
    cost_work = {
        table: LookupWork(
            batch=batch,
            num_ranks=num_ranks,
            ranks_per_host=inside,
            pooling=model.pooling[table]
            if sharding.assumed_pooling is None
            else sharding.assumed_pooling,
            number_bytes=placing.number_bytes,
            id_bytes=sharding.id_bytes,
        )
        for table in range(model.num_tables)
    }
    spread = placing.spread(schemes)
    pieces, costs = [], []
    for table, scheme in enumerate(schemes):
        if scheme not in {*_WHOLE, TableScheme.TABLE_ROW}:
            continue
        for columns in placing.pieces(table, scheme):
            pieces.append((table, columns))
            cost = shard_cost(
                scheme,
                cost_work[table],
                num_rows=model.rows[table],
                num_columns=columns,
                rates=rates,
            )
            costs.append(cost.total_ns)
    dealt = placing.dealt(pieces, costs, schemes=schemes, spread=spread)
    shards = tuple(sorted([*spread, *dealt], key=lambda one: (one.table, one.rank)))
    return _checked(PlacedTables(model, sharding, num_ranks, inside, shards))


def _schemes(model: Recommender, sharding: TableSharding) -> list[TableScheme]:
    named = dict(sharding.exceptions)
    wrong = sorted(set(named) - set(range(model.num_tables)))
    if wrong:
        raise WorkloadError(
            f"table {wrong[0]} of the sharding's exceptions does not exist: {model.name!r} has "
            f"tables 0 to {model.num_tables - 1}"
        )
    small = sharding.data_parallel_rows
    otherwise = [TableScheme.DATA if rows <= small else sharding.scheme for rows in model.rows]
    return [named.get(table, scheme) for table, scheme in enumerate(otherwise)]


@dataclass(frozen=True)
class _Placing:
    model: Recommender
    sharding: TableSharding
    num_ranks: int
    ranks_per_host: int

    @property
    def number_bytes(self) -> float:
        return bytes_of_number(self.sharding.number_format)

    def shard(self, table: int, rank: int, scheme: TableScheme, size: tuple[int, int]) -> Shard:
        rows, columns = size
        kept = {
            TableOptimizer.SGD: 0,
            TableOptimizer.ROW_WISE_ADAGRAD: rows,
            TableOptimizer.ADAGRAD: rows * columns,
        }[self.sharding.optimizer]
        num_bytes = round(rows * columns * self.number_bytes) + _STATE_BYTES * kept
        return Shard(table, rank, scheme, rows, columns, num_bytes)

    def spread(self, schemes: Sequence[TableScheme]) -> list[Shard]:
        """Shards of tables that every rank holds whole, or rows of."""
        size = self.model.size
        found = []
        for table, scheme in enumerate(schemes):
            rows = self.model.rows[table]
            for rank in range(self.num_ranks):
                if scheme is TableScheme.DATA:
                    found.append(self.shard(table, rank, scheme, (rows, size)))
                if scheme is TableScheme.ROW:
                    part = _part(rows, rank, self.num_ranks)
                    found.append(self.shard(table, rank, scheme, (part, size)))
        return found

    def pieces(self, table: int, scheme: TableScheme) -> list[int]:
        """Columns of each piece that is dealt on its own."""
        size, width = self.model.size, self.sharding.column_width
        if scheme is not TableScheme.COLUMN or size <= width:
            return [size]
        if size % width:
            raise WorkloadError(
                f"table {table} has {size} columns, which pieces of {width} do not divide: "
                f"{size} = {size // width} x {width} + {size % width}; choose a column width that "
                f"divides {size}"
            )
        return [width] * (size // width)

    def dealt(
        self,
        pieces: Sequence[tuple[int, int]],
        costs: Sequence[float],
        *,
        schemes: Sequence[TableScheme],
        spread: Sequence[Shard],
    ) -> list[Shard]:
        """Shards of pieces that one rank, or one host, holds."""
        found: list[Shard] = []
        for is_host in (True, False):
            chosen = [
                at
                for at, (table, _) in enumerate(pieces)
                if (schemes[table] is TableScheme.TABLE_ROW) == is_host
            ]
            if chosen:
                bins = self._bins(
                    [pieces[at] for at in chosen],
                    [costs[at] for at in chosen],
                    taken=[*spread, *found],
                    is_host=is_host,
                )
                for at, place in zip(chosen, bins, strict=True):
                    found += self._shards(pieces[at], schemes, place)
        return found

    def _shards(
        self, piece: tuple[int, int], schemes: Sequence[TableScheme], place: int
    ) -> list[Shard]:
        table, columns = piece
        scheme, rows = schemes[table], self.model.rows[table]
        if scheme is not TableScheme.TABLE_ROW:
            return [self.shard(table, place, scheme, (rows, columns))]
        inside = self.ranks_per_host
        return [
            self.shard(table, place * inside + at, scheme, (_part(rows, at, inside), columns))
            for at in range(inside)
        ]

    def _bins(
        self,
        pieces: Sequence[tuple[int, int]],
        costs: Sequence[float],
        *,
        taken: Sequence[Shard],
        is_host: bool,
    ) -> list[int]:
        num_bins = self.num_ranks // self.ranks_per_host if is_host else self.num_ranks
        if self.sharding.balance is Balance.DIFFERENCING:
            return differencing(costs, num_bins)
        # Of a host's rank: rows are divided among them.
        share = self.ranks_per_host if is_host else 1
        largest = [
            self.shard(table, 0, TableScheme.TABLE, (-(-self.model.rows[table] // share), columns))
            for table, columns in pieces
        ]
        sizes = [one.num_bytes for one in largest]
        room = None
        if self.sharding.capacity_bytes is not None:
            used = [0] * num_bins
            for one in taken:
                used[one.rank // share] += one.num_bytes
            room = [self.sharding.capacity_bytes - each // share for each in used]
        bins = greedy(costs, num_bins, sizes=sizes, room=room)
        if -1 in bins:
            raise self._no_room(pieces[bins.index(-1)][0], sizes[bins.index(-1)])
        return bins

    def _no_room(self, table: int, size: int) -> WorkloadError:
        capacity = self.sharding.capacity_bytes or 0
        rows, columns = self.model.rows[table], self.model.size
        return WorkloadError(
            f"no rank has room for a piece of table {table}: {rows:,} rows x {columns} columns, a "
            f"piece of {size:,} bytes with its optimizer; a rank has {capacity:,} bytes for all "
            f"of its tables; divide the table by rows, or take more than {self.num_ranks} ranks"
        )


def _part(rows: int, at: int, num_parts: int) -> int:
    """Rows of one part: parts are as large as the first but the last ones, as in TorchRec."""
    block = -(-rows // num_parts)
    return max(0, min(block, rows - at * block))


def _checked(placed: PlacedTables) -> PlacedTables:
    capacity = placed.sharding.capacity_bytes
    totals = placed.bytes_by_rank
    fullest = max(range(placed.num_ranks), key=lambda rank: totals[rank])
    if capacity is None or totals[fullest] <= capacity:
        return placed
    held = sorted(placed.of_rank(fullest, *TableScheme), key=lambda one: -one.num_bytes)
    named = ", ".join(f"table {one.table}: {one.num_bytes:,}" for one in held[:_SHOWN])
    raise WorkloadError(
        f"tables of {placed.model.name!r} do not fit rank {fullest} of {placed.num_ranks}: "
        f"{totals[fullest]:,} bytes of {capacity:,} ({named}); all ranks hold "
        f"{sum(totals):,} together; divide tables by rows, or take more ranks"
    )

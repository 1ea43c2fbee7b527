"""`place_tables`: every table of a model becomes shards, and every shard gets a rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from foretrace.answer import Answer, Column, Plain, Table, Told, Unit, bytes_text, count_text
from foretrace.base import WorkloadError, known_format
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.sharding.balance import differencing, greedy
from foretrace.workload.sharding.shard_costs import LookupWork, PlannerRates, shard_cost
from foretrace.workload.sharding.tables import (
    Balance,
    TableOptimizer,
    TableScheme,
    TableSharding,
)

_STATE_BYTES = 4  # of one number of an optimizer: kept in 32 bit
_ON_RANKS = frozenset((TableScheme.TABLE, TableScheme.COLUMN))
_ON_HOSTS = frozenset((TableScheme.TABLE_ROW,))
_SHOWN = 5  # tables that an error names at most


@dataclass(frozen=True)
class Shard(Plain):
    """What one rank holds of one table."""

    json_names: ClassVar = {"num_rows": "rows", "num_columns": "columns", "num_bytes": "bytes"}

    table: int
    rank: int
    scheme: TableScheme
    num_rows: int
    num_columns: int
    num_bytes: int  # with what the optimizer keeps


@dataclass(frozen=True, repr=False)
class PlacedTables(Answer):
    """All shards of a model's tables."""

    json_only: ClassVar = ("model.name", "num_ranks", "ranks_per_host", "bytes_by_rank", "shards")
    json_names: ClassVar = {"model.name": "model"}

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
        return samples * self.model.pooling[shard.table] / self.num_parts(shard.scheme)

    def num_parts(self, scheme: TableScheme) -> int:
        """Ranks that the rows of a table by this scheme are divided among."""
        if scheme is TableScheme.ROW:
            return self.num_ranks
        return self.ranks_per_host if scheme is TableScheme.TABLE_ROW else 1

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
            ),
        )


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

    Tables that every rank holds a part of come first, then those of hosts; the others are dealt by
    cost to ranks that have least. The differencing method looks at neither what is there nor at
    room, which is checked afterwards.

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
    placing = _Placing(
        model,
        sharding,
        num_ranks,
        inside,
        batch=batch,
        rates=rates or PlannerRates(),
        schemes=_schemes(model, sharding),
    )
    spread = placing.spread()
    shards = [*spread, *placing.dealt(spread)]
    shards.sort(key=lambda one: (one.table, one.rank))
    return _checked(PlacedTables(model, sharding, num_ranks, inside, tuple(shards)))


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
class _Piece:
    """What is dealt to one rank, or one host."""

    table: int
    num_columns: int
    cost_ns: float


@dataclass(frozen=True)
class _Placing:
    model: Recommender
    sharding: TableSharding
    num_ranks: int
    ranks_per_host: int
    batch: int
    rates: PlannerRates
    schemes: Sequence[TableScheme]  # of each table

    @cached_property
    def number_bytes(self) -> float:
        return known_format(self.sharding.number_format).num_bytes

    def shard(self, table: int, rank: int, size: tuple[int, int]) -> Shard:
        rows, columns = size
        kept = {
            TableOptimizer.SGD: 0,
            TableOptimizer.ROW_WISE_ADAGRAD: rows,
            TableOptimizer.ADAGRAD: rows * columns,
        }[self.sharding.optimizer]
        num_bytes = round(rows * columns * self.number_bytes) + _STATE_BYTES * kept
        return Shard(table, rank, self.schemes[table], rows, columns, num_bytes)

    def spread(self) -> list[Shard]:
        """Shards of tables that every rank holds whole, or rows of."""
        size, ranks = self.model.size, range(self.num_ranks)
        found = []
        for table, scheme in enumerate(self.schemes):
            rows = self.model.rows[table]
            if scheme is TableScheme.DATA:
                found += [self.shard(table, rank, (rows, size)) for rank in ranks]
            if scheme is TableScheme.ROW:
                parts = [_part(rows, rank, self.num_ranks) for rank in ranks]
                found += [self.shard(table, rank, (parts[rank], size)) for rank in ranks]
        return found

    def dealt(self, spread: Sequence[Shard]) -> list[Shard]:
        """Shards of what one host holds, then of what one rank holds."""
        found: list[Shard] = []
        loads = [0.0] * self.num_ranks
        for schemes, inside in ((_ON_HOSTS, self.ranks_per_host), (_ON_RANKS, 1)):
            pieces = [
                piece
                for table, scheme in enumerate(self.schemes)
                if scheme in schemes
                for piece in self.pieces(table)
            ]
            begin = loads[::inside]
            bins = self.bins(pieces, begin, taken=[*spread, *found]) if pieces else []
            for piece, place in zip(pieces, bins, strict=True):
                rows = self.model.rows[piece.table]
                for at in range(inside):
                    size = (_part(rows, at, inside), piece.num_columns)
                    rank = place * inside + at
                    found.append(self.shard(piece.table, rank, size))
                    loads[rank] += piece.cost_ns
        return found

    def pieces(self, table: int) -> list[_Piece]:
        """What of a table is dealt on its own: all of it, or some columns."""
        size, width = self.model.size, self.sharding.column_width
        if self.schemes[table] is not TableScheme.COLUMN or size <= width:
            return [self.piece(table, size)]
        if size % width:
            raise WorkloadError(
                f"table {table} has {size} columns, which pieces of {width} do not divide: "
                f"{size} = {size // width} x {width} + {size % width}; choose a column width that "
                f"divides {size}"
            )
        return [self.piece(table, width)] * (size // width)

    def piece(self, table: int, num_columns: int) -> _Piece:
        assumed = self.sharding.assumed_pooling
        work = LookupWork(
            batch=self.batch,
            num_ranks=self.num_ranks,
            ranks_per_host=self.ranks_per_host,
            pooling=self.model.pooling[table] if assumed is None else assumed,
            number_bytes=self.number_bytes,
            id_bytes=self.sharding.id_bytes,
        )
        cost = shard_cost(
            self.schemes[table],
            work,
            num_rows=self.model.rows[table],
            num_columns=num_columns,
            rates=self.rates,
        )
        return _Piece(table, num_columns, cost.total_ns)

    def bins(
        self, pieces: Sequence[_Piece], loads: Sequence[float], *, taken: Sequence[Shard]
    ) -> list[int]:
        """A host or a rank for each piece; as many as there are loads to begin with."""
        num_bins = len(loads)
        inside = self.num_ranks // num_bins
        costs = [piece.cost_ns for piece in pieces]
        if self.sharding.balance is Balance.DIFFERENCING:
            return differencing(costs, num_bins)
        # On each of a host's ranks.
        largest = [
            self.shard(
                piece.table, 0, (-(-self.model.rows[piece.table] // inside), piece.num_columns)
            )
            for piece in pieces
        ]
        sizes = [one.num_bytes for one in largest]
        room = self.room(num_bins, inside, taken)
        bins = greedy(costs, num_bins, sizes=sizes, room=room, loads=loads)
        if -1 in bins:
            raise self.no_room(pieces[bins.index(-1)].table, sizes[bins.index(-1)])
        return bins

    def room(self, num_bins: int, inside: int, taken: Sequence[Shard]) -> list[int] | None:
        """Bytes that are left on a rank of each bin."""
        if self.sharding.capacity_bytes is None:
            return None
        used = [0] * num_bins
        for one in taken:
            used[one.rank // inside] += one.num_bytes
        return [self.sharding.capacity_bytes - each // inside for each in used]

    def no_room(self, table: int, size: int) -> WorkloadError:
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
    own = [one for one in placed.shards if one.rank == fullest]
    held = sorted(own, key=lambda one: -one.num_bytes)
    named = ", ".join(f"table {one.table}: {one.num_bytes:,}" for one in held[:_SHOWN])
    raise WorkloadError(
        f"tables of {placed.model.name!r} do not fit rank {fullest} of {placed.num_ranks}: "
        f"{totals[fullest]:,} bytes of {capacity:,} ({named}); all ranks hold "
        f"{sum(totals):,} together; divide tables by rows, or take more ranks"
    )

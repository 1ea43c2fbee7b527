"""`place_tables`: every table of a model becomes shards, and every shard gets a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from foretrace.base import WorkloadError, known_format
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.plan.plan import Plan
from foretrace.workload.sharding.access import AccessLaw, access_laws
from foretrace.workload.sharding.balance import differencing, greedy
from foretrace.workload.sharding.placed import STATE_BYTES, PlacedTables, Shard, states_of_row
from foretrace.workload.sharding.shard_costs import LookupWork, PlannerRates, shard_cost
from foretrace.workload.sharding.tables import (
    Balance,
    MemoryTier,
    TablePlace,
    TableScheme,
    TableSharding,
)

_ON_RANKS = frozenset((TableScheme.TABLE, TableScheme.COLUMN))
_ON_HOSTS = frozenset((TableScheme.TABLE_ROW,))
_SHOWN = 5  # tables that an error names at most


def place_tables(
    model: Recommender,
    sharding: TableSharding,
    *,
    num_ranks: int,
    batch: int,
    ranks_per_host: int | None = None,
    rates: PlannerRates | None = None,
    laws: Sequence[AccessLaw] | None = None,
    seeds: Sequence[int] | None = None,
) -> PlacedTables:
    """Where every table of a model stands.

    As the sharding's places say, where it has any; else by its rules.

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
        laws: how often rows are looked up; as the sharding's ids say, if left out.
        seeds: of each table, what its most used rows are scattered by; its number, if left out.

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
        laws=tuple(laws or access_laws(sharding.ids, model.rows)),
        seeds=seeds or range(model.num_tables),
    )
    if sharding.places:
        shards = [shard for place in sharding.places for shard in placing.placed(place)]
    else:
        spread = placing.spread()
        shards = [*spread, *placing.dealt(spread)]
        shards.sort(key=lambda one: (one.table, one.rank))
    return _checked(PlacedTables(model, sharding, num_ranks, inside, tuple(shards), placing.laws))


def tables_of_plan(
    model: Recommender, plan: Plan, tables: TableSharding | None = None
) -> PlacedTables:
    """Where a plan has a model's tables.

    Args:
        model: its tables.
        plan: of the job.
        tables: how they are divided; as `plan.tables` says if left out.

    Raises:
        WorkloadError: if the tables do not fit the plan.
    """
    return place_tables(
        model,
        tables or plan.tables or TableSharding(),
        num_ranks=plan.data,
        batch=plan.micro_batch,
        ranks_per_host=plan.shard_ranks,
    )


def _schemes(model: Recommender, sharding: TableSharding) -> list[TableScheme]:
    if sharding.places:
        return _stated_schemes(model, sharding.places)
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


def _stated_schemes(model: Recommender, places: Sequence[TablePlace]) -> list[TableScheme]:
    stated = [one.table for one in places]
    if stated != list(range(model.num_tables)):
        missing = sorted(set(range(model.num_tables)) - set(stated))
        what = f"leave out table {missing[0]}" if missing else f"are of tables {stated[:_SHOWN]}..."
        raise WorkloadError(
            f"places of tables {what}: expected one for each of the {model.num_tables} tables of "
            f"{model.name!r}, in order"
        )
    return [one.scheme for one in places]


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
    laws: tuple[AccessLaw, ...]  # so too
    seeds: Sequence[int]  # so too

    @cached_property
    def number_bytes(self) -> float:
        return known_format(self.sharding.number_format).num_bytes

    def shard(self, table: int, rank: int, size: tuple[int, int], *, share: float = 1.0) -> Shard:
        rows, columns = size
        kept = rows * states_of_row(self.sharding.optimizer, columns)
        num_bytes = round(rows * columns * self.number_bytes) + STATE_BYTES * kept
        scheme = self.schemes[table]
        return Shard(table, rank, scheme, rows, columns, num_bytes, share=share)

    def rows_over(self, table: int, ranks: Sequence[int], columns: int) -> list[Shard]:
        """Rows of a table, or of some columns, in as many parts as there are ranks."""
        rows, count = self.model.rows[table], len(ranks)
        shares = self.laws[table].part_shares(count, seed=self.seeds[table]).tolist()
        return [
            self.shard(table, rank, (_part(rows, at, count), columns), share=shares[at])
            for at, rank in enumerate(ranks)
        ]

    def placed(self, place: TablePlace) -> list[Shard]:
        """Shards of a table whose place is stated."""
        rows, size = self.model.rows[place.table], self.model.size
        self.check(place)
        if place.scheme is TableScheme.DATA:
            found = [self.shard(place.table, rank, (rows, size)) for rank in range(self.num_ranks)]
        elif place.scheme is TableScheme.ROW:
            found = self.rows_over(place.table, range(self.num_ranks), size)
        elif place.scheme is TableScheme.TABLE_ROW:
            first = place.ranks[0]
            found = self.rows_over(place.table, range(first, first + self.ranks_per_host), size)
        else:
            width = size // len(place.ranks)
            found = [self.shard(place.table, rank, (rows, width)) for rank in place.ranks]
        if place.tier is MemoryTier.HBM:
            return found
        return [replace(one, tier=place.tier, cached=place.cached) for one in found]

    def check(self, place: TablePlace) -> None:
        """Refuse a place that the job has not."""
        named = f"table {place.table} is {place.scheme.value} on ranks {list(place.ranks)}"
        everywhere = place.scheme in {TableScheme.DATA, TableScheme.ROW}
        most = self.model.size if place.scheme is TableScheme.COLUMN else 1
        if everywhere and not set(place.ranks) <= set(range(self.num_ranks)):
            raise WorkloadError(f"{named}, and there are ranks 0 to {self.num_ranks - 1}")
        if not everywhere and not (
            1 <= len(place.ranks) <= most
            and 0 <= min(place.ranks) <= max(place.ranks) < self.num_ranks
        ):
            raise WorkloadError(
                f"{named}: expected {'some' if most > 1 else 'one'} of ranks 0 to "
                f"{self.num_ranks - 1}"
            )
        if place.scheme is TableScheme.COLUMN and self.model.size % len(place.ranks):
            raise WorkloadError(
                f"{named}, {len(place.ranks)} pieces, which do not divide {self.model.size} columns"
            )
        if place.scheme is TableScheme.TABLE_ROW and place.ranks[0] % self.ranks_per_host:
            raise WorkloadError(
                f"{named}: expected the first rank of a host, a multiple of {self.ranks_per_host}"
            )
        if not 0 <= place.cached <= 1:
            raise WorkloadError(
                f"table {place.table} has {place.cached} of its rows in HBM: 0 to 1"
            )
        if place.scheme is TableScheme.DATA and place.tier is not MemoryTier.HBM:
            raise WorkloadError(
                f"table {place.table} is on every rank and in {place.tier.value}: PyTorch keeps "
                "such tables in HBM; divide it, or leave the tier out"
            )

    def spread(self) -> list[Shard]:
        """Shards of tables that every rank holds whole, or rows of."""
        size, ranks = self.model.size, range(self.num_ranks)
        found = []
        for table, scheme in enumerate(self.schemes):
            rows = self.model.rows[table]
            if scheme is TableScheme.DATA:
                found += [self.shard(table, rank, (rows, size)) for rank in ranks]
            if scheme is TableScheme.ROW:
                found += self.rows_over(table, ranks, size)
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
                ranks = range(place * inside, (place + 1) * inside)
                found += self.rows_over(piece.table, ranks, piece.num_columns)
                for rank in ranks:
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
            used[one.rank // inside] += one.device_bytes
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
    held = sorted(own, key=lambda one: -one.device_bytes)
    named = ", ".join(f"table {one.table}: {one.device_bytes:,}" for one in held[:_SHOWN])
    raise WorkloadError(
        f"tables of {placed.model.name!r} do not fit rank {fullest} of {placed.num_ranks}: "
        f"{totals[fullest]:,} bytes of {capacity:,} ({named}); all ranks hold "
        f"{sum(totals):,} together; divide tables by rows, or take more ranks"
    )

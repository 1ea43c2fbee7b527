"""`TableAccount`: what placing tables costs, as sums over ranks: for thousands of moves a second.

Every way to place a table (scheme, tier, cached share) has rows of resources: time in the forward
and in the backward pass, numbers exchanged, bytes of each tier. Ranks add up rows; a step waits for
the fullest rank of each. Times are affine in lookups, bags and columns; their coefficients are
those that the blocks of a small model and the cost model give. What decides in the end is the
simulated step (`table_steps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from foretrace.base import Float64s, WorkloadError, known_format
from foretrace.cost import CostModel
from foretrace.search.bound import Prices
from foretrace.workload import (
    EVEN_IDS,
    AccessLaw,
    Block,
    Exchange,
    MemoryTier,
    Operator,
    PlacedTables,
    Plan,
    Recommender,
    Shard,
    TablePlace,
    TableScheme,
    TableSharding,
    access_laws,
    blocks_of_recommender,
    place_tables,
)

_EXCHANGED = tuple(scheme for scheme in TableScheme if scheme is not TableScheme.DATA)
# Rows of resources: forward, backward, then for each scheme pooled numbers and ids, then bytes.
FORWARD, BACKWARD = 0, 1
POOLED = {scheme: 2 + 2 * at for at, scheme in enumerate(_EXCHANGED)}
IDS = {scheme: 3 + 2 * at for at, scheme in enumerate(_EXCHANGED)}
NUM_TIMED = 2 + 2 * len(_EXCHANGED)
BYTES = {tier: NUM_TIMED + at for at, tier in enumerate(MemoryTier)}
NUM_RESOURCES = NUM_TIMED + len(MemoryTier)
# Shares of rows, the most used, that are tried in HBM for tables outside it.
CACHED = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)
_SMALL = 1e-3  # of a rank's room: tables below are in HBM
_MOST_COPIED = 0.05  # of a rank's room: tables above are not on every rank

# Tables whose work coefficients are found from: columns over the model's, lookups, rows.
_PROBES = ((1, 1, 10), (1, 40, 10), (2, 1, 10), (2, 40, 1000), (1, 9, 5000), (2, 90, 10))
_OUTSIDE = " rows from "

_ON_TABLES = (*(scheme.value for scheme in TableScheme), "replicated tables")


@dataclass(frozen=True)
class TableOption:
    """One way to place a table, up to the ranks."""

    scheme: TableScheme
    tier: MemoryTier = MemoryTier.HBM
    cached: float = 1.0
    num_pieces: int = 1

    def place(self, table: int, ranks: Sequence[int]) -> TablePlace:
        """The place that it is on some ranks."""
        return TablePlace(table, self.scheme, tuple(ranks), self.tier, self.cached)


@dataclass(frozen=True)
class Costed:
    """An option of one table with what it takes of each rank that it is on."""

    option: TableOption
    # float64[ranks of one place, resources]: of a piece one row, of rows in a host one for each of
    # its ranks, of what all have a part of one for each rank.
    rows: Float64s
    copied: float = 0.0  # numbers whose gradients all ranks add up

    @property
    def total(self) -> Float64s:
        """All ranks together; float64[resources]."""
        found: Float64s = self.rows.sum(axis=0) * self.option.num_pieces
        return found


@dataclass(frozen=True)
class TableRoom:
    """Bytes for tables: of HBM on a rank, of the others on a host."""

    hbm: float
    host: float
    ssd: float
    num_ranks: int
    ranks_per_host: int

    @property
    def num_hosts(self) -> int:
        """Of the job."""
        return self.num_ranks // self.ranks_per_host


@dataclass(frozen=True)
class _Line:
    """Time as a start and a slope."""

    start_ns: float
    slope: float

    def at(self, size: float) -> float:
        return self.start_ns + self.slope * size if size > 0 else 0.0


@dataclass(frozen=True)
class TableAccount:
    """Costs of all options of all tables."""

    model: Recommender
    plan: Plan
    room: TableRoom
    options: tuple[tuple[Costed, ...], ...]  # of each table
    exchange: tuple[_Line, ...]  # by resource, of the fullest rank's numbers; of times: themselves
    copied: _Line  # all-reduce of so many numbers

    def value(self, loads: Float64s, copied: float) -> float:
        """Time of tables in a step, in ns: each resource's fullest rank.

        Args:
            loads: float64[ranks, resources].
            copied: numbers of tables on every rank.
        """
        return float(self.values(loads[None], copied)[0])

    def values(self, loads: Float64s, copied: float) -> Float64s:
        """The same of several; loads are float64[cases, ranks, resources]."""
        fullest = loads[..., :NUM_TIMED].max(axis=1)
        found: Float64s = (self._starts * (fullest > 0) + self._slopes * fullest).sum(axis=1)
        return found + self.copied.at(copied)

    @cached_property
    def _starts(self) -> Float64s:
        return np.array([one.start_ns for one in self.exchange])

    @cached_property
    def _slopes(self) -> Float64s:
        return np.array([one.slope for one in self.exchange])

    @cached_property
    def slopes(self) -> Float64s:
        """Time of each resource's unit on the fullest rank; float64[timed resources]."""
        return self._slopes

    def weighted(self, weights: Float64s) -> TableAccount:
        """The account whose timed resources count as a simulated step waits for them."""
        lines = tuple(
            replace(one, slope=one.slope * weight)
            for one, weight in zip(self.exchange, weights.tolist(), strict=True)
        )
        return replace(self, exchange=lines)

    def of_schemes(self, schemes: Sequence[TableScheme]) -> TableAccount:
        """With ways by these schemes alone, for tables that have any."""
        options = tuple(
            tuple(one for one in own if one.option.scheme in schemes) or own for own in self.options
        )
        return replace(self, options=options)

    def excess(self, loads: Float64s) -> Float64s:
        """Bytes above the room, of all ranks and hosts, over the room; float64[cases]."""
        room = self.room
        hbm = loads[..., BYTES[MemoryTier.HBM]]
        found = np.maximum(0.0, hbm - room.hbm).sum(axis=-1) / max(room.hbm, 1.0)
        for tier, most in ((MemoryTier.HOST, room.host), (MemoryTier.SSD, room.ssd)):
            own = loads[..., BYTES[tier]]
            hosts = own.reshape(*own.shape[:-1], room.num_hosts, room.ranks_per_host).sum(axis=-1)
            found = found + np.maximum(0.0, hosts - most).sum(axis=-1) / max(most, 1.0)
        result: Float64s = found
        return result


def table_account(
    model: Recommender,
    plan: Plan,
    *,
    costs: CostModel,
    room: TableRoom,
    schemes: Sequence[TableScheme],
    tiers: Sequence[MemoryTier],
) -> TableAccount:
    """What every way to place each table costs.

    Args:
        model: its tables.
        plan: of the job, with `tables` that say optimizer, formats and ids.
        costs: what predicts durations.
        room: for tables.
        schemes: that tables may have.
        tiers: that they may be in.

    Raises:
        WorkloadError: if a table has no place at all.
    """
    rates = _Rates(model, plan, costs, room)
    laws = access_laws((plan.tables or TableSharding()).ids, model.rows)
    known: dict[tuple[int, int, int], tuple[Costed, ...]] = {}
    found = []
    for table, (rows, pooling) in enumerate(zip(model.rows, model.pooling, strict=True)):
        # Parts of a table with uneven ids are its own: the most used rows are somewhere else.
        key = (rows, pooling, id(laws[table]) if laws[table].is_even else table)
        if key not in known:
            one = replace(model, rows=(rows,), pooling=(pooling,))
            own = tuple(
                _costed(one, plan, option, rates=rates, room=room, law=laws[table], seed=table)
                for option in _options(model, plan, table, room=room, schemes=schemes, tiers=tiers)
            )
            # Where none has room the answer says what would have.
            known[key] = tuple(each for each in own if _has_room(each, room)) or own
        if not known[key]:
            raise WorkloadError(
                f"table {table} of {model.name!r} has no place by {', '.join(schemes)} in "
                f"{', '.join(tiers)}: allow other schemes or tiers"
            )
        found.append(known[key])
    return TableAccount(
        model, plan, room, tuple(found), rates.exchange_lines(), rates.line_of_copies()
    )


def _options(
    model: Recommender,
    plan: Plan,
    table: int,
    *,
    room: TableRoom,
    schemes: Sequence[TableScheme],
    tiers: Sequence[MemoryTier],
) -> list[TableOption]:
    """Ways to place a table that may be of use."""
    sharding = plan.tables or TableSharding()
    num_bytes = model.rows[table] * model.size * known_format(sharding.number_format).num_bytes
    pieces = [
        count
        for count in range(2, min(room.num_ranks, model.size // sharding.column_width) + 1)
        if model.size % count == 0
    ]
    ways: list[tuple[TableScheme, int]] = [
        (scheme, 1) for scheme in schemes if scheme is not TableScheme.COLUMN
    ]
    ways += [(TableScheme.COLUMN, count) for count in pieces if TableScheme.COLUMN in schemes]
    if room.num_hosts == 1:  # as rows over all ranks
        ways = [way for way in ways if way[0] is not TableScheme.TABLE_ROW] or [
            (TableScheme.ROW, 1)
        ]
    if room.num_ranks == 1:
        ways = [(TableScheme.TABLE, 1)]
    found = []
    for scheme, count in ways:
        is_copied = scheme is TableScheme.DATA
        if MemoryTier.HBM in tiers and not (is_copied and num_bytes > _MOST_COPIED * room.hbm):
            found.append(TableOption(scheme, num_pieces=count))
        if is_copied or (found and num_bytes < _SMALL * room.hbm and MemoryTier.HBM in tiers):
            continue
        found += [
            TableOption(scheme, tier, cached, count)
            for tier in tiers
            if tier is not MemoryTier.HBM
            for cached in CACHED
        ]
    return found


def _costed(
    model: Recommender,
    plan: Plan,
    option: TableOption,
    *,
    rates: _Rates,
    room: TableRoom,
    law: AccessLaw,
    seed: int,
) -> Costed:
    """An option of a model's only table with its rows."""
    sharding = replace(plan.tables or TableSharding(), places=(option.place(0, _first(option)),))
    placed = place_tables(
        model,
        replace(sharding, capacity_bytes=None),
        num_ranks=room.num_ranks,
        batch=plan.micro_batch,
        ranks_per_host=room.ranks_per_host,
        laws=(law,),
        seeds=(seed,),
    )
    shards = placed.shards[: 1 if option.scheme is TableScheme.COLUMN else None]
    rows = np.zeros((len(shards), NUM_RESOURCES))
    for row, shard in zip(rows, shards, strict=True):
        forward_ns, backward_ns = rates.times_of(placed, shard)
        row[[FORWARD, BACKWARD]] = forward_ns, backward_ns
        if option.scheme is not TableScheme.DATA:
            samples = plan.micro_batch * room.num_ranks
            row[POOLED[option.scheme]] = samples * shard.num_columns
            row[IDS[option.scheme]] = placed.lookups(shard, plan.micro_batch)
        row[BYTES[MemoryTier.HBM]] = shard.device_bytes
        if shard.tier is not MemoryTier.HBM:
            row[BYTES[shard.tier]] = shard.num_bytes
    copied = model.rows[0] * model.size if option.scheme is TableScheme.DATA else 0
    return Costed(option, rows, copied)


def _has_room(one: Costed, room: TableRoom) -> bool:
    """Whether a rank, and a host, could hold what they would have of a table and nothing else."""
    hbm = one.rows[:, BYTES[MemoryTier.HBM]].max() <= room.hbm
    return bool(
        hbm
        and all(
            one.rows[: room.ranks_per_host, BYTES[tier]].sum() <= most
            for tier, most in ((MemoryTier.HOST, room.host), (MemoryTier.SSD, room.ssd))
        )
    )


def _first(option: TableOption) -> tuple[int, ...]:
    """Some ranks that an option may be on."""
    everywhere = option.scheme in {TableScheme.ROW, TableScheme.DATA}
    return () if everywhere else (0,) * option.num_pieces


class _Rates:
    """Coefficients of times, of the blocks of models with one table."""

    def __init__(self, model: Recommender, plan: Plan, costs: CostModel, room: TableRoom) -> None:
        self._model, self._room, self._prices = model, room, Prices(costs)
        sharding = replace(
            plan.tables or TableSharding(), ids=EVEN_IDS, places=(), capacity_bytes=None
        )
        inside = room.ranks_per_host
        shard_ranks = None if inside == room.num_ranks else inside
        self._plan = replace(plan, tables=sharding, shard_ranks=shard_ranks)
        self._coefficients: dict[TableScheme, Float64s] = {}
        self._links: dict[MemoryTier, _Line] = {}

    def times_of(self, placed: PlacedTables, shard: Shard) -> tuple[float, float]:
        """Forward and backward time of a shard beside others, in ns."""
        plan = self._plan
        if shard.scheme not in self._coefficients:
            self._coefficients[shard.scheme] = self._fitted(shard.scheme)
        own = _features(placed, shard, plan.micro_batch) @ self._coefficients[shard.scheme]
        forward_ns, backward_ns = own.tolist()
        if shard.tier is not MemoryTier.HBM:
            link = self._link(shard.tier)
            one = (shard,)
            forward_ns += link.at(placed.outside_bytes(shard.tier, one, plan.micro_batch))
            backward_ns += link.at(placed.updated_bytes(shard.tier, one, plan.micro_batch))
        return max(forward_ns, 0.0), max(backward_ns, 0.0)

    def exchange_lines(self) -> tuple[_Line, ...]:
        """Of every timed resource."""
        found = [_Line(0.0, 1.0), _Line(0.0, 1.0)]
        for scheme in _EXCHANGED:
            placed, blocks = self._probe(scheme, self._model.size, 10, 1000)
            items = [
                one
                for block in blocks
                for one in block.items
                if isinstance(one, Exchange) and one.label.startswith(scheme.value)
            ]
            of_ids = [one for one in items if one.label.endswith(("splits", "lengths", "ids"))]
            samples = self._plan.micro_batch * self._room.num_ranks
            shard = placed.shards[0]
            pooled = [one for one in items if one not in of_ids]
            ids = placed.lookups(shard, self._plan.micro_batch)
            found.append(self._line(pooled, samples * shard.num_columns))
            found.append(self._line(of_ids, ids))
        return tuple(found)

    def line_of_copies(self) -> _Line:
        """All-reduce of tables that every rank holds, by their numbers."""
        placed, blocks = self._probe(TableScheme.DATA, self._model.size, 1, 1000)
        items = [
            one
            for one in blocks[1].items
            if isinstance(one, Exchange) and "replicated tables" in one.label
        ]
        return self._line(items, placed.shards[0].num_rows * placed.shards[0].num_columns)

    def _line(self, items: Sequence[Exchange], size: float) -> _Line:
        """Time of exchanges whose bytes grow with a size: as many tables to a rank, and twice."""
        if not items:
            return _Line(0.0, 0.0)
        many = max(1, -(-self._model.num_tables // self._room.num_ranks))
        times = [
            self._prices.exchanges_ns(
                [replace(one, num_bytes=scale * one.num_bytes) for one in items], self._plan
            )
            for scale in (many, 2 * many)
        ]
        slope = max(times[1] - times[0], 0) / (many * size)
        return _Line(max(times[0] - slope * many * size, 0.0), slope)

    def _link(self, tier: MemoryTier) -> _Line:
        if tier not in self._links:
            found = []
            for pooling in (10, 1000):
                placed, blocks = self._probe(
                    TableScheme.TABLE, self._model.size, pooling, 10**6, tier=tier
                )
                own_ns = self._operators_ns(blocks[0], is_outside=True)
                moved = placed.outside_bytes(tier, placed.shards, self._plan.micro_batch)
                found.append((moved, own_ns))
            (less, short_ns), (more, long_ns) = found
            slope = (long_ns - short_ns) / (more - less)
            self._links[tier] = _Line(max(short_ns - slope * less, 0.0), slope)
        return self._links[tier]

    def _fitted(self, scheme: TableScheme) -> Float64s:
        """Time by feature; float64[features, forward and backward]. Starts are left out."""
        features, times = [], []
        for columns, pooling, rows in _PROBES:
            placed, blocks = self._probe(scheme, columns * self._model.size, pooling, rows)
            features.append(_features(placed, placed.shards[0], self._plan.micro_batch))
            times.append([self._operators_ns(block) for block in blocks])
        found = np.array(features)
        scale = found.max(axis=0)
        scale[scale == 0] = 1.0
        start = np.ones((len(found), 1))
        solved = np.linalg.lstsq(np.hstack([found / scale, start]), np.array(times), rcond=None)[0]
        coefficients: Float64s = solved[:-1] / scale[:, None]
        return coefficients

    def _probe(
        self,
        scheme: TableScheme,
        size: int,
        pooling: int,
        rows: int,
        *,
        tier: MemoryTier = MemoryTier.HBM,
    ) -> tuple[PlacedTables, tuple[Block, Block]]:
        """A model with one table, and the blocks of a rank that has of it."""
        model = replace(self._model, rows=(rows,), pooling=(pooling,), size=size)
        place = TableOption(scheme).place(0, _first(TableOption(scheme)))
        sharding = self._plan.tables or TableSharding()
        cached = 1.0 if tier is MemoryTier.HBM else 0.0
        place = place._replace(tier=tier, cached=cached)
        placed = place_tables(
            model,
            replace(sharding, places=(place,)),
            num_ranks=self._room.num_ranks,
            batch=self._plan.micro_batch,
            ranks_per_host=self._room.ranks_per_host,
        )
        (passes,) = blocks_of_recommender(model, self._plan, placed=placed, rank=0).layers
        return placed, (passes.forward, passes.backward)

    def _operators_ns(self, block: Block, *, is_outside: bool = False) -> float:
        """Operators on tables, without or with nothing but those that fetch rows."""
        return float(
            sum(
                self._prices.operator_ns(one.name, one.signature)
                for one in block.items
                if isinstance(one, Operator)
                and one.label.startswith(_ON_TABLES)
                and (_OUTSIDE in one.label) == is_outside
            )
        )


def _features(placed: PlacedTables, shard: Shard, batch: int) -> Float64s:
    """What times of a shard are affine in; float64[features]."""
    ids = placed.lookups(shard, batch)
    bags = batch * (1 if shard.scheme is TableScheme.DATA else placed.num_ranks)
    columns = shard.num_columns
    copied = shard.num_rows * columns if shard.scheme is TableScheme.DATA else 0
    return np.array([ids, ids * columns, bags, bags * columns, copied], np.float64)

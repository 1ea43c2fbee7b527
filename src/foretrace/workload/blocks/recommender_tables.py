"""Work on embedding tables: ids are sent, rows looked up, vectors exchanged, rows updated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from foretrace.base import CollectiveKind
from foretrace.workload.blocks import calls
from foretrace.workload.blocks.block import ItemWriter
from foretrace.workload.blocks.signatures import OperatorCall, array, call
from foretrace.workload.plan.plan import Group, Precision
from foretrace.workload.sharding.placed import PlacedTables, Shard
from foretrace.workload.sharding.tables import MemoryTier, TableOptimizer, TableScheme
from foretrace.workload.sharding.traffic import SchemeTraffic, traffic

_LENGTH, _SPLIT = "int32", "int64"
_ID_FORMATS = {4: "int32", 8: "int64"}
_UPDATES = {
    TableOptimizer.SGD: "sgd",
    TableOptimizer.ROW_WISE_ADAGRAD: "rowwise_adagrad",
    TableOptimizer.ADAGRAD: "adagrad",
}
# FBGEMM's: rows that the cache lacks, or that updates change without one, come over the link.
_FETCHES = {
    MemoryTier.HOST: "fbgemm::lfu_cache_populate_cuda",
    MemoryTier.SSD: "fbgemm::ssd_cache_populate_cuda",
}
# Kernels that bring ids in order, counted in the public 8-rank run (facebookresearch/param,
# et_replay/tests/inputs/dlrm_kineto, rank 0): prefix sums, fills and casts, each over one number
# a bag, before ids are permuted; the same before rows are read; and before rows are updated.
_BEFORE_PERMUTING, _BEFORE_LOOKUP, _BEFORE_UPDATE = 6, 8, 11
# A radix sort of ids reads and writes keys and values once for every 8 bits of the keys (CUB);
# 26 bits in the same run.
_SORT_PASSES = 4


@dataclass(frozen=True)
class _Lookup:
    """All shards of one scheme on one rank, looked up at once."""

    num_tables: int
    num_numbers: int  # of all its shards
    num_columns: int
    num_ids: int
    num_bags: int  # samples times tables


@dataclass(frozen=True)
class TableWork:
    """Writes the work on tables of one rank, or of the busiest."""

    placed: PlacedTables
    batch: int
    rank: int | None
    precision: Precision
    is_alike: bool = False  # items that any rank has are there, with nothing to do if need be

    def send_ids(self, items: ItemWriter) -> None:
        """Ids, and before them how many there are, go to the ranks that hold the rows."""
        if self.placed.num_ranks == 1:
            return
        for one in self._traffic:
            name, ids = one.scheme.value, one.ids.of(self.rank)
            lengths = one.lengths.of(self.rank)
            self._prepare(items, name, _BEFORE_PERMUTING, lengths)
            items.add(f"{name} ids in order of ranks", self._permuted(ids))
            items.exchange(
                f"{name} splits",
                CollectiveKind.ALL_TO_ALL,
                numbers=one.splits.of(self.rank),
                dtype=_SPLIT,
            )
            before = items.last
            items.exchange(
                f"{name} lengths",
                CollectiveKind.ALL_TO_ALL,
                numbers=lengths,
                dtype=_LENGTH,
                after=(before,),
            )
            arrived = items.exchange(
                f"{name} ids",
                CollectiveKind.ALL_TO_ALL,
                numbers=ids,
                dtype=self._id_dtype,
                after=(before,),
            )
            if not self.placed.sharding.sends_ids_ahead:
                items.wait(arrived)

    def lookup(self, items: ItemWriter) -> None:
        """Rows are read and added up, vectors go to the ranks whose samples they belong to."""
        arrived = []
        for one in self._traffic:
            found = self._found(one.scheme)
            name = one.scheme.value
            if found is not None:
                if self.placed.num_ranks > 1:
                    self._prepare(items, name, _BEFORE_PERMUTING, found.num_bags)
                    items.add(f"{name} ids in order of tables", self._permuted(found.num_ids))
                self._prepare(items, name, _BEFORE_LOOKUP, found.num_bags)
                self._fetch(items, one.scheme, self.placed.outside_bytes)
                items.add(f"{name} lookup", self._lookup(found))
            arrived += self._send_vectors(items, one)
        replicated = self._found(TableScheme.DATA)
        if replicated is not None:
            items.add("replicated tables", self._bag(replicated))
        items.wait(*arrived)

    def _send_vectors(self, items: ItemWriter, one: SchemeTraffic) -> list[int]:
        if self.placed.num_ranks == 1:
            return []
        name, dtype = one.scheme.value, self._dtype
        last: list[int] = []
        if one.reduced is not None:
            numbers, group = one.reduced.of(self.rank), self._inner(one.scheme)
            label = f"{name} pooled vectors added up"
            last = [
                items.exchange(
                    label, CollectiveKind.REDUCE_SCATTER, numbers=numbers, dtype=dtype, group=group
                )
            ]
        if one.pooled is not None:
            numbers, group = one.pooled.of(self.rank), self._outer(one.scheme)
            label = f"{name} pooled vectors"
            last = [
                items.exchange(
                    label, CollectiveKind.ALL_TO_ALL, numbers=numbers, dtype=dtype, group=group
                )
            ]
        return last

    def send_gradients(self, items: ItemWriter) -> None:
        """Gradients of vectors go back to the ranks that hold the rows; updates wait for them."""
        if self.placed.num_ranks == 1:
            return
        for one in self._traffic:
            name, dtype = one.scheme.value, self._dtype
            items.add(f"{name} gradients in order of ranks", self._packed(one))
            if one.pooled is not None:
                numbers, group = one.pooled.back().of(self.rank), self._outer(one.scheme)
                label = f"{name} gradients of vectors"
                items.exchange(
                    label, CollectiveKind.ALL_TO_ALL, numbers=numbers, dtype=dtype, group=group
                )
            if one.reduced is not None:
                numbers, group = one.reduced.of(self.rank), self._inner(one.scheme)
                label = f"{name} gradients of vectors gathered"
                items.exchange(
                    label, CollectiveKind.ALL_GATHER, numbers=numbers, dtype=dtype, group=group
                )

    def update(self, items: ItemWriter) -> None:
        """Rows that were looked up are updated, as soon as their gradients are there."""
        by_label = items.positions()
        for one in self._traffic:
            found = self._found(one.scheme)
            name = one.scheme.value
            for label in (f"{name} gradients of vectors", f"{name} gradients of vectors gathered"):
                if label in by_label:
                    items.wait(by_label[label])
            if found is not None:
                self._sort(items, name, found)
                self._fetch(items, one.scheme, self.placed.updated_bytes)
                items.add(f"{name} update", self._update(found))

    def update_replicated(self, items: ItemWriter) -> None:
        """Gradients of tables that every rank holds whole."""
        found = self._found(TableScheme.DATA)
        if found is None:
            return
        width = self.placed.model.size
        rows = found.num_numbers // width
        self._sort(items, TableScheme.DATA.value, found)
        gradient = array((found.num_bags, width), self._dtype)
        index = array((found.num_ids,), _SPLIT)
        items.add(
            "replicated tables gradient",
            call("aten::embedding_dense_backward", gradient, index, str(rows), "-1", "False"),
        )

    def _prepare(self, items: ItemWriter, name: str, count: int, numbers: int) -> None:
        """Prefix sums, fills and casts of how many ids there are."""
        one = calls.elementwise("aten::clone", (max(1, numbers),), _LENGTH)
        for _ in range(count):
            items.add(f"{name} offsets", one)

    def _sort(self, items: ItemWriter, name: str, found: _Lookup) -> None:
        """Ids in order, so that every row is written once."""
        pair = calls.elementwise("aten::clone", (2, max(1, found.num_ids)), _SPLIT)
        for _ in range(_SORT_PASSES):
            items.add(f"{name} ids sorted", pair)
        self._prepare(items, name, _BEFORE_UPDATE, found.num_ids)

    def _fetch(
        self,
        items: ItemWriter,
        scheme: TableScheme,
        num_bytes: Callable[[MemoryTier, tuple[Shard, ...], int], float],
    ) -> None:
        """Rows of each tier besides HBM; of no rank in particular, the most that any gets."""
        every = [self.placed.of_rank(rank, scheme) for rank in range(self.placed.num_ranks)]
        own = every if self.rank is None else [every[self.rank]]
        for tier, operator in _FETCHES.items():
            counts = [num_bytes(tier, shards, self.batch) for shards in own]
            is_there = any(counts) or (
                self.is_alike and any(num_bytes(tier, shards, self.batch) for shards in every)
            )
            if is_there:
                rows = array((max(1, round(max(counts))),), "int8")
                items.add(f"{scheme.value} rows from {tier.value}", call(operator, rows))

    def _found(self, scheme: TableScheme) -> _Lookup | None:
        """What a rank looks up by one scheme; of no rank in particular, the busiest's."""
        every = [self.placed.of_rank(rank, scheme) for rank in range(self.placed.num_ranks)]
        by_rank = every if self.rank is None else [every[self.rank]]
        shards = max(by_rank, key=self._read)
        if not shards:
            is_there = self.is_alike and any(every)
            return _Lookup(1, 1, 1, 0, 0) if is_there else None
        samples = self.batch * (1 if scheme is TableScheme.DATA else self.placed.num_ranks)
        return _Lookup(
            num_tables=len(shards),
            num_numbers=sum(one.num_rows * one.num_columns for one in shards),
            num_columns=sum(one.num_columns for one in shards),
            num_ids=round(sum(self.placed.lookups(one, self.batch) for one in shards)),
            num_bags=samples * len(shards),
        )

    def _read(self, shards: tuple[Shard, ...]) -> float:
        """Numbers that are read from shards."""
        return sum(self.placed.lookups(one, self.batch) * one.num_columns for one in shards)

    def _lookup(self, found: _Lookup) -> OperatorCall:
        return call(
            "fbgemm::split_embedding_codegen_forward_unweighted_cuda",
            *(array((found.num_numbers,), self._dtype), None, None, None, None),
            array((found.num_tables + 1,), _LENGTH),
            *(str(found.num_columns), str(self.placed.model.size)),
            array((found.num_ids,), _SPLIT),
            array((found.num_bags + 1,), _SPLIT),
        )

    def _update(self, found: _Lookup) -> OperatorCall:
        samples = found.num_bags // found.num_tables
        optimizer = _UPDATES[self.placed.sharding.optimizer]
        return call(
            f"fbgemm::split_embedding_backward_codegen_{optimizer}_unweighted_exact_cuda",
            array((samples, found.num_columns), self._dtype),
            *(array((found.num_numbers,), self._dtype), None, None, None, None),
            array((found.num_tables + 1,), _LENGTH),
            *(str(self.placed.model.size), None, None),
            array((found.num_ids,), _SPLIT),
            array((found.num_bags + 1,), _SPLIT),
        )

    def _bag(self, found: _Lookup) -> OperatorCall:
        width = self.placed.model.size
        return call(
            "aten::_embedding_bag",
            array((found.num_numbers // width, width), self._dtype),
            array((found.num_ids,), _SPLIT),
            array((found.num_bags,), _SPLIT),
        )

    def _permuted(self, num_ids: int) -> OperatorCall:
        return calls.rows_of_table(max(1, num_ids), 1, max(1, num_ids), self._id_dtype)

    def _packed(self, one: SchemeTraffic) -> OperatorCall:
        numbers = one.pooled.back() if one.pooled is not None else one.reduced
        count = 0 if numbers is None else numbers.of(self.rank)
        return calls.gathered_copy((max(1, count), 1), self._dtype, row_stride=2)

    def _inner(self, scheme: TableScheme) -> Group:
        return Group.DATA if scheme is TableScheme.ROW else Group.SHARD

    def _outer(self, scheme: TableScheme) -> Group:
        return Group.REPLICA if scheme is TableScheme.TABLE_ROW else Group.DATA

    @cached_property
    def _traffic(self) -> tuple[SchemeTraffic, ...]:
        return traffic(self.placed, self.batch)

    @property
    def _dtype(self) -> str:
        return self.placed.sharding.number_format

    @property
    def _id_dtype(self) -> str:
        return _ID_FORMATS[self.placed.sharding.id_bytes]

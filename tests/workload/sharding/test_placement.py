"""Tables over ranks: nothing is lost, nothing is held twice, and what does not fit is named."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.workload import (
    Balance,
    MemoryTier,
    PlacedTables,
    Recommender,
    TableOptimizer,
    TablePlace,
    TableScheme,
    TableSharding,
    load_model,
    place_tables,
)


def recommender(rows: tuple[int, ...], size: int = 8) -> Recommender:
    known = load_model("dlrm-criteo-kaggle")
    assert isinstance(known, Recommender)
    return replace(known, rows=rows, pooling=(2,) * len(rows), size=size)


def place(model: Recommender, num_ranks: int, sharding: TableSharding) -> PlacedTables:
    inside = 2 if num_ranks % 2 == 0 else 1
    return place_tables(model, sharding, num_ranks=num_ranks, batch=4, ranks_per_host=inside)


@st.composite
def shardings(draw: st.DrawFn) -> tuple[Recommender, int, TableSharding]:
    rows = tuple(draw(st.lists(st.integers(1, 1000), min_size=1, max_size=8)))
    scheme = st.sampled_from(TableScheme)
    exceptions = draw(st.dictionaries(st.integers(0, len(rows) - 1), scheme, max_size=4))
    sharding = TableSharding(
        scheme=draw(scheme),
        exceptions=tuple(exceptions.items()),
        column_width=draw(st.sampled_from((4, 8, 128))),
        balance=draw(st.sampled_from(Balance)),
        optimizer=draw(st.sampled_from(TableOptimizer)),
    )
    return recommender(rows), draw(st.integers(1, 8)), sharding


@given(drawn=shardings())
def test_every_number_of_a_table_stands_once_or_on_every_rank(
    drawn: tuple[Recommender, int, TableSharding],
) -> None:
    model, num_ranks, sharding = drawn

    placed = place(model, num_ranks, sharding)

    for table, rows in enumerate(model.rows):
        held = [one for one in placed.shards if one.table == table]
        copies = num_ranks if placed.scheme_of(table) is TableScheme.DATA else 1
        assert sum(one.num_rows * one.num_columns for one in held) == copies * rows * model.size
    assert sum(placed.bytes_by_rank) == sum(one.num_bytes for one in placed.shards)


@given(drawn=shardings())
def test_every_lookup_happens_on_some_rank(drawn: tuple[Recommender, int, TableSharding]) -> None:
    model, num_ranks, sharding = drawn

    placed = place(model, num_ranks, sharding)

    pieces = {
        table: max(1, model.size // sharding.column_width)
        if placed.scheme_of(table) is TableScheme.COLUMN
        else 1
        for table in range(model.num_tables)
    }
    wanted = 4 * num_ranks * sum(2 * pieces[table] for table in pieces)
    assert sum(placed.lookups_by_rank(4)) == pytest.approx(wanted)


@given(drawn=shardings())
def test_what_a_rule_gives_can_be_stated(drawn: tuple[Recommender, int, TableSharding]) -> None:
    model, num_ranks, sharding = drawn

    by_rule = place(model, num_ranks, sharding)
    again = place(model, num_ranks, replace(sharding, places=by_rule.places()))

    assert again.shards == by_rule.shards


def test_a_table_row_wise_table_stays_on_one_host() -> None:
    placed = place(recommender((100, 60)), 4, TableSharding(scheme=TableScheme.TABLE_ROW))

    hosts = [{one.rank // 2 for one in placed.shards if one.table == table} for table in (0, 1)]
    assert hosts == [{0}, {1}]
    assert [one.num_rows for one in placed.shards] == [50, 50, 30, 30]


def test_a_rank_whose_host_has_a_table_gets_less_besides() -> None:
    sharding = TableSharding(exceptions=((0, TableScheme.TABLE_ROW),))

    placed = place(recommender((100, 60, 60)), 4, sharding)

    assert {one.rank for one in placed.shards if one.table == 0} == {0, 1}
    assert {one.rank for one in placed.shards if one.table > 0} == {2, 3}


def test_bytes_hold_the_table_and_what_its_optimizer_keeps() -> None:
    model = recommender((10,), size=8)

    for optimizer, num_bytes in (
        (TableOptimizer.SGD, 320),
        (TableOptimizer.ROW_WISE_ADAGRAD, 320 + 40),
        (TableOptimizer.ADAGRAD, 640),
    ):
        assert place(model, 1, TableSharding(optimizer=optimizer)).bytes_by_rank == (num_bytes,)


def test_a_full_rank_is_passed_over() -> None:
    sharding = TableSharding(optimizer=TableOptimizer.SGD, capacity_bytes=350, assumed_pooling=0.0)

    placed = place(recommender((10, 5, 5)), 2, sharding)

    assert sorted(placed.bytes_by_rank) == [320, 320]


def test_a_table_that_fits_nowhere_is_named_with_its_size() -> None:
    sharding = TableSharding(capacity_bytes=300, optimizer=TableOptimizer.SGD)

    with pytest.raises(WorkloadError, match=r"table 1: 20 rows x 8 columns, .* 640 bytes .* 300"):
        place(recommender((5, 20)), 2, sharding)


def test_tables_that_overflow_a_rank_are_named_with_their_sum() -> None:
    sharding = TableSharding(
        capacity_bytes=300, optimizer=TableOptimizer.SGD, balance=Balance.DIFFERENCING
    )

    with pytest.raises(WorkloadError, match=r"480 bytes of 300 \(table 0: 320, table 1: 160\)"):
        place(recommender((10, 5)), 1, sharding)


def test_columns_that_pieces_do_not_divide_are_refused_with_the_arithmetic() -> None:
    sharding = TableSharding(scheme=TableScheme.COLUMN, column_width=64)

    with pytest.raises(WorkloadError, match=r"94 = 1 x 64 \+ 30"):
        place(recommender((10,), size=94), 2, sharding)


def test_an_exception_for_no_table_is_refused() -> None:
    sharding = TableSharding(exceptions=((2, TableScheme.ROW),))

    with pytest.raises(WorkloadError, match=r"table 2 .* tables 0 to 1"):
        place(recommender((10, 5)), 2, sharding)


def test_hosts_must_divide_the_ranks() -> None:
    with pytest.raises(WorkloadError, match="6 ranks cannot be divided into hosts of 4"):
        place_tables(recommender((10,)), TableSharding(), num_ranks=6, batch=1, ranks_per_host=4)


def test_a_placement_shows_itself() -> None:
    placed = place(recommender((10, 4)), 2, TableSharding(data_parallel_rows=4))

    frame = placed.to_polars()

    assert frame["table"].to_list() == [0, 1, 1]
    assert frame["scheme"].to_list() == ["table-wise", "data-parallel", "data-parallel"]
    assert placed.as_json()["bytes_by_rank"] == list(placed.bytes_by_rank)


def stated(*places: TablePlace, ids: str = "even") -> TableSharding:
    return TableSharding(places=places, ids=ids, optimizer=TableOptimizer.SGD)


def test_a_table_in_memory_of_the_host_takes_its_cache_of_hbm() -> None:
    place_of = TablePlace(0, TableScheme.TABLE, (1,), MemoryTier.HOST, 0.25)

    placed = place(recommender((100,), size=8), 2, stated(place_of))

    assert placed.bytes_by_rank == (0, 800)
    assert placed.bytes_outside(MemoryTier.HOST) == (0, 3200)
    (shard,) = placed.shards
    # 4 samples of 2 ranks look up 2 rows each; a quarter of all are cached
    assert placed.missed(shard, 4) == pytest.approx(12)
    assert placed.fetched(shard, 4) == pytest.approx(75 * -math.expm1(-16 / 100))


def test_rows_without_a_cache_come_for_every_lookup() -> None:
    place_of = TablePlace(0, TableScheme.TABLE, (0,), MemoryTier.HOST, 0.0)

    placed = place(recommender((100,), size=8), 2, stated(place_of))

    (shard,) = placed.shards
    assert placed.outside_bytes(MemoryTier.HOST, (shard,), 4) == 16 * 32
    assert 0 < placed.updated_bytes(MemoryTier.HOST, (shard,), 4) < 16 * 32


def test_a_disk_reads_whole_blocks() -> None:
    place_of = TablePlace(0, TableScheme.TABLE, (0,), MemoryTier.SSD, 0.0)

    placed = place(recommender((100,), size=8), 2, stated(place_of))

    assert placed.outside_bytes(MemoryTier.SSD, placed.shards, 4) == 16 * 4096


def test_skewed_ids_load_ranks_of_a_divided_table_unevenly() -> None:
    model = recommender((1000, 1000))
    everywhere = [TablePlace(table, TableScheme.ROW) for table in (0, 1)]

    even, skewed = (place(model, 4, stated(*everywhere, ids=ids)) for ids in ("even", "zipf:1.2"))

    assert len(set(even.lookups_by_rank(4))) == 1
    assert max(skewed.lookups_by_rank(4)) > 1.2 * max(even.lookups_by_rank(4))
    assert sum(skewed.lookups_by_rank(4)) == pytest.approx(sum(even.lookups_by_rank(4)))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (TablePlace(1, TableScheme.ROW), "leave out table 0"),
        (TablePlace(0, TableScheme.TABLE, (4,)), "expected one of ranks 0 to 3"),
        (TablePlace(0, TableScheme.TABLE), "expected one of ranks 0 to 3"),
        (TablePlace(0, TableScheme.COLUMN, (0, 1, 2)), "do not divide 8 columns"),
        (TablePlace(0, TableScheme.TABLE_ROW, (1,)), "a multiple of 2"),
        (TablePlace(0, TableScheme.ROW, (9,)), "there are ranks 0 to 3"),
        (TablePlace(0, TableScheme.ROW, (), MemoryTier.HOST, 1.5), "1.5 of its rows"),
        (TablePlace(0, TableScheme.DATA, (), MemoryTier.HOST, 0.5), "keeps such tables in HBM"),
    ],
)
def test_a_place_that_the_job_has_not_is_refused(wrong: TablePlace, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        place(recommender((100,)), 4, stated(wrong))

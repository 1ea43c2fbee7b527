"""What ranks exchange for tables: counts worked out by hand, and nothing is lost on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.workload import (
    Numbers,
    PlacedTables,
    Recommender,
    TableScheme,
    TableSharding,
    load_model,
    place_tables,
    traffic,
)


def placed_by(scheme: TableScheme, *, num_ranks: int = 4, inside: int = 2) -> PlacedTables:
    """Two tables of 8 columns: 100 rows looked up three times, 40 rows looked up once."""
    known = load_model("dlrm-criteo-kaggle")
    assert isinstance(known, Recommender)
    model = replace(known, rows=(100, 40), pooling=(3, 1), size=8)
    sharding = TableSharding(scheme=scheme, column_width=4)
    return place_tables(model, sharding, num_ranks=num_ranks, batch=10, ranks_per_host=inside)


def test_whole_tables_send_ids_one_way_and_vectors_the_other() -> None:
    (found,) = traffic(placed_by(TableScheme.TABLE), batch=10)

    assert found.splits == Numbers((12,) * 4, (12,) * 4)
    # 10 samples of 2 tables from each rank, all to ranks 0 and 1
    assert found.lengths == Numbers((20,) * 4, (40, 40, 0, 0))
    assert found.ids == Numbers((40,) * 4, (120, 40, 0, 0))
    assert found.pooled == Numbers((320, 320, 0, 0), (160,) * 4)
    assert found.reduced is None


def test_pieces_of_columns_each_need_the_ids() -> None:
    (found,) = traffic(placed_by(TableScheme.COLUMN), batch=10)

    assert found.ids.sent == (80,) * 4
    assert found.pooled == Numbers((160,) * 4, (160,) * 4)


def test_divided_rows_send_every_length_everywhere_and_add_vectors_up() -> None:
    (found,) = traffic(placed_by(TableScheme.ROW), batch=10)

    assert found.lengths == Numbers((80,) * 4, (80,) * 4)
    assert found.ids == Numbers((40,) * 4, (40,) * 4)
    assert found.pooled is None
    assert found.reduced == Numbers((640,) * 4, (640,) * 4)


def test_rows_divided_in_a_host_add_up_inside_and_then_cross() -> None:
    (found,) = traffic(placed_by(TableScheme.TABLE_ROW), batch=10)

    # each host has one table, whose vectors of all 40 samples are added up by two ranks
    assert found.reduced == Numbers((320,) * 4, (320,) * 4)
    # each of the two then has 20 samples' vectors, and gets its own 10 of both tables
    assert found.pooled == Numbers((160,) * 4, (160,) * 4)


def test_one_host_has_nothing_to_send_across() -> None:
    (found,) = traffic(placed_by(TableScheme.TABLE_ROW, num_ranks=2), batch=10)

    assert found.pooled is None


@given(scheme=st.sampled_from(TableScheme), num_ranks=st.sampled_from((1, 2, 4, 8)))
def test_what_is_sent_arrives(scheme: TableScheme, num_ranks: int) -> None:
    placed = placed_by(scheme, num_ranks=num_ranks, inside=min(2, num_ranks))

    for found in traffic(placed, batch=10):
        assert found.scheme is scheme
        for one in (found.splits, found.lengths, found.ids, found.pooled):
            if one is not None:
                assert sum(one.sent) == pytest.approx(sum(one.received), rel=1e-9)
                assert one.back().sent == one.received
                assert one.largest == max(one.of(rank) for rank in range(num_ranks)) or (
                    one.largest == max(one.received)
                )


def test_replicated_tables_send_no_ids() -> None:
    assert traffic(placed_by(TableScheme.DATA), batch=10) == ()

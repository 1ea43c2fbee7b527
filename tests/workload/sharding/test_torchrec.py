"""TorchRec's plans: what is written is read again, and what is no plan is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.workload import (
    MemoryTier,
    Recommender,
    TablePlace,
    TableScheme,
    TableSharding,
    place_tables,
    read_torchrec_plan,
    torchrec_plan,
    write_torchrec_plan,
)
from tests.workload.sharding.test_placement import recommender

RANKS, INSIDE = 4, 2
MODEL = recommender((100, 7, 33), size=8)
# `ShardingPlan._serialize` of a planner's answer, with its spelling of paths and placements.
WRITTEN = {
    "plan": {
        "model.sparse_arch.embedding_bag_collection": {
            "t_cat_1": {
                "sharding_type": "data_parallel",
                "compute_kernel": "dense",
                "ranks": [0, 1, 2, 3],
            },
            "t_cat_0": {
                "sharding_type": "table_row_wise",
                "compute_kernel": "fused",
                "ranks": [2, 3],
                "shards": [
                    {
                        "shard_offsets": [50 * at, 0],
                        "shard_sizes": [50, 8],
                        "placement": f"rank:{2 + at}/cuda:{at}",
                    }
                    for at in range(2)
                ],
            },
            "t_cat_2": {
                "sharding_type": "column_wise",
                "compute_kernel": "fused_uvm_caching",
                "ranks": [3, 0],
                "shards": [
                    {
                        "shard_offsets": [0, 4 * at],
                        "shard_sizes": [33, 4],
                        "placement": f"rank:{rank}/cuda:{rank % 2}",
                    }
                    for at, rank in enumerate((3, 0))
                ],
            },
        }
    }
}


@st.composite
def places(draw: st.DrawFn) -> tuple[TablePlace, ...]:
    return tuple(draw(place(table)) for table in range(MODEL.num_tables))


@st.composite
def place(draw: st.DrawFn, table: int) -> TablePlace:
    scheme = draw(st.sampled_from(TableScheme))
    rank = st.integers(0, RANKS - 1)
    ranks = {
        TableScheme.TABLE: st.tuples(rank),
        TableScheme.COLUMN: st.sampled_from((1, 2, 4)).flatmap(
            lambda count: st.tuples(*[rank] * count)
        ),
        TableScheme.TABLE_ROW: st.sampled_from(((0,), (2,))),
    }.get(scheme, st.just(()))
    tier = st.just(MemoryTier.HBM) if scheme is TableScheme.DATA else st.sampled_from(MemoryTier)
    found = draw(tier)
    cached = 1.0 if found is MemoryTier.HBM else draw(st.floats(0.01, 1))
    if found is MemoryTier.HOST and draw(st.booleans()):
        cached = 0.0
    return TablePlace(table, scheme, draw(ranks), found, cached)


@given(stated=places())
def test_places_go_to_torchrec_and_back(
    tmp_path_factory: pytest.TempPathFactory, stated: tuple[TablePlace, ...]
) -> None:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    placed = place_tables(
        MODEL, TableSharding(places=stated), num_ranks=RANKS, batch=4, ranks_per_host=INSIDE
    )

    write_torchrec_plan(path, placed)
    found = read_torchrec_plan(path, MODEL)

    assert found == stated
    again = place_tables(
        MODEL, TableSharding(places=found), num_ranks=RANKS, batch=4, ranks_per_host=INSIDE
    )
    assert again.shards == placed.shards
    assert torchrec_plan(again) == json.loads(path.read_text())


def written(path: Path, plan: object) -> Path:
    path.write_text(json.dumps(plan))
    return path


def test_a_plan_of_torchrec_is_read_by_the_numbers_of_its_tables(tmp_path: Path) -> None:
    found = read_torchrec_plan(written(tmp_path / "plan.json", WRITTEN), MODEL)

    assert found == (
        TablePlace(0, TableScheme.TABLE_ROW, (2,)),
        TablePlace(1, TableScheme.DATA, ()),
        TablePlace(2, TableScheme.COLUMN, (3, 0), MemoryTier.HOST, 0.2),
    )


def test_one_modules_plan_is_read_in_its_order(tmp_path: Path) -> None:
    entry = {"sharding_type": "table_wise", "compute_kernel": "fused"}
    plan = {name: {**entry, "ranks": [at]} for at, name in enumerate(("user", "item", "ad"))}

    found = read_torchrec_plan(written(tmp_path / "plan.json", plan), MODEL)

    assert [one.ranks for one in found] == [(0,), (1,), (2,)]


def changed(model: Recommender, **entry: object) -> dict[str, object]:
    own = {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [0], **entry}
    return {f"t_{at}": own for at in range(model.num_tables)}


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ([], "has no plan"),
        ({"plan": {"ebc": {"t": 3}}}, "'ebc' of .* is no module of tables"),
        ({"t_0": {"sharding_type": "table_wise"}}, "places 1 tables"),
        (changed(MODEL, sharding_type="grid_shard"), "sharded 'grid_shard'"),
        (changed(MODEL, compute_kernel="magic"), "compute kernel 'magic'"),
        (changed(MODEL, ranks=[]), "names no rank"),
        (changed(MODEL, ranks=["a"]), "expected a list of whole numbers"),
        (changed(MODEL, shards=[{"shard_sizes": [1]}]), "expected shard_offsets"),
        (
            changed(
                MODEL,
                shards=[
                    {"shard_offsets": [0, 0], "shard_sizes": [5, 8], "placement": "rank:0/cuda:0"}
                ],
            ),
            "40 numbers together, and the model's table is 100 rows x 8",
        ),
        (
            changed(
                MODEL, compute_kernel="fused_uvm_caching", cache_params={"load_factor": "much"}
            ),
            "expected a share from 0 to 1",
        ),
    ],
)
def test_what_is_no_plan_of_the_model_is_refused(tmp_path: Path, plan: object, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        read_torchrec_plan(written(tmp_path / "plan.json", plan), MODEL)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{")

    with pytest.raises(WorkloadError, match="is no JSON"):
        read_torchrec_plan(tmp_path / "plan.json", MODEL)
    with pytest.raises(WorkloadError, match="cannot read"):
        read_torchrec_plan(tmp_path / "none.json", MODEL)

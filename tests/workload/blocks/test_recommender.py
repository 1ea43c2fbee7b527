"""A recommender's blocks: the structure of a public run, and what every plan must keep."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.base import CollectiveKind, WorkloadError, collective_kind_of
from foretrace.cost.signatures import UNKNOWN, operation_of
from foretrace.graph import Phase
from foretrace.operators import work_of
from foretrace.workload import (
    Block,
    Exchange,
    Group,
    Implementation,
    Interaction,
    Item,
    Operator,
    Overlap,
    Plan,
    Precision,
    Recommender,
    Sharding,
    TableOptimizer,
    TableScheme,
    TableSharding,
    blocks_of_recommender,
    flops,
    load_model,
    parameters,
    place_tables,
)

FULL = Precision(
    products="fp32",
    activations="fp32",
    parameters="fp32",
    gradients="fp32",
    optimizer_bytes=4.0,
)
# The public run: facebookresearch/param, et_replay/tests/inputs/dlrm_*, 8 x V100, September 2023.
# TorchRec's planner reckoned with one lookup a table, which is why tables were dealt by size.
PUBLIC = TableSharding(
    data_parallel_rows=4,
    assumed_pooling=1.0,
    id_bytes=4,
    optimizer=TableOptimizer.ADAGRAD,
)


def preset(name: str) -> Recommender:
    found = load_model(name)
    assert isinstance(found, Recommender)
    return found


def public_model() -> Recommender:
    return replace(
        preset("dlrm-mlperf-v2"),
        size=16,
        bottom=(256, 128, 16),
        top=(512, 512, 256, 1),
        interaction=Interaction.DOT,
    )


def plan_of(num_ranks: int, batch: int, **settings: object) -> Plan:
    known = Plan(data=num_ranks, micro_batch=batch, global_batch=num_ranks * batch, precision=FULL)
    return replace(known, **settings)  # type: ignore[arg-type]


def items_of(
    model: Recommender, plan: Plan, tables: TableSharding, rank: int | None = None
) -> tuple[Item, ...]:
    (passes,) = blocks_of_recommender(model, plan, tables, rank=rank).layers
    return (*passes.forward.items, *passes.backward.items)


def exchanges(items: tuple[Item, ...]) -> list[tuple[str, int]]:
    """Collectives with the numbers that are sent, in order."""
    width = {"fp32": 4, "int32": 4, "int64": 8}
    return [
        (one.collective, one.num_bytes // width[one.dtype])
        for one in items
        if isinstance(one, Exchange)
    ]


PUBLISHED = [
    (CollectiveKind.ALL_TO_ALL, 6144),  # pooled vectors: 128 samples of 3 tables of 16 columns
    (CollectiveKind.ALL_TO_ALL, 24),
    (CollectiveKind.ALL_TO_ALL, 384),  # lengths of 24 tables
    (CollectiveKind.ALL_TO_ALL, 3392),  # ids of the next batch
    (CollectiveKind.ALL_REDUCE, 394_241),
    (CollectiveKind.ALL_TO_ALL, 6144),
    (CollectiveKind.ALL_REDUCE, 112),
    (CollectiveKind.ALL_REDUCE, 226_960),
]


@pytest.mark.parametrize("rank", range(8))
def test_exchanges_are_those_of_the_public_run(rank: int) -> None:
    items = items_of(public_model(), plan_of(8, 16), PUBLIC, rank)

    assert exchanges(items) == PUBLISHED


@pytest.mark.parametrize("rank", [0, 1])
def test_exchanges_come_in_the_order_of_the_recorded_ranks(data_dir: Path, rank: int) -> None:
    path = data_dir / "traces" / "chakra" / f"dlrm_linked_rank{rank}.json.gz"
    nodes = json.loads(gzip.decompress(path.read_bytes()))["nodes"]

    items = items_of(public_model(), plan_of(8, 16), PUBLIC, rank)

    assert exchanges(items) == list(recorded(nodes))
    assert products(items) == recorded_products(nodes)


def recorded(nodes: list[dict[str, object]]) -> Iterator[tuple[str, int]]:
    """Collectives of a trace with the numbers that are sent."""
    for node in nodes:
        inputs = node["inputs"]
        if node["name"] != "record_param_comms" or not isinstance(inputs, list):
            continue
        tensor, kind = inputs[0], inputs[4] if len(inputs) > 4 else ""
        if isinstance(tensor, list) and isinstance(kind, str):
            numbers = tensor[0][3] if isinstance(tensor[0], list) else tensor[3]
            yield collective_kind_of(kind), numbers


def recorded_products(nodes: list[dict[str, object]]) -> Counter[tuple[int, ...]]:
    """Sizes of the matrix products of a trace, however they are turned."""
    found: Counter[tuple[int, ...]] = Counter()
    for node in nodes:
        shapes = node["input_shapes"]
        if node.get("cat") or not isinstance(shapes, list):
            continue
        at = {"aten::addmm": 1, "aten::mm": 0, "aten::bmm": 0}.get(str(node["name"]))
        if at is not None:
            found[product_size(shapes[at], shapes[at + 1])] += 1
    return found


def products(items: tuple[Item, ...]) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for one in items:
        at = {"aten::addmm": 1, "aten::mm": 0, "aten::bmm": 0}.get(getattr(one, "name", ""))
        if at is not None and isinstance(one, Operator):
            dims = json.loads(one.signature)["dims"]
            found[product_size(dims[at], dims[at + 1])] += 1
    return found


def product_size(first: list[int], second: list[int]) -> tuple[int, ...]:
    return tuple(sorted((*first, second[-1])))


def test_reduced_numbers_are_all_dense_parameters_and_the_small_tables() -> None:
    model = public_model()

    items = items_of(model, plan_of(8, 16), PUBLIC, 0)

    networks = parameters(model).total - sum(model.rows) * model.size
    assert networks == 621_201
    assert (
        sum(count for name, count in exchanges(items) if name == CollectiveKind.ALL_REDUCE)
        == networks + 112
    )


def test_tables_stand_where_the_public_run_had_them() -> None:
    placed = place_tables(public_model(), PUBLIC, num_ranks=8, batch=16)

    held = [
        sum(one.num_rows * one.num_columns for one in placed.of_rank(rank, TableScheme.TABLE))
        for rank in (0, 1)
    ]
    # numbers of `weights` in its lookups: ranks 0 and 1
    assert held == [640_649_648, 640_339_856]


def test_of_no_rank_in_particular_exchanges_are_the_largest_of_any() -> None:
    found = dict(exchanges(items_of(public_model(), plan_of(8, 16), PUBLIC))[3:4])

    # rank 3 gets 104 ids a sample from each of 8 ranks
    assert found == {CollectiveKind.ALL_TO_ALL: 8 * 16 * 104}


@pytest.mark.parametrize(
    "name", ["dlrm-mlperf-v1", "dlrm-mlperf-v2", "dlrm-criteo-kaggle", "dlrm-benchmark"]
)
def test_products_have_the_models_flops(name: str) -> None:
    model, batch = preset(name), 32

    (passes,) = blocks_of_recommender(model, plan_of(4, batch), TableSharding()).layers

    expected = flops(model)
    assert product_flops(passes.forward) == batch * expected.forward
    # Nothing asks for the gradient of the dense features.
    unasked = 2 * batch * model.num_dense * model.bottom[0]
    assert product_flops(passes.backward) == batch * expected.backward - unasked


def product_flops(block: Block) -> int:
    works = [work_of(one.name, one.signature) for one in block.items if isinstance(one, Operator)]
    return sum(work.flops for work in works if work is not None and work.is_product)


@pytest.mark.parametrize("scheme", TableScheme)
@pytest.mark.parametrize("optimizer", TableOptimizer)
@pytest.mark.parametrize("name", ["dlrm-mlperf-v2", "dlrm-criteo-kaggle"])
def test_every_operator_can_be_costed(
    scheme: TableScheme, optimizer: TableOptimizer, name: str
) -> None:
    tables = TableSharding(scheme=scheme, optimizer=optimizer)
    inside = 4 if scheme is TableScheme.TABLE_ROW else None
    plan = plan_of(8, 32, shard_ranks=inside, implementation=Implementation(fuses_optimizer=False))

    for one in items_of(preset(name), plan, tables):
        if isinstance(one, Operator):
            assert operation_of(one.name, one.signature).model != UNKNOWN, one.label


def test_lookups_read_every_row_of_every_rank_once() -> None:
    model, batch = preset("dlrm-mlperf-v2"), 32
    read = 0

    for rank in range(8):
        for one in items_of(model, plan_of(8, batch), TableSharding(id_bytes=8), rank):
            if isinstance(one, Operator) and one.label.endswith("lookup"):
                work = work_of(one.name, one.signature)
                assert work is not None
                ids = 8 * batch * 8 * sum(model.pooling)
                read += work.bytes_read
    bags = 8 * sum(
        8 * batch * len(held) + 1
        for held in (
            place_tables(model, TableSharding(), num_ranks=8, batch=batch).of_rank(
                rank, TableScheme.TABLE
            )
            for rank in range(8)
        )
    )

    assert read == 8 * batch * 4 * model.num_lookups * model.size + ids + bags


def test_table_row_wise_exchanges_stay_in_the_host_and_then_cross() -> None:
    plan = plan_of(8, 32, shard_ranks=4)

    items = items_of(preset("dlrm-mlperf-v2"), plan, TableSharding(scheme=TableScheme.TABLE_ROW))

    groups = [
        (one.collective, one.group)
        for one in items
        if isinstance(one, Exchange) and "vectors" in one.label
    ]
    assert groups == [
        (CollectiveKind.REDUCE_SCATTER, Group.SHARD),
        (CollectiveKind.ALL_TO_ALL, Group.REPLICA),
        (CollectiveKind.ALL_TO_ALL, Group.REPLICA),
        (CollectiveKind.ALL_GATHER, Group.SHARD),
    ]


def test_the_interaction_waits_for_vectors_and_the_update_for_gradients() -> None:
    (passes,) = blocks_of_recommender(public_model(), plan_of(8, 16), PUBLIC).layers

    forward, backward = passes.forward.items, passes.backward.items
    waits = {one.label: one.after for one in (*forward, *backward)}
    vectors = [one.label for one in forward].index("table-wise pooled vectors")
    labels = [one.label for one in backward]
    gradients = labels.index("table-wise gradients of vectors")
    assert waits["vectors side by side"] == (vectors,)
    assert backward[labels.index("table-wise ids sorted")].after == (gradients,)
    reductions = [
        at
        for at, one in enumerate(backward)
        if CollectiveKind.ALL_REDUCE in getattr(one, "collective", "")
    ]
    assert waits["update"] == tuple(reductions)
    assert backward[-1].phase is Phase.OPTIMIZER


def test_ids_that_are_not_sent_ahead_hold_up_the_lookup() -> None:
    tables = replace(PUBLIC, sends_ids_ahead=False)

    (passes,) = blocks_of_recommender(public_model(), plan_of(8, 16), tables).layers

    forward = passes.forward.items
    labels = [one.label for one in forward]
    ids = labels.index("table-wise ids")
    assert ids < labels.index("table-wise lookup")
    assert any(ids in one.after for one in forward)
    assert "table-wise ids" not in [one.label for one in passes.backward.items]


def test_without_overlap_gradients_are_reduced_at_the_end() -> None:
    items = items_of(public_model(), plan_of(8, 16, overlap=Overlap(gradients=False)), PUBLIC)

    kinds = [getattr(one, "collective", "operator") for one in items]
    assert kinds[-4:] == [CollectiveKind.ALL_REDUCE] * 3 + ["operator"]


def test_one_rank_exchanges_nothing() -> None:
    assert exchanges(items_of(public_model(), plan_of(1, 16), PUBLIC)) == []


def test_a_plan_that_divides_networks_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"tp is 2, and .* only dp divides"):
        blocks_of_recommender(public_model(), Plan(tensor=2), PUBLIC)


def test_sharded_networks_are_refused() -> None:
    with pytest.raises(WorkloadError, match=r"sharding is 'zero1', .* set it to 'none'"):
        blocks_of_recommender(public_model(), plan_of(8, 16, sharding=Sharding.ZERO1), PUBLIC)


def test_ids_of_an_odd_size_are_refused() -> None:
    with pytest.raises(WorkloadError, match=r"id_bytes of .tables. is 5"):
        blocks_of_recommender(public_model(), plan_of(8, 16), replace(PUBLIC, id_bytes=5))


def test_gradients_cannot_be_accumulated() -> None:
    with pytest.raises(WorkloadError, match="dp 8 = 128, and global_batch is 256"):
        blocks_of_recommender(public_model(), replace(plan_of(8, 16), global_batch=256), PUBLIC)

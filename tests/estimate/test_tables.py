"""Steps of recommenders whose ranks have unequal work: imbalance moves the step the right way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.cost import Inflation
from foretrace.estimate import Estimate, estimate
from foretrace.machine import load_machine, with_figures
from foretrace.workload import (
    MemoryTier,
    Plan,
    Precision,
    Recommender,
    TablePlace,
    TableScheme,
    TableSharding,
    load_model,
)

RANKS = 4
FULL = Precision(products="fp32", activations="fp32", parameters="fp32", gradients="fp32")


def model_of(num_tables: int = 8) -> Recommender:
    known = load_model("dlrm-benchmark")
    assert isinstance(known, Recommender)
    return replace(known, rows=(1_000_000,) * num_tables, pooling=(100,) * num_tables)


def estimated(
    *places: TablePlace, ids: str = "even", num_tables: int = 8, storage: str | None = None
) -> Estimate:
    machine = load_machine("dgx-a100")
    if storage is not None:
        machine = with_figures(machine, {"host.storage_bandwidth": storage})
    plan = Plan(
        data=RANKS,
        micro_batch=1024,
        global_batch=RANKS * 1024,
        precision=FULL,
        tables=TableSharding(places=places, ids=ids),
    )
    return estimate(
        model_of(num_tables), plan, machine, inflation=Inflation(otherwise=1.0), unmodelled=0.0
    )


def on(*ranks: int, tier: MemoryTier = MemoryTier.HBM, cached: float = 1.0) -> list[TablePlace]:
    return [
        TablePlace(table, TableScheme.TABLE, (rank,), tier, cached)
        for table, rank in enumerate(ranks)
    ]


EVEN = on(0, 1, 2, 3, 0, 1, 2, 3)


def test_ranks_with_the_same_work_are_the_folded_step() -> None:
    placed = estimated(*EVEN)

    dealt = estimated()  # by rule: two tables each, one rank stands for all
    assert placed.step_ns == dealt.step_ns
    assert placed.laid_out.graph.rank.max() == RANKS - 1


def test_every_rank_looks_up_its_own_tables() -> None:
    found = estimated(*on(0, 0, 0, 0, 0, 1, 2, 3))
    graph, names = found.graph, found.graph.names
    is_lookup = graph.is_device & np.array(
        [at >= 0 and names[at] == "table-wise lookup" for at in graph.name]
    )

    by_rank = {int(graph.rank[at]): found.costs.duration_ns[at] for at in np.flatnonzero(is_lookup)}
    assert by_rank[0] == pytest.approx(5 * by_rank[1], rel=0.05)
    assert by_rank[1] == by_rank[2] == by_rank[3]


def test_a_fuller_rank_makes_the_step_longer_by_its_own_work() -> None:
    steps = [
        estimated(*on(*ranks)).step_ns
        for ranks in (
            (0, 1, 2, 3, 0, 1, 2, 3),
            (0, 0, 0, 1, 2, 3, 2, 3),
            (0, 0, 0, 0, 1, 2, 2, 3),
            (0,) * 8,
        )
    ]

    assert steps == sorted(steps)
    assert steps[-1] > 1.4 * steps[0]


def test_skewed_ids_make_the_rank_with_the_most_used_rows_late() -> None:
    rows = [TablePlace(table, TableScheme.ROW) for table in range(8)]

    even = estimated(*rows)
    skewed = estimated(*rows, ids="zipf:2")

    assert skewed.step_ns > 1.05 * even.step_ns


def test_memory_of_the_host_is_slower_and_a_cache_of_the_most_used_rows_mends_it() -> None:
    hbm = estimated(*EVEN, ids="zipf:1.1").step_ns
    without, small, large = (
        estimated(*on(*(one.ranks[0] for one in EVEN), tier=MemoryTier.HOST, cached=share),
                  ids="zipf:1.1").step_ns
        for share in (0.0, 0.01, 0.3)
    )  # fmt: skip

    assert hbm < large < small < without
    assert without > 3 * hbm


def test_disks_are_slower_than_memory_of_the_host() -> None:
    ranks = [one.ranks[0] for one in EVEN]
    host, disks = (
        estimated(*on(*ranks, tier=tier, cached=0.1), ids="zipf:1.1", storage="25 GB/s").step_ns
        for tier in (MemoryTier.HOST, MemoryTier.SSD)
    )

    assert disks > 2 * host


def test_what_is_outside_of_hbm_takes_no_memory_there() -> None:
    ranks = [one.ranks[0] for one in EVEN]
    hbm, cached = (
        estimated(*on(*ranks, tier=tier, cached=share))
        for tier, share in ((MemoryTier.HBM, 1.0), (MemoryTier.HOST, 0.1))
    )

    assert hbm.footprint is not None
    assert cached.footprint is not None
    saved = hbm.footprint.peak.total - cached.footprint.peak.total
    assert saved == pytest.approx(0.9 * 2 * 1_000_000 * (64 + 1) * 4, rel=1e-3)

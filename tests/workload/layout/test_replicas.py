"""Some copies of the model laid out rank by rank, for a job of many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.graph import verify
from foretrace.workload import (
    LaidOut,
    Plan,
    PlanDraft,
    blocks_of_model,
    complete,
    layout,
    replica_of_rank,
)
from tests.models import transformer


def plan_and_layout(num_replicas: int | None, *, folded: bool = True) -> tuple[Plan, LaidOut]:
    model = transformer("llama3-8b")
    small = replace(model, num_layers=2)
    keys = {"tp": 2, "pp": 2, "dp": 4, "global_batch": 16, "batch.sequence": 1024}
    plan = complete(PlanDraft().with_keys(keys), small)
    blocks = blocks_of_model(small, plan)
    return plan, layout(blocks, plan, folded=folded, num_replicas=num_replicas)


@pytest.mark.parametrize("count", [1, 2])
def test_the_ranks_of_the_first_copies_are_laid_out(count: int) -> None:
    plan, found = plan_and_layout(count)

    replica = replica_of_rank(plan)
    assert found.graph.ranks == tuple(np.flatnonzero(replica < count).tolist())
    assert sum(role.num_ranks for role in found.roles) == plan.num_ranks
    assert found.is_folded
    verify(found.graph)


def test_collectives_name_all_their_ranks_and_who_of_them_is_there() -> None:
    plan, found = plan_and_layout(1)

    kept = set(found.graph.ranks)
    reaching = [one for one in found.graph.collectives if not kept.issuperset(one.ranks)]
    assert reaching
    for one in found.graph.collectives:
        assert set(one.recorded_ranks) == kept.intersection(one.ranks)
    assert max(len(one.ranks) for one in reaching) == plan.num_ranks


def test_all_copies_are_the_unfolded_graph() -> None:
    _, copies = plan_and_layout(4)
    _, whole = plan_and_layout(None, folded=False)

    assert copies.graph.num_nodes == whole.graph.num_nodes
    assert (copies.graph.predecessor == whole.graph.predecessor).all()
    assert copies.graph.collectives == whole.graph.collectives


def test_every_copy_has_as_many_ranks() -> None:
    plan, _ = plan_and_layout(1)

    assert np.bincount(replica_of_rank(plan)).tolist() == [4, 4, 4, 4]


@pytest.mark.parametrize(("count", "folded"), [(0, True), (5, True), (1, False)])
def test_copies_that_are_not_there_are_refused(count: int, folded: bool) -> None:
    with pytest.raises(ValueError, match="num_replicas must be 1 to dp 4"):
        plan_and_layout(count, folded=folded)

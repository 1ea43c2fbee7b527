from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.workload import (
    Axis,
    Group,
    Plan,
    Sharding,
    coordinates,
    group_size,
    groups_of,
    rank_at,
    ranks_of,
    stage_of,
)
from tests.workload.plan.plans import plans

PARTITIONS = sorted({*Group} - {Group.EMBEDDING})


@given(plans(), st.sampled_from(PARTITIONS))
def test_groups_of_one_kind_hold_every_rank_once(plan: Plan, group: Group) -> None:
    found = groups_of(plan, group)

    assert sorted(found.flat) == list(range(plan.num_ranks))
    assert all(sorted(row) == list(row) for row in found.tolist())


@given(plans(), st.sampled_from(sorted(Group)), st.data())
def test_a_rank_is_in_its_own_group_as_are_the_others(
    plan: Plan, group: Group, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, plan.num_ranks - 1))

    ranks = ranks_of(plan, group, rank)

    if group is Group.EMBEDDING and stage_of(plan, rank) not in {0, plan.pipeline - 1}:
        assert ranks == ()
    else:
        assert rank in ranks
        assert len(ranks) == group_size(plan, group)
        assert all(ranks_of(plan, group, other) == ranks for other in ranks)


@given(plans())
def test_sizes_of_groups_multiply_to_the_ranks_of_a_stage_and_of_all(plan: Plan) -> None:
    size = {group: group_size(plan, group) for group in Group}

    in_stage = plan.tensor * plan.context * plan.data
    assert size[Group.DATA] == plan.data * plan.context
    assert size[Group.SHARD] * size[Group.REPLICA] == size[Group.DATA]
    assert size[Group.EXPERT_TENSOR] * size[Group.EXPERT] * size[Group.EXPERT_DATA] == in_stage
    assert size[Group.TENSOR] * size[Group.DATA] == in_stage
    assert in_stage * size[Group.PIPELINE] == size[Group.ALL] == plan.num_ranks
    assert size[Group.MIRROR] == (2 if plan.schedule == "dualpipe" else 1)


@given(plans(), st.data())
def test_ranks_of_a_group_differ_along_its_axes_alone(plan: Plan, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, plan.num_ranks - 1))
    own = coordinates(plan, rank)

    for group, axes in [
        (Group.TENSOR, {Axis.TENSOR}),
        (Group.CONTEXT, {Axis.CONTEXT}),
        (Group.DATA, {Axis.DATA, Axis.CONTEXT}),
        (Group.SHARD, {Axis.DATA, Axis.CONTEXT}),
        (Group.REPLICA, {Axis.DATA, Axis.CONTEXT}),
        (Group.PIPELINE, {Axis.PIPELINE}),
        (Group.MIRROR, {Axis.PIPELINE}),
        (Group.EXPERT, {Axis.TENSOR, Axis.DATA, Axis.CONTEXT}),
    ]:
        for other in ranks_of(plan, group, rank):
            theirs = coordinates(plan, other)
            assert {axis for axis in Axis if own[axis] != theirs[axis]} <= axes


@given(plans())
def test_the_innermost_axis_counts_fastest(plan: Plan) -> None:
    sizes = [
        len({coordinates(plan, rank)[axis] for rank in range(plan.num_ranks)}) for axis in Axis
    ]
    assert sizes == [plan.tensor, plan.context, plan.data, plan.pipeline]

    inner = plan.data // (plan.outer_data or 1)
    for rank in range(plan.num_ranks):
        along = coordinates(plan, rank)
        place, stride = 0, 1
        for axis in plan.order:
            size = inner if axis is Axis.DATA else sizes[list(Axis).index(axis)]
            place += along[axis] % size * stride
            stride *= size
        assert place + along[Axis.DATA] // inner * stride == rank
        assert rank_at(plan, along) == rank


def test_groups_are_those_of_megatrons_own_example() -> None:
    """16 GPUs with tp 2 and pp 4, as `initialize_model_parallel` of Megatron-LM describes."""
    plan = Plan(tensor=2, pipeline=4, data=2)

    assert groups_of(plan, Group.TENSOR).tolist() == [[2 * at, 2 * at + 1] for at in range(8)]
    assert groups_of(plan, Group.PIPELINE).tolist() == [
        [at, at + 4, at + 8, at + 12] for at in range(4)
    ]
    assert groups_of(plan, Group.DATA).tolist() == [
        [0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15],
    ]  # fmt: skip


def test_experts_are_divided_among_neighbours_of_a_stage() -> None:
    """As Megatron-LM's second generator of ranks does: etp innermost, then ep, then copies."""
    plan = Plan(tensor=2, data=4, pipeline=2, expert=4, expert_tensor=1)

    assert ranks_of(plan, Group.EXPERT, 5) == (4, 5, 6, 7)
    assert ranks_of(plan, Group.EXPERT_DATA, 5) == (1, 5)
    assert ranks_of(plan, Group.EXPERT_TENSOR, 5) == (5,)
    assert ranks_of(plan, Group.EXPERT, 13) == (12, 13, 14, 15)


def test_experts_that_stay_divided_by_tensor_ranks_skip_these() -> None:
    plan = Plan(tensor=2, data=4, expert=2)

    assert ranks_of(plan, Group.EXPERT_TENSOR, 5) == (4, 5)
    assert ranks_of(plan, Group.EXPERT, 5) == (5, 7)
    assert ranks_of(plan, Group.EXPERT_DATA, 5) == (1, 5)


def test_shards_are_neighbours_and_replicas_stand_apart() -> None:
    plan = Plan(data=8, sharding=Sharding.ZERO3, shard_ranks=4)

    assert groups_of(plan, Group.SHARD).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert ranks_of(plan, Group.REPLICA, 2) == (2, 6)


def test_only_the_first_and_the_last_stage_share_the_embedding() -> None:
    plan = Plan(tensor=2, pipeline=3)

    assert groups_of(plan, Group.EMBEDDING).tolist() == [[0, 4], [1, 5]]
    assert ranks_of(plan, Group.EMBEDDING, 2) == ()
    assert ranks_of(Plan(tensor=2), Group.EMBEDDING, 1) == (1,)


def test_dualpipe_keeps_each_part_of_the_model_on_two_stages() -> None:
    plan = Plan(pipeline=4, data=2, schedule="dualpipe")

    assert groups_of(plan, Group.MIRROR).tolist() == [[0, 6], [2, 4], [1, 7], [3, 5]]


@pytest.mark.parametrize("rank", [-1, 8])
def test_a_rank_that_does_not_exist_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match="rank must be 0 to 7"):
        ranks_of(Plan(data=8), Group.DATA, rank)
    with pytest.raises(ValueError, match="rank must be 0 to 7"):
        stage_of(Plan(data=8), rank)


@pytest.mark.parametrize(
    ("plan", "group", "message"),
    [
        (
            Plan(tensor=2, data=6, expert=8, expert_tensor=1),
            Group.EXPERT,
            r"etp 1 x ep 8 = 8 does not divide .* tp 2 x cp 1 x dp 6 = 12: with etp 1, ep 6 would",
        ),
        (Plan(data=6, shard_ranks=4), Group.SHARD, r"shards over 4 ranks .* = 6 ranks: 3 would"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(plan: Plan, group: Group, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        groups_of(plan, group)

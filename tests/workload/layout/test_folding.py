import numpy as np
import pytest

from foretrace.graph import ExecutionGraph, NodeKind, Timeline, verify
from foretrace.simulate import simulate
from foretrace.workload import (
    AT_ONCE,
    Group,
    LaidOut,
    Overlap,
    ParameterCount,
    Plan,
    Sharding,
    layout,
    ranks_of,
)
from tests.workload.layout.parts import durations, layer, step_ns, whole_model

_LATE = Overlap(gradients=False, parameters=False, pipeline=False)
PLANS = {
    "alone": (Plan(global_batch=2), ()),
    "tensor": (Plan(tensor=4), (Group.TENSOR,)),
    "pipeline": (Plan(pipeline=4, global_batch=8), ()),
    "three dimensions": (
        Plan(tensor=2, pipeline=2, data=3, global_batch=12, bucket_bytes=9_000),
        (Group.TENSOR,),
    ),
    "context": (Plan(context=2, data=2, global_batch=4, pipeline=2), (Group.CONTEXT,)),
    "experts": (
        Plan(data=4, expert=2, tensor=2, expert_tensor=1, global_batch=8),
        (Group.EXPERT, Group.TENSOR),
    ),
    "ZeRO-1": (
        Plan(
            tensor=2,
            data=4,
            pipeline=2,
            global_batch=16,
            sharding=Sharding.ZERO1,
            bucket_bytes=2_500,
            schedule="interleaved",
            num_chunks=2,
        ),
        (Group.TENSOR,),
    ),
    "ZeRO-1, nothing overlaps": (
        Plan(tensor=2, data=2, pipeline=2, global_batch=8, sharding=Sharding.ZERO1, overlap=_LATE),
        (Group.TENSOR,),
    ),
    "ZeRO-2": (
        Plan(pipeline=4, data=2, global_batch=16, schedule="zb-h1", sharding=Sharding.ZERO2),
        (),
    ),
    "ZeRO-3": (Plan(data=4, global_batch=8, sharding=Sharding.ZERO3, prefetch=2), ()),
    "hybrid": (
        Plan(data=4, global_batch=8, sharding=Sharding.ZERO3, shard_ranks=2),
        (),
    ),
    "DualPipe": (
        Plan(
            pipeline=4,
            data=2,
            expert=2,
            global_batch=32,
            schedule="dualpipe",
            sharding=Sharding.ZERO1,
        ),
        (Group.EXPERT,),
    ),
}
CASES = [pytest.param(*case, id=name) for name, case in PLANS.items()]


def _both(plan: Plan, groups: tuple[Group, ...]) -> tuple[LaidOut, LaidOut]:
    count = ParameterCount(3_000, 900 if Group.EXPERT in groups else 0)
    blocks = whole_model(8, layer(groups=groups, parameters=count))
    return (
        layout(blocks, plan, launch=AT_ONCE),
        layout(blocks, plan, launch=AT_ONCE, folded=False),
    )


def _stage_ends(found: LaidOut, timeline: Timeline) -> dict[int, set[int]]:
    """Moments at which ranks of each stage end."""
    ends: dict[int, set[int]] = {role.stage: set() for role in found.roles}
    for role in found.roles:
        own = timeline.graph.rank == role.rank
        ends[role.stage].add(int(timeline.end_ns[own].max()))
    return ends


@pytest.mark.parametrize(("plan", "groups"), CASES)
def test_folded_and_unfolded_steps_are_equal(plan: Plan, groups: tuple[Group, ...]) -> None:
    folded, unfolded = _both(plan, groups)
    verify(folded.graph)
    verify(unfolded.graph)

    timelines = [simulate(one.graph, durations(one.graph)) for one in (folded, unfolded)]

    assert step_ns(timelines[0]) == step_ns(timelines[1])
    assert _stage_ends(folded, timelines[0]) == _stage_ends(unfolded, timelines[1])
    assert len(unfolded.graph.ranks) == plan.num_ranks == sum(one.num_ranks for one in folded.roles)


@pytest.mark.parametrize(("plan", "groups"), CASES)
def test_every_rank_meets_its_own_groups(plan: Plan, groups: tuple[Group, ...]) -> None:
    folded, unfolded = _both(plan, groups)

    for graph in (folded.graph, unfolded.graph):
        is_arrival = graph.kind == NodeKind.ARRIVE
        for at, one in enumerate(graph.collectives):
            present = graph.rank[is_arrival & (graph.collective == at)]
            assert one.recorded_ranks == tuple(np.sort(present).tolist())
            if one.group != Group.PIPELINE:
                assert one.ranks == ranks_of(plan, Group(one.group), one.ranks[0])
    assert all(one.ranks == one.recorded_ranks for one in unfolded.graph.collectives)


@pytest.mark.parametrize(("plan", "groups"), CASES)
def test_positions_count_within_each_group(plan: Plan, groups: tuple[Group, ...]) -> None:
    for found in _both(plan, groups):
        positions: dict[object, list[int]] = {}
        for one in found.graph.collectives:
            positions.setdefault((one.group, one.ranks), []).append(one.position)

        for counted in positions.values():
            assert sorted(counted) == list(range(len(counted)))


def test_a_rank_that_is_slow_holds_its_groups_up() -> None:
    plan, groups = PLANS["three dimensions"]
    graph = _both(plan, groups)[1].graph
    alone_ns = durations(graph)
    slow_ns = alone_ns + np.where((graph.rank == 5) & (graph.kind == NodeKind.KERNEL), 50, 0)

    ends = [_end_of(graph, simulate(graph, one), 4) for one in (alone_ns, slow_ns)]

    assert ranks_of(plan, Group.TENSOR, 5) == (4, 5)
    assert ends[1] > ends[0]


def _end_of(graph: ExecutionGraph, timeline: Timeline, rank: int) -> int:
    kernels = (graph.rank == rank) & (graph.kind == NodeKind.KERNEL)
    return int(timeline.end_ns[kernels].max())

from dataclasses import replace

import numpy as np
import pytest

from foretrace.graph import ExecutionGraph, NodeKind, Part, Timeline
from foretrace.simulate import simulate
from foretrace.workload import (
    Group,
    ModelBlocks,
    Overlap,
    ParameterCount,
    Plan,
    Precision,
    Sharding,
)
from tests.workload.layout.parts import laid_out, layer, model, step_ns

NUM_LAYERS, DENSE, EXPERT = 6, 4_096, 512
PARAMETER_BYTES, GRADIENT_BYTES = 2, 4  # the plan's bf16 and fp32


def _blocks(num_layers: int = NUM_LAYERS, *, expert: int = 0) -> ModelBlocks:
    return model(num_layers, layer(parameters=ParameterCount(DENSE, expert)))


def _volume(graph: ExecutionGraph, collective: str, group: Group) -> int:
    return sum(
        one.num_bytes
        for one in graph.collectives
        if one.name == collective and one.group == group.value
    )


@pytest.mark.parametrize("microbatches", [1, 3])
def test_fully_sharded_parameters_are_gathered_twice_and_scattered_once_a_microbatch(
    microbatches: int,
) -> None:
    plan = Plan(data=4, global_batch=4 * microbatches, sharding=Sharding.ZERO3)

    graph = laid_out(_blocks(), plan).graph

    total = NUM_LAYERS * DENSE * microbatches
    assert _volume(graph, "allgather", Group.SHARD) == 2 * total * PARAMETER_BYTES
    assert _volume(graph, "reducescatter", Group.SHARD) == total * GRADIENT_BYTES


def test_parameters_that_are_kept_after_the_forward_pass_are_gathered_once() -> None:
    plan = Plan(data=4, global_batch=8, sharding=Sharding.ZERO3, reshard_after_forward=False)

    graph = laid_out(_blocks(), plan).graph

    assert _volume(graph, "allgather", Group.SHARD) == 2 * NUM_LAYERS * DENSE * PARAMETER_BYTES


def test_a_pipeline_that_keeps_parameters_gathers_them_once_a_step() -> None:
    plan = Plan(
        data=4, pipeline=2, global_batch=32, sharding=Sharding.ZERO3, reshard_after_forward=False
    )

    graph = laid_out(_blocks(), plan).graph

    assert _volume(graph, "allgather", Group.SHARD) == NUM_LAYERS * DENSE * PARAMETER_BYTES


def test_hybrid_sharding_sums_shards_over_replicas() -> None:
    plan = Plan(data=8, global_batch=8, sharding=Sharding.ZERO3, shard_ranks=4)

    graph = laid_out(_blocks(), plan).graph

    total = NUM_LAYERS * DENSE * GRADIENT_BYTES
    assert _volume(graph, "reducescatter", Group.SHARD) == total
    assert _volume(graph, "allreduce", Group.REPLICA) == total // 4


@pytest.mark.parametrize("bucket_bytes", [1, 5_000, 16_384, 40_000, 10**9])
@pytest.mark.parametrize("overlaps", [True, False])
def test_buckets_hold_every_gradient_once(bucket_bytes: int, overlaps: bool) -> None:
    size = max(bucket_bytes, 64)
    plan = Plan(data=4, global_batch=12, bucket_bytes=size, overlap=Overlap(gradients=overlaps))

    graph = laid_out(_blocks(), plan).graph

    total = NUM_LAYERS * DENSE * GRADIENT_BYTES
    buckets = [one for one in graph.collectives if one.group == Group.DATA.value]
    assert _volume(graph, "allreduce", Group.DATA) == total
    assert len(buckets) == -(-total // size)


@pytest.mark.parametrize("overlaps", [True, False])
def test_states_that_are_divided_cost_one_scatter_and_one_gather_a_step(overlaps: bool) -> None:
    plan = Plan(
        tensor=2,
        data=4,
        global_batch=12,
        sharding=Sharding.ZERO1,
        bucket_bytes=10_000,
        overlap=Overlap(gradients=overlaps, parameters=overlaps),
    )

    graph = laid_out(_blocks(), plan).graph

    total = NUM_LAYERS * DENSE
    assert _volume(graph, "reducescatter", Group.SHARD) == total * GRADIENT_BYTES
    assert _volume(graph, "allgather", Group.SHARD) == total * PARAMETER_BYTES


def test_divided_gradients_are_scattered_in_every_backward_pass() -> None:
    plan = Plan(data=4, global_batch=12, sharding=Sharding.ZERO2)

    graph = laid_out(_blocks(), plan).graph

    total = NUM_LAYERS * DENSE
    assert _volume(graph, "reducescatter", Group.SHARD) == 3 * total * GRADIENT_BYTES
    assert _volume(graph, "allgather", Group.SHARD) == total * PARAMETER_BYTES


@pytest.mark.parametrize(("contiguous", "runs"), [(2, 4), (4, 2), (8, 1)])
def test_a_pipeline_scatters_after_each_run_of_a_chunks_microbatches(
    contiguous: int, runs: int
) -> None:
    plan = Plan(
        data=2,
        pipeline=2,
        global_batch=16,
        schedule="interleaved",
        num_chunks=2,
        contiguous=contiguous,
        sharding=Sharding.ZERO2,
    )

    graph = laid_out(_blocks(), plan).graph

    # The two stages are both in the graph.
    total = NUM_LAYERS * DENSE
    assert _volume(graph, "reducescatter", Group.SHARD) == runs * total * GRADIENT_BYTES


def test_experts_are_reduced_among_those_that_hold_the_same() -> None:
    plan = Plan(data=4, expert=2, global_batch=4, precision=Precision(reduced="bf16"))

    graph = laid_out(_blocks(expert=EXPERT), plan).graph

    assert _volume(graph, "allreduce", Group.DATA) == NUM_LAYERS * DENSE * 2
    assert _volume(graph, "allreduce", Group.EXPERT_DATA) == NUM_LAYERS * EXPERT * 2


def test_one_rank_says_nothing_to_itself() -> None:
    for sharding in Sharding:
        plan = Plan(global_batch=2, sharding=sharding)

        assert laid_out(_blocks(expert=EXPERT), plan).graph.collectives == ()


def _with_gathers(graph: ExecutionGraph, gather_ns: int) -> Timeline:
    names = np.array([*(one.name == "allgather" for one in graph.collectives), False])
    is_gather = (graph.kind == NodeKind.FINISH) & names[graph.collective]
    return simulate(graph, np.where(is_gather, gather_ns, graph.measured_ns))


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_gathers_run_ahead_by_as_many_parts_as_stated(prefetch: int) -> None:
    plan = Plan(data=2, global_batch=2, sharding=Sharding.ZERO3, prefetch=prefetch)
    blocks = model(5, layer(100, 100, 100, parameters=ParameterCount(64)))

    timeline = _with_gathers(laid_out(blocks, plan).graph, 1)

    graph = timeline.graph
    gathers = np.flatnonzero((graph.kind == NodeKind.ARRIVE) & (graph.part == Part.BUCKET))
    gathers = gathers[np.argsort(timeline.start_ns[gathers])][:5]  # of the forward pass
    kernels = graph.nodes_of(NodeKind.KERNEL)
    ends = np.sort(timeline.end_ns[kernels])
    for place in range(prefetch + 1, 5):
        assert timeline.start_ns[gathers[place]] == ends[place - prefetch - 1]


def test_prefetching_hides_gathers_that_are_shorter_than_the_work_beside_them() -> None:
    blocks = model(8, layer(100, 100, 100, parameters=ParameterCount(64)))
    plan = Plan(data=2, global_batch=2, sharding=Sharding.ZERO3)

    lengths = [
        step_ns(_with_gathers(laid_out(blocks, replace(plan, prefetch=ahead)).graph, 90))
        for ahead in (0, 1)
    ]

    # Without prefetch every gather is waited for; with it the first one, which nothing precedes.
    assert lengths == [8 * 300 + 16 * 90, 8 * 300 + 90]


@pytest.mark.parametrize("sharding", [Sharding.ZERO2, Sharding.ZERO3])
@pytest.mark.parametrize("microbatches", [1, 3])
def test_what_does_not_overlap_is_waited_for(sharding: Sharding, microbatches: int) -> None:
    blocks = model(8, layer(100, 100, 100, parameters=ParameterCount(64)))
    exposed = Overlap(gradients=False, parameters=False)
    plan = Plan(
        data=2,
        global_batch=2 * microbatches,
        sharding=sharding,
        bucket_bytes=64 * GRADIENT_BYTES,
        overlap=exposed,
    )
    graph = laid_out(blocks, plan).graph

    is_finish = graph.kind == NodeKind.FINISH
    timeline = simulate(graph, np.where(is_finish, 30, graph.measured_ns))

    assert step_ns(timeline) == 8 * 300 * microbatches + int(is_finish.sum()) * 30
    num_gathers = 2 * microbatches if sharding is Sharding.ZERO3 else 1
    assert is_finish.sum() == (num_gathers + microbatches) * 8


def test_gathered_buckets_hold_up_only_the_layers_they_belong_to() -> None:
    plan = Plan(
        data=2, global_batch=2, sharding=Sharding.ZERO1, bucket_bytes=DENSE * GRADIENT_BYTES
    )
    graph = laid_out(_blocks(), plan).graph

    timeline = _with_gathers(graph, 250)

    first = np.flatnonzero((graph.kind == NodeKind.KERNEL) & (graph.microbatch == 0))
    starts = np.sort(timeline.start_ns[first])[:NUM_LAYERS]
    # A layer takes 100 ns, a bucket 250: every layer waits for its own bucket.
    assert starts.tolist() == [250 * (place + 1) for place in range(NUM_LAYERS)]

from dataclasses import replace

import pytest

from foretrace.graph import Collective, NodeKind, Part, Phase
from foretrace.simulate import simulate
from foretrace.workload import (
    AT_ONCE,
    Block,
    Group,
    Operator,
    Overlap,
    ParameterCount,
    Plan,
    Sharding,
    layout,
)
from tests.workload.layout.parts import laid_out, layer, model, operator, step_ns, whole_model

COUNT = ParameterCount(1_000, 0)


def _of(plan: Plan, group: Group, *, num_layers: int = 8) -> list[Collective]:
    blocks = whole_model(num_layers, layer(parameters=COUNT))
    graph = layout(blocks, plan).graph
    return [one for one in graph.collectives if one.group == group.value]


def test_first_and_last_stage_agree_on_the_table_they_share() -> None:
    plan = Plan(tensor=2, pipeline=4, global_batch=8)

    found = _of(plan, Group.EMBEDDING)

    assert [(one.ranks, one.num_bytes) for one in found] == [((0, 6), 64 * 4)]


@pytest.mark.parametrize(
    "plan",
    [Plan(global_batch=8), Plan(pipeline=4, global_batch=8, schedule="dualpipe")],
    ids=["one stage", "mirrored stages"],
)
def test_a_stage_with_both_ends_of_the_model_has_one_table(plan: Plan) -> None:
    assert _of(plan, Group.EMBEDDING) == []


def test_mirrored_stages_add_up_the_gradients_of_both_their_chunks() -> None:
    plan = Plan(pipeline=4, global_batch=8, schedule="dualpipe")

    found = _of(plan, Group.MIRROR)

    # Embedding and two layers, and two layers and the output, on stages 0 and 3; else two each.
    assert [(one.ranks, one.num_bytes) for one in found] == [
        ((0, 3), 3_000 * 4),
        ((0, 3), 3_000 * 4),
        ((1, 2), 2_000 * 4),
        ((1, 2), 2_000 * 4),
    ]


def test_all_ranks_agree_on_the_norm_once() -> None:
    found = _of(Plan(tensor=2, pipeline=2, data=2, global_batch=8), Group.ALL)

    assert [(one.name, one.num_bytes, one.ranks) for one in found] == [
        ("allreduce", 4, tuple(range(8)))
    ]


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [(Sharding.NONE, 10_000), (Sharding.ZERO1, 2_500), (Sharding.ZERO3, 2_500)],
)
def test_a_rank_updates_its_share(sharding: Sharding, expected: int) -> None:
    updated = []

    def optimizer(num_parameters: int, plan: Plan) -> Block:
        del plan
        updated.append(num_parameters)
        return Block(Part.OPTIMIZER, (operator("update", 1, Phase.OPTIMIZER),))

    plan = Plan(data=4, global_batch=4, sharding=sharding)
    layout(model(10, layer(parameters=COUNT)), plan, optimizer=optimizer)

    assert updated == [expected]


@pytest.mark.parametrize("overlaps", [True, False])
def test_the_optimizer_waits_for_the_last_gradients(overlaps: bool) -> None:
    def optimizer(num_parameters: int, plan: Plan) -> Block:
        del num_parameters, plan
        return Block(Part.OPTIMIZER, (operator("update", 5, Phase.OPTIMIZER),))

    plan = Plan(data=2, global_batch=2, bucket_bytes=1, overlap=Overlap(gradients=overlaps))
    graph = layout(
        model(3, layer(parameters=ParameterCount(1))), plan, launch=AT_ONCE, optimizer=optimizer
    ).graph
    is_finish = graph.kind == NodeKind.FINISH

    timeline = simulate(graph, graph.measured_ns + 1_000 * is_finish)

    # Three buckets one after the other, the first behind the last layer's backward pass or all.
    begun_ns = 3 * 100 + 200 if overlaps else 3 * 300
    assert step_ns(timeline) == begun_ns + 3 * 1_000 + 5


def test_gathering_that_does_not_overlap_follows_the_optimizer() -> None:
    plan = Plan(
        data=2,
        global_batch=2,
        sharding=Sharding.ZERO1,
        overlap=replace(Overlap(), parameters=False),
    )
    graph = laid_out(model(3, layer(parameters=COUNT)), plan).graph
    names = [one.name for one in graph.collectives]
    is_gather = (graph.kind == NodeKind.FINISH) & (graph.collective == names.index("allgather"))

    timeline = simulate(graph, graph.measured_ns + 700 * is_gather)

    assert step_ns(timeline) == 3 * 300 + 700


def test_an_own_optimizer_with_a_norm_is_made_to_agree() -> None:
    def optimizer(num_parameters: int, plan: Plan) -> Block:
        del num_parameters, plan
        norm = Operator("norm", "aten::linalg_vector_norm", "[[8]]", Phase.OPTIMIZER, (), 10)
        return Block(Part.OPTIMIZER, (norm, operator("update", 5, Phase.OPTIMIZER)))

    plan = Plan(tensor=2)
    graph = layout(model(1), plan, launch=AT_ONCE, optimizer=optimizer).graph
    is_finish = graph.kind == NodeKind.FINISH

    assert is_finish.sum() == 1
    assert step_ns(simulate(graph, graph.measured_ns + 400 * is_finish)) == 300 + 10 + 400 + 5

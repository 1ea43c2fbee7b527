from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.analyze import breakdown, critical_path, steps
from foretrace.base import WorkloadError
from foretrace.graph import NO_LAYER, NO_MICROBATCH, EdgeKind, NodeKind, Part, Phase, verify
from foretrace.simulate import simulate
from foretrace.workload import (
    AT_ONCE,
    Group,
    LaidOut,
    Launch,
    Orders,
    ParameterCount,
    Pass,
    Plan,
    Schedule,
    ScheduleUnit,
    Sharding,
    blocks_of_model,
    launch_named,
    layout,
    schedule_of,
)
from tests.models import transformer
from tests.workload.layout.parts import (
    durations,
    layer,
    model,
    no_update,
    step_ns,
    whole_model,
)
from tests.workload.plan.plans import plans

PLAN = Plan(
    tensor=2,
    pipeline=2,
    data=2,
    global_batch=8,
    sharding=Sharding.ZERO1,
    sequence=512,
    sequence_parallel=True,
)


@pytest.fixture(scope="module")
def small() -> LaidOut:
    """A published model's layers, few of them, under a plan with every dimension but one."""
    llama = transformer("llama3-8b")
    short = replace(llama, num_layers=4)
    return layout(blocks_of_model(short, PLAN), PLAN)


def test_a_models_layout_is_a_legal_graph(small: LaidOut) -> None:
    verify(small.graph)


def test_nodes_say_what_they_are_part_of(small: LaidOut) -> None:
    graph = small.graph
    is_work = graph.is_of(NodeKind.KERNEL, NodeKind.FINISH)
    is_layer = is_work & (graph.part == Part.LAYER)
    is_first_stage = graph.rank == small.roles[0].rank

    assert set(graph.layer[is_layer & is_first_stage].tolist()) == {0, 1}
    assert set(graph.layer[is_layer & ~is_first_stage].tolist()) == {2, 3}
    assert set(graph.microbatch[is_layer].tolist()) == {0, 1, 2, 3}
    assert not (graph.phase[is_work] == Phase.UNKNOWN).any()
    is_update = is_work & (graph.part == Part.OPTIMIZER)
    assert (graph.layer[is_update] == NO_LAYER).all()
    assert (graph.microbatch[is_update] == NO_MICROBATCH).all()
    assert {Part.EMBEDDING, Part.HEAD, Part.OPTIMIZER, Part.BUCKET, Part.TRANSFER} <= set(
        graph.part[is_work].tolist()
    )


def test_kernels_name_their_operator_and_its_shapes(small: LaidOut) -> None:
    graph = small.graph
    kernels = graph.kind == NodeKind.KERNEL

    assert (graph.operator[kernels] >= 0).all()
    assert (graph.operator_signature[kernels] >= 0).all()
    assert "attention" in {graph.names[name] for name in graph.name[kernels].tolist()}


def test_every_operation_is_launched_once_and_in_the_order_of_its_stream(small: LaidOut) -> None:
    graph = small.graph
    target = graph.edge_target
    is_launch = graph.edge_kind == EdgeKind.LAUNCH
    launched = target[is_launch]

    is_operation = graph.is_of(NodeKind.KERNEL, NodeKind.ARRIVE)
    assert np.array_equal(np.sort(launched), np.flatnonzero(is_operation))
    launch_of = dict(zip(launched.tolist(), graph.predecessor[is_launch].tolist(), strict=True))
    is_stream = graph.edge_kind == EdgeKind.STREAM
    arrival_of = {
        (int(graph.collective[node]), int(graph.lane[node])): node
        for node in graph.nodes_of(NodeKind.ARRIVE).tolist()
    }
    for before, behind in zip(graph.predecessor[is_stream], target[is_stream], strict=True):
        place = (int(graph.collective[before]), int(graph.lane[before]))
        first = arrival_of.get(place, int(before))
        assert launch_of[first] < launch_of[int(behind)]


def test_analyses_of_replays_hold_on_layouts(small: LaidOut) -> None:
    timeline = simulate(small.graph, durations(small.graph))

    found = breakdown(timeline)

    table = steps(timeline)
    assert [row.rank for row in found.rows] == list(small.graph.ranks)
    assert [row.step_ns for row in found.rows] == table.duration_ns.tolist()
    assert int(table.end_ns.max()) == step_ns(timeline)
    assert critical_path(timeline).step_ns == step_ns(timeline)


def test_waiting_for_another_stage_is_idle_and_no_communication() -> None:
    plan = Plan(pipeline=4, global_batch=8)
    timeline = simulate(layout(model(4), plan, launch=AT_ONCE, optimizer=no_update).graph)

    rows = breakdown(timeline).rows

    # A rank's step ends with its own last operation; the first stage's with that of all.
    assert [row.step_ns for row in rows] == [11 * 300 - 200 * stage for stage in range(4)]
    assert [row.parts.exposed_compute_ns for row in rows] == [8 * 300] * 4
    assert [row.parts.idle_ns for row in rows] == [row.step_ns - 8 * 300 for row in rows]


def test_hosts_that_are_slower_than_their_devices_set_the_pace() -> None:
    slow = Launch(forward_ns=500, backward_ns=700, optimizer_ns=0, exchange_ns=0)
    graph = layout(model(3), Plan(global_batch=2), launch=slow, optimizer=no_update).graph

    found_ns = step_ns(simulate(graph))

    # Each microbatch has three products forward and six backward; the last one runs alone.
    assert found_ns == 2 * (3 * 500 + 6 * 700) + 80


def test_plans_name_how_operations_are_launched() -> None:
    eager, compiled = (launch_named(name) for name in ("eager", "compiled"))

    assert compiled.forward_ns < eager.forward_ns
    with pytest.raises(WorkloadError, match="no way to launch is called 'lazy': known are eager"):
        launch_named("lazy")


def test_backward_before_forward_is_refused() -> None:
    units = (ScheduleUnit(Pass.BACKWARD, 0, 0), ScheduleUnit(Pass.FORWARD, 0, 0))
    schedule = Schedule("mine", Orders.of_units((units,)), (0,), ((0,),), (0,))

    with pytest.raises(WorkloadError, match="'mine', stage 0: backward of microbatch 0 on chunk 0"):
        layout(model(1), Plan(), schedule)


def test_a_receive_without_a_send_is_refused() -> None:
    units = (
        (ScheduleUnit(Pass.BACKWARD, 0, 0),),
        (ScheduleUnit(Pass.FORWARD, 0, 1), ScheduleUnit(Pass.BACKWARD, 0, 1)),
    )
    schedule = Schedule("mine", Orders.of_units(units), (0, 1), ((0, 1),), (0,))

    with pytest.raises(WorkloadError, match="receive what no stage sends"):
        layout(model(2), Plan(pipeline=2), schedule)


def test_stages_that_wait_for_each_other_are_named() -> None:
    def units(chunk: int, order: str) -> tuple[ScheduleUnit, ...]:
        kinds = {"F": Pass.FORWARD, "B": Pass.BACKWARD}
        return tuple(ScheduleUnit(kinds[one[0]], int(one[1]), chunk) for one in order.split())

    stages = (units(0, "F0 B0 F1 B1"), units(1, "F0 F1 B0 B1"))
    schedule = Schedule("stuck", Orders.of_units(stages), (0, 1), ((0, 1),), (0, 0))

    with pytest.raises(WorkloadError, match="'stuck' never ends, because its stages wait"):
        layout(model(2), Plan(pipeline=2, global_batch=2), schedule)


def test_a_schedule_of_other_microbatches_is_refused() -> None:
    schedule = schedule_of(Plan(pipeline=2, global_batch=8))

    with pytest.raises(WorkloadError, match="2 stages and 8 microbatches, and the plan has pp 2 a"):
        layout(model(2), Plan(pipeline=2, global_batch=4), schedule)


def test_graphs_grow_linearly_with_layers_and_with_ranks() -> None:
    by_layers = [
        layout(model(count), replace(PLAN, pipeline=1), optimizer=no_update).graph.num_nodes
        for count in (4, 8, 12)
    ]
    by_ranks = [
        layout(model(4), replace(PLAN, data=count, global_batch=4 * count), folded=False).graph
        for count in (2, 4, 8)
    ]

    assert by_layers[2] - by_layers[1] == by_layers[1] - by_layers[0]
    # Hubs of collectives over all ranks are as many whatever the number of ranks.
    assert by_ranks[2].num_edges == 2 * by_ranks[1].num_edges == 4 * by_ranks[0].num_edges
    assert by_ranks[2].num_nodes < 4 * by_ranks[0].num_nodes


@settings(max_examples=15)
@given(plan=plans(), data=st.data())
def test_any_plan_becomes_a_legal_graph_that_folding_does_not_change(
    plan: Plan, data: st.DataObject
) -> None:
    least = 2 * plan.pipeline if plan.schedule == "dualpipe" else 2
    plan = replace(
        plan,
        global_batch=plan.data * least,
        sharding=data.draw(st.sampled_from(Sharding)),
        bucket_bytes=data.draw(st.sampled_from([64, 4_000, 10**6])),
    )
    groups = tuple(data.draw(st.sets(st.sampled_from([Group.TENSOR, Group.EXPERT]))))
    count = ParameterCount(900, 90 if Group.EXPERT in groups else 0)
    blocks = whole_model(plan.pipeline + 1, layer(groups=groups, parameters=count))

    graphs = [layout(blocks, plan, launch=AT_ONCE, folded=folded).graph for folded in (True, False)]

    for graph in graphs:
        verify(graph)
    lengths = {step_ns(simulate(graph, durations(graph))) for graph in graphs}
    assert len(lengths) == 1

"""A module's own operators under a plan: repeated, recomputed, accumulated, cut into stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from foretrace.base import WorkloadError
from foretrace.graph import Part, Phase
from foretrace.operators import ModuleProgram, Ran, Tensor
from foretrace.workload import (
    Block,
    Convention,
    Exchange,
    Implementation,
    Operator,
    Plan,
    PlanDraft,
    Recompute,
    Sharding,
    blocks_of_model,
    check_plan,
    complete,
    flops,
    footprint,
    layout,
    schedule_of,
)
from tests.workload.blocks.programs import TOKENS, WIDTH, divided, layer, product, program

PARAMETERS = 2 * WIDTH * WIDTH


def plan_of(**fields: Any) -> Plan:
    stated: dict[str, Any] = {"micro_batch": 2, "global_batch": 2, "sequence": TOKENS // 2}
    return Plan(**(stated | fields))


def labels(block: Block) -> list[tuple[str, Phase]]:
    return [(item.label, item.phase) for item in block.items]


def test_layers_alike_are_one_object_and_what_is_before_and_behind_are_parts() -> None:
    ends = {"before": layer("tok"), "behind": layer("out")}

    blocks = blocks_of_model(program(3, **ends), plan_of())

    assert len({id(one) for one in blocks.layers}) == 1
    assert blocks.embedding is not None
    assert blocks.head is not None
    assert [one.part for one in (blocks.embedding, blocks.layers[0], blocks.head)] == [
        Part.EMBEDDING,
        Part.LAYER,
        Part.HEAD,
    ]
    assert blocks.layers[0].parameters.dense == PARAMETERS
    assert (blocks.transfer_bytes, blocks.transfer_dtype) == (TOKENS * WIDTH * 2, "bf16")


def test_full_recompute_does_the_forward_pass_again() -> None:
    blocks = blocks_of_model(program(), plan_of(recompute=Recompute.FULL))

    found = labels(blocks.layers[0].backward)
    assert found[:2] == [("up", Phase.RECOMPUTE), ("down", Phase.RECOMPUTE)]
    assert [phase for _, phase in found[2:]] == [Phase.BACKWARD] * 4


def test_selective_recompute_by_operators_saves_every_other_product() -> None:
    plan = plan_of(
        recompute=Recompute.SELECTIVE, implementation=Implementation(selective="operators")
    )

    found = labels(blocks_of_model(program(), plan).layers[0].backward)

    assert found[0] == ("down", Phase.RECOMPUTE)
    assert found[1][1] is Phase.BACKWARD


def test_gradients_are_added_up_where_there_are_several_microbatches() -> None:
    once = blocks_of_model(program(), plan_of()).layers[0].backward
    twice = blocks_of_model(program(), plan_of(global_batch=4)).layers[0].backward

    added = twice.items[len(once.items) :]
    assert [item.label for item in added] == ["accumulation of a gradient"] * 2
    assert all(item.is_weight_gradient for item in added)


def test_gathered_parameters_are_copied_where_software_does() -> None:
    plan = plan_of(
        data=2,
        global_batch=4,
        sharding=Sharding.ZERO3,
        recompute=Recompute.FULL,
        implementation=Implementation(copies_shards=True),
    )

    one = blocks_of_model(program(), plan).layers[0]

    assert one.forward.items[0].label == "copy of gathered parameters"
    assert [item.label for item in one.backward.items[:3]] == [
        "copy of gathered parameters",
        "up",
        "down",
    ]
    assert one.backward.items[-1].label == "copy of gradients to be reduced"


def test_a_sum_sends_what_came_before_it_and_the_next_operator_waits() -> None:
    blocks = blocks_of_model(divided(), plan_of(tensor=2))

    forward, backward = blocks.layers[0].forward.items, blocks.layers[0].backward.items
    assert isinstance(forward[2], Exchange)
    assert forward[2].after == (1,)
    assert isinstance(backward[3], Exchange)
    assert backward[3].after == (2,)
    assert isinstance(backward[4], Operator)
    assert backward[4].after == (3,)


def test_a_tied_table_counts_where_it_is_held_twice() -> None:
    ends = {"before": layer("tok"), "behind": replace(layer("out"), parameters=())}
    tied = program(4, tied_parameters=WIDTH * WIDTH, **ends)

    alone, cut = (
        blocks_of_model(tied, plan_of(pipeline=stages, global_batch=2 * stages)).head
        for stages in (1, 2)
    )

    assert alone is not None
    assert cut is not None
    assert (alone.parameters.dense, cut.parameters.dense) == (0, WIDTH * WIDTH)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_it_is_laid_out_in_stages(schedule: str) -> None:
    plan = plan_of(pipeline=2, global_batch=8, schedule=schedule)

    graph = layout(blocks_of_model(program(), plan), plan).graph

    assert graph.num_nodes > 2 * 4 * 6


def again(found: ModuleProgram) -> ModuleProgram:
    repeated = replace(found.layers[0].forward[0], is_again=True)
    one = replace(found.layers[0], backward=(repeated, *found.layers[0].backward))
    return replace(found, layers=(one, *found.layers[1:]))


@pytest.mark.parametrize(
    ("found", "fields", "message"),
    [
        (program(), {"context": 2}, "cp is 2, and mine is a module's own code"),
        (program(), {"data": 2, "expert": 2, "global_batch": 4}, "ep is 2"),
        (program(), {"tensor": 2}, "captured for tp 1: capture it with tensor=2"),
        (divided(), {}, "tp is 1, and mine was captured for tp 2"),
        (divided(), {"tensor": 2, "sequence_parallel": True}, "does not divide tokens"),
        (program(), {"micro_batch": 1}, "was captured with 2 samples"),
        (program(), {"sequence": 99}, "was captured with 32 tokens"),
        (program(2), {"pipeline": 8, "global_batch": 16}, "8 chunks for 2 layers of mine"),
        (program(), {"recompute": Recompute.SELECTIVE}, "nobody knows what mine calls its scores"),
        (again(program()), {"recompute": Recompute.FULL}, "computes again what it likes"),
    ],
)
def test_plans_that_say_otherwise_than_the_module_are_refused(
    found: ModuleProgram, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        check_plan(plan_of(**fields), found)


def test_a_draft_takes_over_what_was_captured() -> None:
    wide = replace(
        program(),
        layers=tuple(
            replace(one, parameters=(Tensor((WIDTH, WIDTH), "fp32"),)) for one in program().layers
        ),
    )

    plan = complete(PlanDraft().with_keys({"global_batch": 8}), wide, 4)

    assert (plan.micro_batch, plan.sequence, plan.data) == (2, TOKENS // 2, 4)
    assert plan.precision.parameters == "fp32"
    assert plan.precision.products == "bf16"
    assert plan.precision.optimizer_bytes == 8  # no copy beside parameters that are fp32


def test_flops_are_products_of_a_token_and_backward_counts_twice() -> None:
    found = flops(program(4))

    assert (found.unit, found.sequence) == ("token", TOKENS // 2)
    assert found.forward == 4 * 2 * 2 * WIDTH * WIDTH
    assert found.backward == 2 * found.forward
    by_parameters = flops(program(4), convention=Convention.PARAMETERS)
    assert by_parameters.training == 6 * 4 * PARAMETERS


def test_memory_is_states_and_what_parts_keep() -> None:
    plan = plan_of()

    one = footprint(program(4), plan, schedule_of(plan), capacity=10**10).peak

    assert one.parameters == 4 * PARAMETERS * 2
    assert one.optimizer == 4 * PARAMETERS * 12
    assert one.activations == 4 * 3 * TOKENS * WIDTH * 2


def test_recompute_keeps_a_layer_s_input_alone() -> None:
    plan = plan_of(recompute=Recompute.FULL)

    one = footprint(program(4), plan, schedule_of(plan)).peak

    assert one.activations == 4 * TOKENS * WIDTH * 2


def test_a_first_stage_holds_as_many_microbatches_as_there_are_stages() -> None:
    plan = plan_of(pipeline=4, global_batch=16)

    stages = footprint(program(4), plan, schedule_of(plan)).stages

    layer_bytes = 3 * TOKENS * WIDTH * 2
    assert [stage.activations for stage in stages] == [
        count * layer_bytes for count in (4, 3, 2, 1)
    ]


def test_an_exchange_is_told_from_an_operator() -> None:
    assert not product("up", 1, 1, 1).is_exchange
    assert Ran("sum", "all_reduce", "", num_bytes=4, dtype="bf16").is_exchange

"""The plan of laid-out models: what the generator of files does not know."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from foretrace.graph import Recording
from foretrace.whatif import Program, program_of
from foretrace.whatif.recorded.program import GROUPS, NO_GROUP
from foretrace.workload import (
    Axis,
    ContextExchange,
    Group,
    Plan,
    PlanDraft,
    Recompute,
    Sharding,
)
from tests.whatif.recorded.recordings import laid_out, of_layers

READ = (
    "tensor",
    "context",
    "data",
    "pipeline",
    "expert",
    "num_chunks",
    "schedule",
    "sharding",
    "sequence_parallel",
    "recompute",
    "num_microbatches",
)


@dataclass(frozen=True)
class Case:
    """A plan, with what of it has to be stated and the groups that communicate under it."""

    plan: Plan
    groups: frozenset[Group]
    stated: tuple[str, ...] = ()
    model: str = "llama3.2-1b"

    @property
    def recording(self) -> Recording:
        """Of the model under this plan."""
        return laid_out(self.plan, self.model)

    def program(self, recording: Recording) -> Program:
        """What is read off it, some of it stated."""
        stated = {name: getattr(self.plan, name) for name in self.stated}
        return program_of(recording, stated=PlanDraft(stated))


def plan(num_microbatches: int = 2, **fields: object) -> Plan:
    """A plan of short sequences."""
    made = Plan(sequence=128, **fields)  # type: ignore[arg-type]
    return replace(made, global_batch=num_microbatches * made.data)


TENSOR, DATA, PIPELINE = Group.TENSOR, Group.DATA, Group.PIPELINE
CASES = {
    "all": Case(
        plan(tensor=2, data=2, pipeline=2),
        frozenset({TENSOR, DATA, PIPELINE, Group.EMBEDDING, Group.ALL}),
    ),
    "sequence parallel": Case(
        plan(tensor=2, data=2, sequence_parallel=True), frozenset({TENSOR, DATA, Group.ALL})
    ),
    "zero1": Case(plan(data=4, sharding=Sharding.ZERO1), frozenset({Group.SHARD, Group.ALL})),
    "zero2": Case(plan(data=4, sharding=Sharding.ZERO2), frozenset({Group.SHARD, Group.ALL})),
    "zero3": Case(plan(data=4, sharding=Sharding.ZERO3), frozenset({Group.SHARD, Group.ALL})),
    "hybrid zero3": Case(
        plan(data=4, sharding=Sharding.ZERO3, shard_ranks=2),
        frozenset({Group.SHARD, Group.REPLICA, Group.ALL}),
    ),
    "zero3 beside tensor ranks": Case(
        plan(tensor=2, data=2, pipeline=2, sequence_parallel=True, sharding=Sharding.ZERO3),
        frozenset({TENSOR, PIPELINE, Group.SHARD, Group.EMBEDDING, Group.ALL}),
    ),
    "interleaved": Case(
        plan(4, data=2, pipeline=2, schedule="interleaved", num_chunks=2),
        frozenset({DATA, PIPELINE, Group.EMBEDDING, Group.ALL}),
    ),
    "gpipe, stages innermost": Case(
        plan(
            4,
            data=2,
            pipeline=2,
            schedule="gpipe",
            order=(Axis.PIPELINE, Axis.TENSOR, Axis.CONTEXT, Axis.DATA),
        ),
        frozenset({DATA, PIPELINE, Group.EMBEDDING, Group.ALL}),
    ),
    "context": Case(
        plan(tensor=2, context=2, data=2),
        frozenset({TENSOR, Group.CONTEXT, DATA, Group.ALL}),
        stated=("context",),
    ),
    "context alone": Case(
        plan(context=4), frozenset({Group.CONTEXT, DATA, Group.ALL}), stated=("context",)
    ),
    "context in a ring": Case(
        plan(context=2, data=2, context_exchange=ContextExchange.RING),
        frozenset({Group.CONTEXT, DATA, Group.ALL}),
        stated=("context", "context_exchange"),
    ),
    "experts": Case(
        plan(data=4, expert=4),
        frozenset({Group.EXPERT, DATA, Group.ALL}),
        model="mixtral-8x7b",
    ),
    "recompute": Case(plan(data=2, recompute=Recompute.FULL), frozenset({DATA, Group.ALL})),
    "selective recompute": Case(
        plan(tensor=2, recompute=Recompute.SELECTIVE), frozenset({TENSOR, Group.ALL})
    ),
}


def groups_in(program: Program) -> set[Group]:
    """Groups of its collectives, in none of which no collective may be."""
    assert NO_GROUP not in program.group_of_collective.tolist()
    return {GROUPS[each] for each in program.group_of_collective.tolist()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_plan_is_read_off_the_graph_that_it_makes(case: Case) -> None:
    program = case.program(case.recording)

    assert {name: getattr(program.plan, name) for name in READ} == {
        name: getattr(case.plan, name) for name in READ
    }
    assert program.doubts == ()
    assert groups_in(program) == case.groups


@pytest.mark.parametrize("name", ["zero3", "hybrid zero3", "zero3 beside tensor ranks"])
def test_gathered_parameters_inside_layers_are_no_tensor_parallelism(name: str) -> None:
    case = CASES[name]

    program = case.program(of_layers(case.recording))

    assert program.plan.tensor == case.plan.tensor
    assert program.plan.sharding is Sharding.ZERO3
    assert groups_in(program) == case.groups


def test_uneven_stages_are_said_layer_by_layer() -> None:
    uneven = plan(pipeline=2, layers_of_chunk=(1, 3))

    program = program_of(laid_out(uneven))

    assert program.layers_of_stage == ((0,), (1, 2, 3))
    assert program.plan.layers_of_chunk == (1, 3)


def test_an_order_that_no_schedule_has_is_no_schedule() -> None:
    recording = laid_out(plan(4, pipeline=2, schedule="zb-h1"))

    program = program_of(recording)

    assert program.plan.schedule == "none"
    assert any("of no known schedule" in note for note in program.notes)

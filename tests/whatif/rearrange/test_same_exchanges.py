"""Any plan exchanges the same, whether blocks are made of a model or of a recording of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.graph import Part, Phase
from foretrace.whatif.rearrange.rearranged import rearranged
from foretrace.whatif.recorded.program import MadeExchange, NewJob, Program
from foretrace.whatif.resize.base import base_scenario
from foretrace.workload import (
    Blocks,
    Exchange,
    Group,
    Implementation,
    Overlap,
    Plan,
    Precision,
    Transformer,
    blocks_of_model,
    load_model,
)
from tests.whatif.resize.models import program_of_model

# Kind, group, bytes and number format of an exchange.
Sent = tuple[str, Group, int, str]
_LAYERS = 4
_PHASES = (Phase.FORWARD, Phase.BACKWARD)


@cache
def model() -> Transformer:
    """A small one whose sizes tell each other apart."""
    found = load_model("llama3.2-1b")
    assert isinstance(found, Transformer)
    return replace(found, num_layers=_LAYERS, ties_embeddings=False)


@cache
def program(implementation: Implementation) -> Program:
    """A recording of it on one rank."""
    plan = Plan(sequence=256, implementation=implementation)
    return program_of_model(model(), plan)


@st.composite
def tensor_plans(draw: st.DrawFn) -> Plan:
    """Plans of tensor-parallel ranks, some of several stages."""
    return Plan(
        tensor=draw(st.sampled_from((2, 4, 8))),
        pipeline=draw(st.sampled_from((1, 2, 4))),
        sequence=256,
        sequence_parallel=draw(st.booleans()),
        overlap=Overlap(tensor_backward=draw(st.booleans())),
        precision=Precision(activations=draw(st.sampled_from(("bf16", "fp32")))),
        implementation=Implementation(
            fuses_loss=draw(st.booleans()),
            fuses_projections=draw(st.booleans()),
            fuses_gradients=draw(st.booleans()),
        ),
    )


def on_pieces(plan: Plan) -> NewJob:
    """The recording under a plan."""
    recorded = program(plan.implementation)
    before = base_scenario(recorded)
    job = rearranged(recorded, before, replace(before, plan=plan))
    assert job is not None
    return job


def sent(one: Exchange | MadeExchange) -> Sent:
    """What tells an exchange from another."""
    return one.collective, one.group, one.num_bytes, one.dtype


def made(job: NewJob) -> dict[tuple[Phase, Part, int], list[Sent]]:
    """Exchanges over tensor-parallel ranks, pass by pass, part by part, layer by layer."""
    found: dict[tuple[Phase, Part, int], list[Sent]] = defaultdict(list)
    for rank in job.ranks:
        for each in rank.placed:
            part = Part.HEAD if each.part is Part.LOSS else each.part
            if isinstance(each.piece, MadeExchange) and each.piece.group is Group.TENSOR:
                found[each.phase, part, each.layer].append(sent(each.piece))
    return found


def of_model(blocks: Blocks) -> dict[tuple[Phase, Part, int], list[Sent]]:
    """The same of blocks."""
    found: dict[tuple[Phase, Part, int], list[Sent]] = {}
    parts = [(blocks.embedding, -1), *((one, at) for at, one in enumerate(blocks.layers))]
    for one, layer in (*parts, (blocks.head, -1)):
        assert one is not None
        for phase, block in zip(_PHASES, (one.forward, one.backward), strict=True):
            own = [sent(item) for item in block.items if isinstance(item, Exchange)]
            if own:
                found[phase, one.part, layer] = own
    return found


@settings(max_examples=40, deadline=None)
@given(tensor_plans())
def test_tensor_ranks_exchange_the_same_on_pieces_as_in_blocks(plan: Plan) -> None:
    assert made(on_pieces(plan)) == of_model(blocks_of_model(model(), plan))

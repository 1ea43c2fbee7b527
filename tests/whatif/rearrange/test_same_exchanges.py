"""Any plan exchanges the same, whether blocks are made of a model or of a recording of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.graph import Part, Phase
from foretrace.whatif.baseline import base_scenario
from foretrace.whatif.rearrange.rearranged import rearranged
from foretrace.whatif.recorded.program import MadeExchange, NewJob, Program
from foretrace.workload import (
    Exchange,
    Group,
    Implementation,
    ModelBlocks,
    Overlap,
    Plan,
    Precision,
    Sharding,
    Transformer,
    blocks_of_model,
    gathered,
    pools_of,
    reduced,
    schedule_of,
)
from foretrace.workload.exchanges.gradients import buckets_of
from foretrace.workload.layout.units import chunks_of
from tests.models import transformer
from tests.whatif.resize.models import program_of_model

# Kind, group, bytes and number format of an exchange.
Sent = tuple[str, Group, int, str]
_LAYERS = 4
_PHASES = (Phase.FORWARD, Phase.BACKWARD)


@cache
def model() -> Transformer:
    """A small one whose sizes tell each other apart."""
    found = transformer("llama3.2-1b")
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


def of_model(blocks: ModelBlocks) -> dict[tuple[Phase, Part, int], list[Sent]]:
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
    blocks, job = blocks_of_model(model(), plan), on_pieces(plan)

    assert made(job) == of_model(blocks)
    handed_over = {
        (each.piece.num_bytes, each.piece.dtype)
        for rank in job.ranks
        for each in rank.placed
        if isinstance(each.piece, MadeExchange) and each.piece.group is Group.PIPELINE
    }
    assert handed_over == (
        {(blocks.transfer_bytes, blocks.transfer_dtype)} if plan.pipeline > 1 else set()
    )


@st.composite
def data_plans(draw: st.DrawFn) -> Plan:
    """Plans of data-parallel ranks, some of several stages, some with divided states."""
    data = draw(st.sampled_from((2, 4)))
    return Plan(
        data=data,
        global_batch=data,
        pipeline=draw(st.sampled_from((1, 2))),
        sequence=256,
        sharding=draw(st.sampled_from((Sharding.NONE, Sharding.ZERO1))),
        bucket_bytes=draw(st.sampled_from((None, 25_000_000, 100_000_000, 1_000_000_000))),
        overlap=Overlap(gradients=draw(st.booleans())),
        precision=Precision(reduced=draw(st.sampled_from(("bf16", "fp32")))),
    )


@settings(max_examples=20, deadline=None)
@given(data_plans())
def test_gradients_are_reduced_in_the_same_buckets_on_pieces_as_in_blocks(plan: Plan) -> None:
    chunks = chunks_of(blocks_of_model(model(), plan), plan, schedule_of(plan))

    ranks = on_pieces(plan).ranks

    for rank, chunk in zip(ranks, chunks, strict=True):
        buckets = buckets_of(chunk.parts[::-1], pools_of(plan), plan)
        expected = [
            exchange for one in buckets for exchange in reduced(one.num_parameters, one.pool, plan)
        ]
        if plan.sharding is Sharding.ZERO1:
            expected += [
                gathered(one.num_parameters, one.pool, plan, phase=Phase.FORWARD)
                for one in reversed(buckets)
            ]
        found = [
            each.piece
            for each in rank.placed
            if isinstance(each.piece, MadeExchange) and each.part is Part.BUCKET
        ]
        assert [(one.collective, one.group, one.dtype) for one in found] == [
            (one.collective, one.group, one.dtype) for one in expected
        ]
        # The last bucket has what is left: shapes of products do not show parameters of norms.
        rest = {len(buckets) - 1, len(buckets)}
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            is_rest = place in rest
            assert one.num_bytes == pytest.approx(other.num_bytes, rel=1e-2 if is_rest else 0)

"""Models under plans, whose operators' shapes and times are known on both sides of an edit."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from foretrace.cost import CostModel, Costs, FittedCosts, graph_costs
from foretrace.graph import ExecutionGraph, Part, Phase, Recording
from foretrace.machine import Machine, load_machine
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.recorded.read import program_of
from foretrace.whatif.resize.named import Dimensions, Divided, Sizes, dimensions
from foretrace.whatif.resize.rewriting import Context, RecordedOperator, Rewritten, rewritten_block
from foretrace.workload import Operator, Plan, PlanDraft, Transformer, blocks_of_model, layout
from tests.whatif.recorded.recordings import recording_of_graph

PARTS = {Part.EMBEDDING: "embedding", Part.LAYER: "layer", Part.HEAD: "head"}


def with_sizes(model: Transformer, sizes: Sizes) -> Transformer:
    """A model of other sizes."""
    attention = replace(
        model.attention,
        num_heads=sizes.heads or 1,
        num_kv_heads=sizes.key_value_heads or 1,
        head_size=sizes.head_width or 1,
    )
    return replace(
        model,
        num_layers=sizes.layers or 1,
        hidden=sizes.hidden or 1,
        vocabulary=sizes.vocabulary or 1,
        feed_forward=replace(model.feed_forward, width=sizes.feed_forward or 1),
        attention=attention,
    )


def known_of(before: tuple[Sizes, Plan], after: tuple[Sizes, Plan]) -> Dimensions:
    """Named dimensions of a model that tensor-parallel ranks divide."""
    return dimensions(before, after, Divided())


def operators(model: Transformer, plan: Plan, part: Part, phase: Phase) -> list[Operator]:
    """The operators of one part's pass, in order."""
    blocks = blocks_of_model(model, plan)
    passes = {
        Part.EMBEDDING: blocks.embedding,
        Part.LAYER: blocks.layers[0],
        Part.HEAD: blocks.head,
    }[part]
    assert passes is not None
    block = passes.forward if phase is Phase.FORWARD else passes.backward
    return [item for item in block.items if isinstance(item, Operator)]


def rewritten(
    model: Transformer, plan: Plan, known: Dimensions, *, part: Part, phase: Phase
) -> list[Rewritten]:
    """The operators of one part's pass, at other sizes."""
    block = [
        RecordedOperator(one.name, one.signature) for one in operators(model, plan, part, phase)
    ]
    tables = (model.context,) if part is Part.EMBEDDING else ()
    return rewritten_block(block, Context(part, phase, known, tables))


@cache
def machine() -> Machine:
    """One with GPUs that cost models know."""
    return load_machine("superpod-h100")


@cache
def costs() -> CostModel:
    """Those of the machine."""
    return FittedCosts(machine())


@cache
def laid_out(model: Transformer, plan: Plan) -> tuple[ExecutionGraph, Costs]:
    """A job on the machine, every node of which takes what the cost model says."""
    graph = layout(blocks_of_model(model, plan), plan, folded=False).graph
    return graph, graph_costs(graph, costs())


def recording_of_model(model: Transformer, plan: Plan) -> Recording:
    """The same as if it had been recorded."""
    graph, found = laid_out(model, plan)
    return recording_of_graph(replace(graph, measured_ns=found.duration_ns))


def program_of_model(model: Transformer, plan: Plan) -> Program:
    """The same, cut into pieces; its plan is stated where a recording cannot show it."""
    stated = PlanDraft().with_keys(
        {"parallelism.tp": plan.tensor, "parallelism.sequence_parallel": plan.sequence_parallel}
    )
    return program_of(recording_of_model(model, plan), stated=stated)

"""Blocks made by hand, whose durations are known, and their simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretrace.base import CollectiveKind, Int64s
from foretrace.graph import ExecutionGraph, NodeKind, Part, Phase, Timeline, verify
from foretrace.simulate import simulate
from foretrace.workload import (
    AT_ONCE,
    Block,
    Exchange,
    Group,
    Item,
    LaidOut,
    ModelBlocks,
    Operator,
    ParameterCount,
    Passes,
    Plan,
    layout,
)

TRANSFER_BYTES = 1_000


def operator(
    label: str,
    duration_ns: int,
    phase: Phase = Phase.FORWARD,
    *,
    after: tuple[int, ...] = (),
    is_weight_gradient: bool = False,
) -> Operator:
    """An operator of known duration."""
    return Operator(label, "aten::mm", "[[8]]", phase, after, duration_ns, is_weight_gradient)


def exchange(
    group: Group, *, phase: Phase = Phase.FORWARD, after: tuple[int, ...] = (), num_bytes: int = 100
) -> Exchange:
    """An exchange whose duration is yet to be known."""
    return Exchange(
        f"sum over {group}", CollectiveKind.ALL_REDUCE, group, num_bytes, "bf16", phase, after
    )


def layer(
    forward_ns: int = 100,
    input_ns: int = 120,
    weight_ns: int = 80,
    *,
    groups: tuple[Group, ...] = (),
    parameters: ParameterCount | None = None,
) -> Passes:
    """A layer of one product each way, and a sum over every one of some groups."""
    count = len(groups)
    behind = tuple(range(1, 1 + count))
    forward: tuple[Item, ...] = (operator("product", forward_ns),)
    backward: tuple[Item, ...] = (operator("input gradient", input_ns, Phase.BACKWARD),)
    if groups:
        sums = (exchange(group, after=(0,)) for group in groups)
        forward = (*forward, *sums, operator("residual sum", 0, after=behind))
        backward += tuple(exchange(group, phase=Phase.BACKWARD, after=(0,)) for group in groups)
    weight = operator("weight gradient", weight_ns, Phase.BACKWARD, is_weight_gradient=True)
    return Passes(
        Part.LAYER,
        Block(Part.LAYER, forward),
        Block(Part.LAYER, (*backward, weight)),
        parameters or ParameterCount(),
    )


def model(num_layers: int, one: Passes | None = None) -> ModelBlocks:
    """So many layers and nothing else."""
    return ModelBlocks(None, (one or layer(),) * num_layers, None, TRANSFER_BYTES, "bf16")


def whole_model(num_layers: int, one: Passes) -> ModelBlocks:
    """So many layers between an embedding and an output projection that share a table."""
    embedding, head = replace(one, part=Part.EMBEDDING), replace(one, part=Part.HEAD)
    return ModelBlocks(embedding, (one,) * num_layers, head, TRANSFER_BYTES, "bf16", 64)


def no_update(num_parameters: int, plan: Plan) -> Block:
    """An optimizer that does nothing."""
    del num_parameters, plan
    return Block(Part.OPTIMIZER, ())


def laid_out(blocks: ModelBlocks, plan: Plan, *, folded: bool = True) -> LaidOut:
    """A legal graph in which nothing but the blocks' own work takes time."""
    found = layout(blocks, plan, folded=folded, launch=AT_ONCE, optimizer=no_update)
    verify(found.graph)
    return found


def durations(graph: ExecutionGraph) -> Int64s:
    """Known durations, and 7 ns and a share of the bytes for every exchange; int64[nodes]."""
    num_bytes = np.array([*(one.num_bytes for one in graph.collectives), 0])
    is_open = (graph.kind == NodeKind.FINISH) & (graph.measured_ns == 0)
    return np.where(is_open, 7 + num_bytes[graph.collective] // 3, graph.measured_ns)


def step_ns(timeline: Timeline) -> int:
    """How long everything takes."""
    return int(timeline.end_ns.max())


def run_ns(blocks: ModelBlocks, plan: Plan) -> int:
    """Length of a step in which communication takes no time."""
    return step_ns(simulate(laid_out(blocks, plan).graph))

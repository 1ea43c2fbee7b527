"""The operator of every node."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.graph import ExecutionGraph, NodeKind, build_recording
from foretrace.trace import load_traces
from tests.truth import JobConfig, make_job, write


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> ExecutionGraph:
    folder = tmp_path_factory.mktemp("job")
    write(make_job(JobConfig(tp=2, num_layers=2, num_steps=1)), folder)
    return build_recording(load_traces([folder])).graph


def operators_of(graph: ExecutionGraph, kernel: str) -> set[str]:
    nodes = [
        node
        for node in np.flatnonzero(graph.is_device).tolist()
        if kernel in graph.names[graph.name[node]]
    ]
    assert nodes
    return {graph.names[graph.operator[node]] for node in nodes}


@pytest.mark.parametrize(
    ("kernel", "operator"),
    [
        ("flash_fwd", "aten::_flash_attention_forward"),
        ("GeluCUDAKernelImpl", "aten::gelu"),
        ("flash_bwd_dot", "aten::copy_"),
        ("FusedAdam", "aten::_fused_adamw_"),
        ("nll_loss", "aten::nll_loss_nd"),
        ("Memcpy HtoD", "aten::copy_"),
    ],
)
def test_a_device_operation_has_the_operator_that_launched_it(
    graph: ExecutionGraph, kernel: str, operator: str
) -> None:
    assert operators_of(graph, kernel) == {operator}


def test_the_operator_brings_its_shapes(graph: ExecutionGraph) -> None:
    gelu = [name for name, text in enumerate(graph.names) if text == "aten::gelu"]

    nodes = np.flatnonzero(np.isin(graph.operator, gelu) & (graph.kind == NodeKind.KERNEL))

    assert len(nodes)
    assert all("[4,2048,16384]" in graph.names[graph.operator_signature[node]] for node in nodes)


def test_both_ends_of_a_communication_have_one_operator(graph: ExecutionGraph) -> None:
    for collective in range(len(graph.collectives)):
        for rank in graph.ranks:
            member = (graph.collective == collective) & (graph.rank == rank)
            ends = np.flatnonzero(member & graph.is_of(NodeKind.ARRIVE, NodeKind.FINISH))
            assert len(ends) == 2
            operator = graph.operator[ends]
            assert operator[0] == operator[1] >= 0
            assert graph.names[operator[0]] == "record_param_comms"


def test_step_marks_are_no_operators(graph: ExecutionGraph) -> None:
    used = {graph.names[name] for name in np.unique(graph.operator).tolist() if name >= 0}

    assert not [name for name in used if name.startswith("ProfilerStep")]


def test_host_time_belongs_to_the_operator_that_is_open(graph: ExecutionGraph) -> None:
    launches = graph.nodes_of(NodeKind.LAUNCH)

    known = (graph.operator[launches] >= 0).mean()

    assert known > 0.97  # all but the fill that zeroes gradients, and what has no operator

"""Changes as people write them, what they select, and what a step becomes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analyze import Selection, effect, read_change, windows
from foretrace.base import GraphError, ScenarioError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Part, Phase, Timeline
from foretrace.simulate import simulate
from tests.analyze.step_graphs import KERNELS, step_graphs
from tests.graphs import Block, Edge, GraphBuilder

STEP = "ProfilerStep#0"


def _run() -> Timeline:
    """Two ranks: a launch, a product of layer 3 on each, an all-reduce, a wait on rank 0."""
    build = GraphBuilder()
    kernel = {}
    for rank, takes_ns in ((0, 100), (1, 200)):
        start = build.add(NodeKind.RANK_START, rank=rank, takes_ns=7)
        begin = build.add(NodeKind.STEP_BEGIN, rank=rank, after=[start], step=STEP)
        launch = build.add(
            NodeKind.LAUNCH,
            rank=rank,
            name="cudaLaunchKernel",
            takes_ns=10,
            after=[begin],
            step=STEP,
        )
        kernel[rank] = build.add(
            NodeKind.KERNEL,
            rank=rank,
            lane="stream 7",
            name=KERNELS[0],
            operator="aten::mm",
            takes_ns=takes_ns,
            after=[Edge(launch, EdgeKind.LAUNCH, lag_ns=4)],
            step=STEP,
            block=Block(Part.LAYER, Phase.FORWARD, 3, 1),
        )
    finish = build.collective(
        {rank: [node] for rank, node in kernel.items()}, transfer_ns=50, step=STEP
    )
    wait = build.add(
        NodeKind.SYNC, takes_ns=6, after=[Edge(finish[0], EdgeKind.WAKE, 8)], step=STEP
    )
    build.add(NodeKind.STEP_END, after=[wait], step=STEP)
    return simulate(build.graph())


STEP_NS = 10 + 4 + 200 + 50 + 8 + 6


@pytest.mark.parametrize(
    ("text", "effect_ns"),
    [
        ("gemm=0.5", -100),
        ("gemm ranks:0=0", 0),
        ("ranks:1 gemm=0.75", -50),
        ("ranks:0-1=0.9", -20),
        ("*blas*=0.5", -100),
        (f'kernels:"{KERNELS[0]}"=2', 200),
        ("kernels:*SGEMM*=2", 200),
        ("calls:cudaLaunchKernel=0", -10),
        ("operators:aten::mm=0.5", -100),
        ("part:layer=0.5", -100),
        ("phase:forward=0.5", -100),
        ("layers:0-5=0.5", -100),
        ("layers:3,9=0.5", -100),
        ("microbatches:1=0.5", -100),
        ("allreduce=0", -50),
        ("groups:world=0.5", -25),
        ("communication=1.5", 25),
        ("host=0", -16),
        ("class:launch|synchronisation=0", -16),
        ("edges:launch=0", -4),
        ("edges:wake=2.5", 12),
        ("edges:wake=removed", -14),
        ("  ranks:1  gemm = 0.75", -50),
    ],
)
def test_a_change_as_it_is_written(text: str, effect_ns: float) -> None:
    found = effect(_run(), text)

    assert found.step_ns == STEP_NS
    assert found.effect_ns == pytest.approx(effect_ns)
    assert found.share == pytest.approx(effect_ns / STEP_NS)


def test_changes_made_together_multiply_where_they_meet() -> None:
    found = effect(
        _run(),
        [
            "gemm=0.5",
            "ranks:1 compute|communication|host=0.5",
            "edges:launch=0.5",
            "edges:launch=0.5",
        ],
    )

    # rank 1 is ready after 5, 1 and 50 ns; rank 0 after 10, 1 and 50, and its transfer takes 50
    assert found.changed_ns == pytest.approx(10 + 1 + 50 + 50 + 8 + 6)
    assert found.num_nodes == 4
    assert found.work_ns == 100 + 10 + 200 + 50


def test_more_changes_than_a_table_has_room_for_are_made() -> None:
    texts = [f'kernels:"{KERNELS[0]}" ranks:1={1 - number / 1000}' for number in range(1, 13)]

    found = effect(_run(), texts)

    assert found.changed_ns - STEP_NS == pytest.approx(
        200 * np.prod(1 - np.arange(1, 13) / 1000) - 200
    )


def test_the_start_of_a_rank_is_nobodys_work() -> None:
    found = effect(_run(), "ranks:0,1 compute|communication|host=0")

    assert found.changed_ns == 4 + 8


def test_a_ranks_own_step_is_its_own() -> None:
    found = effect(_run(), "gemm=0.5", rank=1)

    assert (found.step_ns, found.changed_ns) == (264, 164)
    assert found.as_json()["rank"] == 1
    assert found.headline == "gemm=0.5: step -37.9 % (-100 ns of 264 ns)"


@given(graph=step_graphs(), factor=st.sampled_from((0.0, 0.5, 1.0, 2.0)), data=st.data())
def test_an_effect_is_the_difference_of_two_simulations(
    graph: ExecutionGraph, factor: float, data: st.DataObject
) -> None:
    graph = replace(graph, measured_ns=2 * graph.measured_ns)  # halves are whole
    before = windows(simulate(graph))
    row = data.draw(st.integers(0, len(before) - 1))
    kernels = (graph.kind == NodeKind.KERNEL) & (graph.rank == 0)
    if not kernels.any() or before.duration_ns[row] == 0:
        return
    changed_ns = np.where(kernels, graph.measured_ns * factor, graph.measured_ns).astype(np.int64)

    found = effect(simulate(graph), f"ranks:0 compute={factor}", step=graph.step_names[row])

    after = windows(simulate(graph, changed_ns))
    if before.begin_node[row] >= 0:
        assert found.changed_ns == after.duration_ns[row]
    works = kernels & (graph.measured_ns > 0)
    assert found.num_nodes == (works.sum() if factor != 1 else 0)


@pytest.mark.parametrize(
    "text",
    ["gemm=0.8", "gemm|attention ranks:3=1.2", "edges:wake=removed", "layers:0-9 host=0"],
)
def test_a_change_is_written_as_it_was_read(text: str) -> None:
    assert str(read_change(text)) == text


def test_names_may_hold_spaces_colons_and_equal_signs() -> None:
    change = read_change('kernels:"void at::copy<4, float>(int, T=3)" ranks:2=0.5')

    assert change.select == Selection(kernels="void at::copy<4, float>(int, T=3)", ranks=(2,))


def test_a_rank_is_what_it_computes_and_its_host_where_that_is_said() -> None:
    assert effect(_run(), "ranks:1=0").work_ns == 200
    assert effect(_run(), "ranks:1 host=0").work_ns == 10
    assert effect(_run(), "ranks:1 compute|host=0").work_ns == 210


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gemm", "does not end with a factor: expected `gemm=0.8`"),
        ("operators:aten::mm", "does not end with a factor"),
        ("", "does not end with a factor"),
        ("gemm=fast", "does not end with a factor"),
        ("gemm=-1", "a factor of 0 or more"),
        ("gemm=nan", "a factor of 0 or more"),
        ("clss:gemm=0.8", "allowed are class:, .*did you mean 'class'?"),
        ("=0.8", "names no work"),
        ("class:=0.8", "names nothing"),
        ("gemm|=0.8", "names nothing"),
        ("edges:launch ranks:3=0.8", "edges are chosen by their kind alone"),
        ("gemm=removed", "only edges can be removed"),
        ("gem=0.8", "no family here is 'gem': there are 'cuBLAS gemm', 'gemm'"),
        ("copy=0.8", "no family here is 'copy': there are "),
        ("kernels:*sgem ranks:1=0.8", f"no kernel here is '\\*sgem': there are '{KERNELS[0]}'"),
        ("ranks:7=0.8", "no rank here is 7: there are '0-1'."),
        ("phase:backward=0.8", "no phase here is 'backward': there are 'forward'."),
        ("edges:lunch=0.8", "no edge is called 'lunch': there are 'launch'"),
        ("gemm phase:forward host=1", "no family here is 'gemm'"),
        ("allreduce phase:forward=1", "but none that fits them all"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(text: str, sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        effect(_run(), text)


def test_an_unknown_step_is_refused() -> None:
    with pytest.raises(GraphError, match="no step 'other'"):
        effect(_run(), "gemm=0.5", step="other")
